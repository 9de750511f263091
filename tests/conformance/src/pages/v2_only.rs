//! Functions that 2.0 has and 1.2 has not, the IB extension included.

use dat_abi::v2_0::types::{DatLmrTriplet, DatRmrTriplet, ib_ext_type};
use dat_core::error::Kind;
use dat_core::event::DtoOp;
use dat_core::flags::{EvdFlags, MemPriv};

use super::statements;
use crate::dat::{Dat, Extension, Post, readable};
use crate::event::{REMOTE_ACCESS, SUCCESS, Seen};
use crate::fixture::{Memory, Pair, Side, TIMEOUT, expect_ok};
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    since V2_0;
    "dat_cno_fd_create": "The descriptor is readable while an EVD has an event that was not reported yet." => descriptor;
    "dat_cno_trigger": "It returns the EVD that made the descriptor readable, then DAT_QUEUE_EMPTY." => trigger;
    "dat_ia_ha_related": "It returns whether a provider is an alternative for the IA; an IA is none for itself." => related;
    "dat_rmr_create_for_ep": "It is a window that can be bound on the endpoint." => window_for_ep;
    "dat_lmr_create": "With DAT_VA_TYPE_ZB the addresses of the LMR begin at 0, in segments and for a peer." => from_zero;
    "dat_rmr_bind": "With DAT_VA_TYPE_ZB the peer's addresses begin at 0 in the range of the bind." => window_from_zero;
    "dat_ep_post_send_with_invalidate": "The peer's window is closed when the message has arrived." => invalidates;
    "dat_ep_post_send_with_invalidate": "The receive's completion names the window; its LMR is free, and the RMR can be bound again." => tells_invalidated;
    "dat_ep_post_rdma_read_to_rmr": "The bytes of the peer's memory are in the window's memory." => read_to_window;
    "dat_ib_post_fetch_and_add": "The operand is added to the peer's word, and the result is its former value." => fetch_and_add;
    "dat_ib_post_cmp_and_swap": "The peer's word is replaced if it equals the operand." => compare_and_swap;
    "dat_ib_post_fetch_and_add": "The peer's memory needs DAT_IB_MEM_PRIV_REMOTE_ATOMIC: without it the word stays, and the connection breaks." => atomic_right;
    "dat_ib_post_fetch_and_add": "Local memory that has not 8 bytes is DAT_LENGTH_ERROR." => atomic_length;
    "dat_ib_post_cmp_and_swap": "Local memory that has not 8 bytes is DAT_LENGTH_ERROR." => swap_length;
    "dat_ib_post_rdma_write_immed": "The completion of the receive has the immediate data." => immediate_data;
    "dat_ib_post_rdma_write_immed": "The completion of the receive has the number of bytes written." => immediate_length;
    "dat_ib_post_rdma_write_immed": "The bytes are in the peer's memory, and its receive completes." => write_immediate;
    "dat_ib_open_query": "It returns an IA's attributes without dat_ia_open." => open_query;
    "dat_ib_close_query": "The handle of dat_ib_open_query is destroyed." => close_query;
    "dat_ib_collective_*": "A member of a collective can be created." => collective;
}

const ALL: u32 = MemPriv::ALL.bits();

fn descriptor(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (fd, cno) = expect_ok(dat.cno_fd_create(side.ia), "dat_cno_fd_create")?;
    let evd = dat.evd_create(side.ia, 8, cno, EvdFlags::SOFTWARE.bits());
    let evd = expect_ok(evd, "dat_evd_create")?;
    holds(
        !readable(fd),
        "the descriptor is readable although no EVD has an event",
    )?;
    ok(dat.evd_post_se(evd, 1), "dat_evd_post_se")?;
    holds(
        readable(fd),
        "the descriptor is not readable although an EVD has an event",
    )?;
    same(&dat.cno_wait(cno, TIMEOUT), &Ok(evd), "EVD")?;
    holds(
        !readable(fd),
        "the descriptor is readable after dat_cno_wait returned the EVD",
    )
}

fn trigger(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (fd, cno) = expect_ok(dat.cno_fd_create(side.ia), "dat_cno_fd_create")?;
    let evd = dat.evd_create(side.ia, 8, cno, EvdFlags::SOFTWARE.bits());
    let evd = expect_ok(evd, "dat_evd_create")?;
    ok(dat.evd_post_se(evd, 1), "dat_evd_post_se")?;
    same(&dat.cno_trigger(cno), &Ok(evd), "EVD")?;
    holds(
        !readable(fd),
        "the descriptor is readable after dat_cno_trigger returned the EVD",
    )?;
    let empty = dat.cno_trigger(cno).err().unwrap_or(0);
    refused(empty, Kind::QueueEmpty, "dat_cno_trigger again")
}

fn related(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let related = expect_ok(dat.ia_ha_related(side.ia), "dat_ia_ha_related")?;
    holds(
        !related,
        "dat_ia_ha_related of an IA and itself returned true",
    )
}

fn bind(side: &Side<'_>, rmr: usize, memory: &Memory, ep: usize) -> Check<u32> {
    let rights = MemPriv::REMOTE_WRITE.bits();
    let lmr = memory.region.lmr;
    let key = side
        .dat
        .rmr_bind(rmr, lmr, &memory.local(), rights, ep, 100);
    let key = expect_ok(key, "dat_rmr_bind")?;
    side.completes(side.request, 100, SUCCESS)?;
    Ok(key)
}

fn window_for_ep(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(3);
    let rmr = expect_ok(dat.rmr_create_for_ep(pair.b.pz), "dat_rmr_create_for_ep")?;
    let key = bind(&pair.b, rmr, &far, pair.to)?;
    let write = Post::Write(far.under(key));
    pair.a.post(pair.from, write, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        far.is_all(3),
        "the destination does not hold the transferred bytes",
    )
}

/// Returns memory of which only the second third has this byte.
fn only_middle(memory: &Memory, byte: u8) -> bool {
    let seen = |at| memory.byte(at) == byte;
    (0..192).all(|at| seen(at) == (64..128).contains(&at))
}

fn from_zero(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    let (own, into, far) = (a.memory(64, ALL)?, a.memory(64, ALL)?, b.memory(192, ALL)?);
    own.fill(3);
    let region = dat.lmr_create_from_zero(b.ia, far.bytes(), b.pz, ALL);
    let region = expect_ok(region, "dat_lmr_create with DAT_VA_TYPE_ZB")?;
    let remote = DatRmrTriplet {
        virtual_address: 64,
        segment_length: 64,
        rmr_context: region.rmr_context,
    };
    a.post(pair.from, Post::Write(remote), &[own.local()], 1)?;
    a.completes(a.request, 1, SUCCESS)?;
    holds(
        only_middle(&far, 3),
        "an RDMA Write of 64 bytes to address 64 of an LMR with DAT_VA_TYPE_ZB wrote elsewhere",
    )?;
    let segment = DatLmrTriplet {
        virtual_address: 64,
        segment_length: 64,
        lmr_context: region.lmr_context,
    };
    a.post(pair.from, Post::Recv, &[into.local()], 2)?;
    b.post(pair.to, Post::Send, &[segment], 3)?;
    a.completes(a.recv, 2, SUCCESS)?;
    holds(
        into.is_all(3),
        "a send of 64 bytes at address 64 of an LMR with DAT_VA_TYPE_ZB took other bytes",
    )
}

fn window_from_zero(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    let (own, far) = (a.memory(64, ALL)?, b.memory(192, ALL)?);
    own.fill(3);
    let rmr = expect_ok(dat.rmr_create(b.pz), "dat_rmr_create")?;
    let mut middle = far.local();
    middle.virtual_address += 64;
    middle.segment_length = 64;
    let write = MemPriv::REMOTE_WRITE.bits();
    let key = dat.rmr_bind_from_zero(rmr, far.region.lmr, &middle, write, pair.to, 100);
    let key = expect_ok(key, "dat_rmr_bind with DAT_VA_TYPE_ZB")?;
    b.completes(b.request, 100, SUCCESS)?;
    let remote = DatRmrTriplet {
        virtual_address: 0,
        segment_length: 64,
        rmr_context: key,
    };
    a.post(pair.from, Post::Write(remote), &[own.local()], 1)?;
    a.completes(a.request, 1, SUCCESS)?;
    holds(
        only_middle(&far, 3),
        "an RDMA Write to address 0 of a window with DAT_VA_TYPE_ZB wrote elsewhere than to its range",
    )
}

/// Binds a window of `b` and closes it by a message of `a`; the receive is not dequeued yet.
fn closed<'a>(pair: &Pair<'a>, far: &Memory) -> Check<(usize, u32)> {
    let dat = pair.a.dat;
    let rmr = expect_ok(dat.rmr_create_for_ep(pair.b.pz), "dat_rmr_create_for_ep")?;
    let key = bind(&pair.b, rmr, far, pair.to)?;
    pair.b.post(pair.to, Post::Recv, &[], 2)?;
    let code = dat.post_send_with_invalidate(pair.from, &[], 1, key);
    ok(code, "dat_ep_post_send_with_invalidate")?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    Ok((rmr, key))
}

fn invalidates(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(3);
    let (_, key) = closed(&pair, &far)?;
    pair.b.completes(pair.b.recv, 2, SUCCESS)?;
    let write = Post::Write(far.under(key));
    pair.a.post(pair.from, write, &[own.local()], 3)?;
    pair.a.completes(pair.a.request, 3, REMOTE_ACCESS)?;
    holds(far.is_all(0), "the memory changed through a closed window")
}

fn tells_invalidated(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    let other = pair.b.memory(64, ALL)?;
    own.fill(3);
    let (rmr, key) = closed(&pair, &far)?;
    let told = expect_ok(
        dat.evd_wait_invalidated(pair.b.recv, TIMEOUT),
        "dat_evd_wait",
    )?;
    let expected = Some((DtoOp::ReceiveWithInvalidate as u32, key));
    same(&told, &expected, "operation and rmr_context")?;
    ok(dat.lmr_free(far.region.lmr), "dat_lmr_free")?;
    let key = bind(&pair.b, rmr, &other, pair.to)?;
    let write = Post::Write(other.under(key));
    pair.a.post(pair.from, write, &[own.local()], 3)?;
    pair.a.completes(pair.a.request, 3, SUCCESS)?;
    holds(
        other.is_all(3),
        "the destination does not hold the transferred bytes",
    )
}

fn read_to_window(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    far.fill(3);
    let rmr = expect_ok(dat.rmr_create(pair.a.pz), "dat_rmr_create")?;
    let key = bind(&pair.a, rmr, &own, pair.from)?;
    let code = dat.post_rdma_read_to_rmr(pair.from, &own.under(key), &far.remote(), 1);
    ok(code, "dat_ep_post_rdma_read_to_rmr")?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        own.is_all(3),
        "the destination does not hold the transferred bytes",
    )
}

/// `DAT_IB_MEM_PRIV_REMOTE_ATOMIC`, with all other rights.
const ATOMIC: u32 = MemPriv::REMOTE_ATOMIC.bits() | ALL;

/// Makes one atomic operation on a word of the peer; returns the result and the word's new value.
fn atomic(dat: &Dat, extension: Extension, operands: &[u64], word: u64) -> Check<(u64, u64)> {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(8, ALL)?, pair.b.memory(8, ATOMIC)?);
    far.set_word(word);
    let (local, remote) = (own.local(), far.remote());
    let mut arguments = operands.to_vec();
    arguments.extend([&raw const local as u64, 1, &raw const remote as u64, 0]);
    ok(
        dat.extension(pair.from, extension, &arguments),
        extension.name,
    )?;
    pair.a.wait(pair.a.request)?;
    Ok((own.word(), far.word()))
}

fn fetch_and_add(dat: &Dat) -> Check {
    let seen = atomic(dat, Extension::FETCH_AND_ADD, &[5], 7)?;
    same(&seen, &(7, 12), "result and new value of the remote word")
}

fn atomic_length(dat: &Dat) -> Check {
    wrong_lengths(dat, Extension::FETCH_AND_ADD, &[5])
}

fn swap_length(dat: &Dat) -> Check {
    wrong_lengths(dat, Extension::CMP_AND_SWAP, &[7, 9])
}

/// Posts an atomic operation with local memory that is too short, and with some that is too long.
fn wrong_lengths(dat: &Dat, extension: Extension, operands: &[u64]) -> Check {
    let pair = Pair::connected(dat)?;
    let far = pair.b.memory(8, ATOMIC)?;
    far.set_word(7);
    let remote = far.remote();
    for length in [4, 16] {
        let local = pair.a.memory(length, ALL)?.local();
        let mut arguments = operands.to_vec();
        arguments.extend([&raw const local as u64, 1, &raw const remote as u64, 0]);
        let code = dat.extension(pair.from, extension, &arguments);
        refused(code, Kind::LengthError, extension.name)?;
    }
    same(&far.word(), &7, "the remote word after a refused operation")
}

fn compare_and_swap(dat: &Dat) -> Check {
    let seen = atomic(dat, Extension::CMP_AND_SWAP, &[7, 9], 7)?;
    same(
        &seen,
        &(7, 9),
        "result and new value of the remote word, operand equal",
    )?;
    let seen = atomic(dat, Extension::CMP_AND_SWAP, &[7, 9], 8)?;
    same(
        &seen,
        &(8, 8),
        "result and new value of the remote word, operand different",
    )
}

fn atomic_right(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(8, ALL)?, pair.b.memory(8, ALL)?);
    far.set_word(7);
    let (local, remote) = (own.local(), far.remote());
    let arguments = [5, &raw const local as u64, 1, &raw const remote as u64, 0];
    let code = dat.extension(pair.from, Extension::FETCH_AND_ADD, &arguments);
    ok(code, Extension::FETCH_AND_ADD.name)?;
    pair.a.wait(pair.a.request)?;
    same(&far.word(), &7, "the remote word after a fetch-and-add")?;
    pair.a.ends(pair.from)
}

fn immediate_data(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    written_with_immediate(&pair)?;
    let seen = dat.evd_wait_immediate(pair.b.recv, TIMEOUT);
    let seen = expect_ok(seen, "dat_evd_wait")?;
    let expected = (ib_ext_type::RDMA_WRITE_IMMED_DATA, 0, 0xfeed);
    let what = "type, status and immediate data of the completion";
    same(&seen, &expected, what)
}

fn immediate_length(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    written_with_immediate(&pair)?;
    let length = expect_ok(dat.evd_wait_length(pair.b.recv, TIMEOUT), "dat_evd_wait")?;
    same(&length, &64, "transfered_length of the completion")
}

fn write_immediate(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let far = written_with_immediate(&pair)?;
    let received = pair.b.wait(pair.b.recv)?;
    holds(
        matches!(received, Seen::Other(_) | Seen::Dto { .. }),
        "dat_evd_wait returned no completion of the receive",
    )?;
    holds(
        far.is_all(3),
        "the destination does not hold the transferred bytes",
    )
}

/// Writes to memory of `b` with immediate data; returns the memory.
fn written_with_immediate(pair: &Pair<'_>) -> Check<Memory> {
    let dat = pair.a.dat;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(3);
    pair.b.post(pair.to, Post::Recv, &[], 2)?;
    let (local, remote) = ([own.local()], far.remote());
    let arguments = [
        1,
        local.as_ptr() as u64,
        1,
        &raw const remote as u64,
        0xfeed,
        0,
    ];
    let code = dat.extension(pair.from, Extension::WRITE_IMMED, &arguments);
    ok(code, "dat_ib_post_rdma_write_immed")?;
    pair.a.wait(pair.a.request)?;
    Ok(far)
}

fn open_query(dat: &Dat) -> Check {
    let (ia, attr) = expect_ok(dat.open_query(), "dat_ib_open_query")?;
    let side = Side::open(dat)?;
    same(&attr.max_eps, &side.attr.max_eps, "max_eps")?;
    ok(
        dat.extension(ia, Extension::CLOSE_QUERY, &[]),
        "dat_ib_close_query",
    )
}

fn close_query(dat: &Dat) -> Check {
    let (ia, _) = expect_ok(dat.open_query(), "dat_ib_open_query")?;
    let close = |ia| dat.extension(ia, Extension::CLOSE_QUERY, &[]);
    ok(close(ia), "dat_ib_close_query")?;
    refused(close(ia), Kind::InvalidHandle, "dat_ib_close_query again")
}

fn collective(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    ok(
        dat.extension(side.ia, Extension::COLLECTIVES, &[]),
        "dat_ib_collective_create_member",
    )
}
