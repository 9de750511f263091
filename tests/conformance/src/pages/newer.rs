//! What 2.0 has more than 1.2, the IB extension included.

use dat_core::error::Kind;
use dat_core::event::DtoOp;
use dat_core::flags::{EvdFlags, MemPriv};

use super::statements;
use crate::dat::{Dat, Extension, Post, readable};
use crate::event::{REMOTE_ACCESS, SUCCESS, Seen};
use crate::fixture::{Memory, PATIENCE, Pair, Side, made};
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    since V2_0;
    "dat_cno_fd_create": "The descriptor is readable while an EVD has an event that nobody was told of." => descriptor;
    "dat_cno_trigger": "It answers the EVD that made the descriptor readable, then DAT_QUEUE_EMPTY." => trigger;
    "dat_ia_ha_related": "It tells whether a provider can stand in for the IA; an IA cannot for itself." => related;
    "dat_rmr_create_for_ep": "It is a window that can be bound on the endpoint." => window_for_ep;
    "dat_ep_post_send_with_invalidate": "The peer's window is closed when the message has arrived." => invalidates;
    "dat_ep_post_send_with_invalidate": "The receive's completion tells which; its LMR is free, and the RMR can be bound again." => tells_invalidated;
    "dat_ep_post_rdma_read_to_rmr": "The bytes of the peer's memory are in the window's." => read_to_window;
    "dat_ib_post_fetch_and_add": "The peer's word is what it was and the operand, and we have what it was." => fetch_and_add;
    "dat_ib_post_cmp_and_swap": "The peer's word is replaced if it is what was expected." => compare_and_swap;
    "dat_ib_post_rdma_write_immed": "The bytes are there, and the peer's receive completes." => write_immediate;
    "dat_ib_open_query": "It tells an IA's attributes without dat_ia_open." => open_query;
    "dat_ib_close_query": "The handle of dat_ib_open_query is gone." => close_query;
    "dat_ib_collective_*": "A member of a collective can be created." => collective;
}

const ALL: u32 = MemPriv::ALL.bits();

fn descriptor(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (fd, cno) = made(dat.cno_fd_create(side.ia), "dat_cno_fd_create")?;
    let evd = dat.evd_create(side.ia, 8, cno, EvdFlags::SOFTWARE.bits());
    let evd = made(evd, "dat_evd_create")?;
    holds(!readable(fd), "readable without an event")?;
    ok(dat.evd_post_se(evd, 1), "dat_evd_post_se")?;
    holds(readable(fd), "not readable with an event")?;
    same(&dat.cno_wait(cno, PATIENCE), &Ok(evd), "EVD")?;
    holds(!readable(fd), "readable after dat_cno_wait told of it")
}

fn trigger(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (fd, cno) = made(dat.cno_fd_create(side.ia), "dat_cno_fd_create")?;
    let evd = dat.evd_create(side.ia, 8, cno, EvdFlags::SOFTWARE.bits());
    let evd = made(evd, "dat_evd_create")?;
    ok(dat.evd_post_se(evd, 1), "dat_evd_post_se")?;
    same(&dat.cno_trigger(cno), &Ok(evd), "EVD")?;
    holds(!readable(fd), "readable after dat_cno_trigger told of it")?;
    let empty = dat.cno_trigger(cno).err().unwrap_or(0);
    refused(empty, Kind::QueueEmpty, "dat_cno_trigger again")
}

fn related(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let related = made(dat.ia_ha_related(side.ia), "dat_ia_ha_related")?;
    holds(!related, "an IA stands in for itself")
}

fn bind(side: &Side<'_>, rmr: usize, memory: &Memory, ep: usize) -> Check<u32> {
    let rights = MemPriv::REMOTE_WRITE.bits();
    let lmr = memory.region.lmr;
    let key = side
        .dat
        .rmr_bind(rmr, lmr, &memory.local(), rights, ep, 100);
    let key = made(key, "dat_rmr_bind")?;
    side.completes(side.request, 100, SUCCESS)?;
    Ok(key)
}

fn window_for_ep(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(3);
    let rmr = made(dat.rmr_create_for_ep(pair.b.pz), "dat_rmr_create_for_ep")?;
    let key = bind(&pair.b, rmr, &far, pair.to)?;
    let write = Post::Write(far.under(key));
    pair.a.post(pair.from, write, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(far.is_all(3), "the bytes are not there")
}

/// A window of `b` that the message of `a` closed; the receive is not yet taken.
fn closed<'a>(pair: &Pair<'a>, far: &Memory) -> Check<(usize, u32)> {
    let dat = pair.a.dat;
    let rmr = made(dat.rmr_create_for_ep(pair.b.pz), "dat_rmr_create_for_ep")?;
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
    holds(far.is_all(0), "bytes arrived through the closed window")
}

fn tells_invalidated(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    let other = pair.b.memory(64, ALL)?;
    own.fill(3);
    let (rmr, key) = closed(&pair, &far)?;
    let told = made(
        dat.evd_wait_invalidated(pair.b.recv, PATIENCE),
        "dat_evd_wait",
    )?;
    let expected = Some((DtoOp::ReceiveWithInvalidate as u32, key));
    same(&told, &expected, "operation and rmr_context")?;
    ok(dat.lmr_free(far.region.lmr), "dat_lmr_free")?;
    let key = bind(&pair.b, rmr, &other, pair.to)?;
    let write = Post::Write(other.under(key));
    pair.a.post(pair.from, write, &[own.local()], 3)?;
    pair.a.completes(pair.a.request, 3, SUCCESS)?;
    holds(other.is_all(3), "the bytes are not there")
}

fn read_to_window(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    far.fill(3);
    let rmr = made(dat.rmr_create(pair.a.pz), "dat_rmr_create")?;
    let key = bind(&pair.a, rmr, &own, pair.from)?;
    let code = dat.post_rdma_read_to_rmr(pair.from, &own.under(key), &far.remote(), 1);
    ok(code, "dat_ep_post_rdma_read_to_rmr")?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(own.is_all(3), "the bytes are not there")
}

/// `DAT_IB_MEM_PRIV_REMOTE_ATOMIC`, and all others.
const ATOMIC: u32 = MemPriv::REMOTE_ATOMIC.bits() | ALL;

/// One atomic operation on a word of the peer's: what we got, and what is there.
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
    same(&seen, &(7, 12), "what it was, and what it is")
}

fn compare_and_swap(dat: &Dat) -> Check {
    let seen = atomic(dat, Extension::CMP_AND_SWAP, &[7, 9], 7)?;
    same(&seen, &(7, 9), "what it was, and what it is, as expected")?;
    let seen = atomic(dat, Extension::CMP_AND_SWAP, &[7, 9], 8)?;
    same(&seen, &(8, 8), "what it was, and what it is, otherwise")
}

fn write_immediate(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
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
    let received = pair.b.wait(pair.b.recv)?;
    holds(
        matches!(received, Seen::Other(_) | Seen::Dto { .. }),
        "no completion of the receive",
    )?;
    holds(far.is_all(3), "the bytes are not there")
}

fn open_query(dat: &Dat) -> Check {
    let (ia, attr) = made(dat.open_query(), "dat_ib_open_query")?;
    let side = Side::open(dat)?;
    same(&attr.max_eps, &side.attr.max_eps, "max_eps")?;
    ok(
        dat.extension(ia, Extension::CLOSE_QUERY, &[]),
        "dat_ib_close_query",
    )
}

fn close_query(dat: &Dat) -> Check {
    let (ia, _) = made(dat.open_query(), "dat_ib_open_query")?;
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
