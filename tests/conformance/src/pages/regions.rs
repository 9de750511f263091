//! dat_lmr_free, dat_lmr_create, dat_pz_free.

use std::thread;
use std::time::Duration;

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::flags::MemPriv;

use super::statements;
use crate::dat::{Dat, Post, Region, Source};
use crate::event::{LOCAL_PROTECTION, REMOTE_ACCESS, SUCCESS};
use crate::fixture::{Memory, Pair, Side, expect_ok};
use crate::names::Status;
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    "dat_lmr_free": "An instance of an LMR is destroyed." => destroys;
    "dat_lmr_free": "An LMR that an RMR uses cannot be destroyed: DAT_INVALID_STATE." => in_use;
    "dat_lmr_free": "The memory itself is left alone." => memory_stays;
    "dat_lmr_free": "The handle of a destroyed LMR fails in any later operation." => handle_fails;
    "dat_lmr_free": "A DTO that uses a destroyed LMR fails with a protection violation." => local_use_fails;
    "dat_lmr_free": "A peer that uses the rmr_context of a destroyed LMR gets an error, and the connection breaks." => remote_use_breaks;
    "dat_lmr_free": "An RDMA operation that was complete before the call stays complete." => earlier_use_succeeds;
    "dat_lmr_free": "Once it has returned, writes of a peer that are under way no longer touch the memory." => no_late_write;
    "dat_lmr_free": "An invalid handle is DAT_INVALID_HANDLE." => invalid_handle;
    "dat_lmr_create": "Remote access is refused unless the privileges allow it." => no_remote_right;
    "dat_lmr_create": "Remote reading does not imply remote writing." => read_is_not_write;
    "dat_lmr_create": "A send or write may take bytes from any LMR of its PZ, also without the local read privilege." => local_read_is_implied;
    "dat_lmr_create": "A local write needs the local write privilege." => local_write_right;
    "dat_lmr_create": "A length of 0 is refused: DAT_INVALID_PARAMETER, or DAT_LENGTH_ERROR as DAPL has it." => no_length;
    "dat_lmr_create": "An LMR of type DAT_MEM_TYPE_LMR covers the memory of its base LMR, which cannot be freed before it." => on_lmr;
    "dat_lmr_create": "Shared memory has a name of 40 bytes, compared whole: one name, one length." => shared_name;
    "dat_lmr_create": "Without a remote privilege there is no rmr_context." => no_remote_key;
    "dat_lmr_create": "Undefined privileges are DAT_INVALID_PARAMETER." => unknown_privileges;
    "dat_lmr_create": "A PZ of another IA is DAT_INVALID_HANDLE." => zone_of_other_ia;
    "dat_lmr_sync_rdma_read": "Pieces of LMRs are made visible to the peer's reads." => sync_read;
    "dat_lmr_sync_rdma_write": "Pieces of LMRs show what the peer wrote." => sync_write;
    "dat_lmr_sync_rdma_write": "A piece beyond its LMR is DAT_INVALID_PARAMETER." => sync_beyond;
    "dat_pz_create": "It belongs to the IA, and objects can be created in it." => zone;
    "dat_pz_query": "The query returns the IA." => zone_query;
    "dat_lmr_query": "The query returns the parameters that the LMR was created with." => query;
    "dat_pz_free": "A PZ in use by an endpoint or an LMR cannot be destroyed: DAT_INVALID_STATE." => zone_in_use;
    "dat_pz_free": "A destroyed PZ fails in any later operation." => zone_handle_fails;
}

const ALL: u32 = MemPriv::ALL.bits();

/// Writes from `a` into memory of `b`, and checks the completion.
fn write(pair: &Pair<'_>, own: &Memory, far: &Memory, cookie: u64, status: Status) -> Check {
    let what = Post::Write(far.remote());
    pair.a.post(pair.from, what, &[own.local()], cookie)?;
    pair.a.completes(pair.a.request, cookie, status)
}

fn broken_on_both_sides(pair: &Pair<'_>) -> Check {
    pair.a.ends(pair.from)?;
    pair.b.ends(pair.to)
}

fn destroys(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(64, ALL)?;
    ok(dat.lmr_free(memory.region.lmr), "dat_lmr_free")
}

fn in_use(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let memory = pair.a.memory(64, ALL)?;
    let lmr = memory.region.lmr;
    let rmr = expect_ok(dat.rmr_create(pair.a.pz), "dat_rmr_create")?;
    let rights = MemPriv::REMOTE_READ.bits();
    let bound = dat.rmr_bind(rmr, lmr, &memory.local(), rights, pair.from, 1);
    expect_ok(bound, "dat_rmr_bind")?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    refused(dat.lmr_free(lmr), Kind::InvalidState, "dat_lmr_free")?;
    ok(dat.rmr_free(rmr), "dat_rmr_free")?;
    ok(dat.lmr_free(lmr), "dat_lmr_free after dat_rmr_free")
}

fn memory_stays(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(64, ALL)?;
    memory.fill(7);
    ok(dat.lmr_free(memory.region.lmr), "dat_lmr_free")?;
    holds(memory.is_all(7), "dat_lmr_free changed the memory")
}

fn handle_fails(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let lmr = side.memory(64, ALL)?.region.lmr;
    ok(dat.lmr_free(lmr), "dat_lmr_free")?;
    refused(dat.lmr_free(lmr), Kind::InvalidHandle, "dat_lmr_free")?;
    let queried = dat.lmr_query(lmr).err().unwrap_or(0);
    refused(queried, Kind::InvalidHandle, "dat_lmr_query")
}

fn local_use_fails(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let own = pair.a.memory(64, ALL)?;
    pair.b.post(pair.to, Post::Recv, &[], 2)?;
    ok(dat.lmr_free(own.region.lmr), "dat_lmr_free")?;
    let code = dat.post(pair.from, Post::Send, &[own.local()], 1, 0);
    if code != 0 {
        return refused(code, Kind::ProtectionViolation, "dat_ep_post_send");
    }
    pair.a.completes(pair.a.request, 1, LOCAL_PROTECTION)
}

fn remote_use_breaks(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(9);
    ok(dat.lmr_free(far.region.lmr), "dat_lmr_free")?;
    write(&pair, &own, &far, 1, REMOTE_ACCESS)?;
    holds(
        far.is_all(0),
        "the memory changed after dat_lmr_free returned",
    )?;
    broken_on_both_sides(&pair)
}

fn earlier_use_succeeds(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(9);
    write(&pair, &own, &far, 1, SUCCESS)?;
    ok(dat.lmr_free(far.region.lmr), "dat_lmr_free")?;
    holds(
        far.is_all(9),
        "the destination does not hold the transferred bytes",
    )?;
    pair.a.state(pair.from, EpState::Connected)
}

fn no_late_write(dat: &Dat) -> Check {
    const WRITES: usize = 8;
    const BYTES: usize = 1 << 16;
    // Time for a write that has passed its check.
    const LATE: Duration = Duration::from_millis(5);
    for round in 0..16 {
        let pair = Pair::connected(dat)?;
        let own = pair.a.memory(BYTES, ALL)?;
        let far = pair.b.memory(WRITES * BYTES, ALL)?;
        own.fill(9);
        for number in 0..WRITES {
            let mut part = far.remote();
            part.virtual_address += (number * BYTES) as u64;
            part.segment_length = BYTES as u32;
            pair.a
                .post(pair.from, Post::Write(part), &[own.local()], number as u64)?;
        }
        // Every second time while they are executed: the first is complete. Otherwise the peer may not have begun.
        let mut left = WRITES;
        if round % 2 == 1 {
            pair.a.wait(pair.a.request)?;
            left -= 1;
        }
        ok(dat.lmr_free(far.region.lmr), "dat_lmr_free")?;
        // Of each write two bytes, which are read sooner than the next write is copied.
        let edges = |number| [number * BYTES, (number + 1) * BYTES - 1].map(|at| far.byte(at));
        let seen: [_; WRITES] = std::array::from_fn(edges);
        // Their results do not matter: none may still write.
        for _ in 0..left {
            pair.a.wait(pair.a.request)?;
        }
        thread::sleep(LATE);
        same(
            &std::array::from_fn(edges),
            &seen,
            "the memory changed after dat_lmr_free returned: first and last byte of eight writes, later and at once",
        )?;
    }
    Ok(())
}

fn invalid_handle(dat: &Dat) -> Check {
    refused(dat.lmr_free(0), Kind::InvalidHandle, "dat_lmr_free(NULL)")
}

fn no_remote_right(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let own = pair.a.memory(64, ALL)?;
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let far = pair.b.memory(64, local.bits())?;
    own.fill(9);
    write(&pair, &own, &far, 1, REMOTE_ACCESS)?;
    holds(
        far.is_all(0),
        "the memory changed although the access right is missing",
    )?;
    broken_on_both_sides(&pair)
}

fn read_is_not_write(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let own = pair.a.memory(64, ALL)?;
    let readable = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE | MemPriv::REMOTE_READ;
    let far = pair.b.memory(64, readable.bits())?;
    far.fill(3);
    let read = Post::Read(far.remote());
    pair.a.post(pair.from, read, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        own.is_all(3),
        "the local memory does not hold the bytes read",
    )?;
    write(&pair, &own, &far, 2, REMOTE_ACCESS)
}

fn local_read_is_implied(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let writable = pair.a.memory(64, MemPriv::LOCAL_WRITE.bits())?;
    let without = pair.a.memory(64, MemPriv::REMOTE_READ.bits())?;
    let far = pair.b.memory(64, ALL)?;
    for (cookie, own) in [(1, writable), (2, without)] {
        own.fill(cookie as u8);
        write(&pair, &own, &far, cookie, SUCCESS)?;
        holds(
            far.is_all(cookie as u8),
            "the peer does not have the bytes of memory without DAT_MEM_PRIV_LOCAL_READ_FLAG",
        )?;
    }
    Ok(())
}

fn local_write_right(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let own = pair.a.memory(64, MemPriv::LOCAL_READ.bits())?;
    let far = pair.b.memory(64, ALL)?;
    far.fill(3);
    let read = Post::Read(far.remote());
    let code = dat.post(pair.from, read, &[own.local()], 1, 0);
    if code != 0 {
        return refused(code, Kind::PrivilegesViolation, "dat_ep_post_rdma_read");
    }
    pair.a.completes(pair.a.request, 1, LOCAL_PROTECTION)?;
    holds(
        own.is_all(0),
        "the memory changed although the access right is missing",
    )
}

fn no_length(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let code = dat
        .lmr_create(side.ia, Source::Virtual(&[]), side.pz, ALL)
        .err();
    let (code, call) = (code.unwrap_or(0), "dat_lmr_create of 0 bytes");
    refused(code, Kind::LengthError, call).or_else(|_| refused(code, Kind::InvalidParameter, call))
}

fn query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(64, ALL)?;
    let param = expect_ok(dat.lmr_query(memory.region.lmr), "dat_lmr_query")?;
    same(&param.ia_handle, &side.ia, "ia_handle")?;
    same(&param.pz_handle, &side.pz, "pz_handle")?;
    same(&(param.mem_priv & ALL), &ALL, "mem_priv")?;
    same(&param.length, &64, "length")?;
    let keys = (param.lmr_context, param.rmr_context);
    let region = memory.region;
    same(&keys, &(region.lmr_context, region.rmr_context), "contexts")
}

fn zone_in_use(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    refused(dat.pz_free(side.pz), Kind::InvalidState, "dat_pz_free, EP")?;
    ok(dat.ep_free(ep), "dat_ep_free")?;
    let memory = side.memory(8, ALL)?;
    refused(dat.pz_free(side.pz), Kind::InvalidState, "dat_pz_free, LMR")?;
    ok(dat.lmr_free(memory.region.lmr), "dat_lmr_free")?;
    ok(dat.pz_free(side.pz), "dat_pz_free")
}

fn zone_handle_fails(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    ok(dat.pz_free(side.pz), "dat_pz_free")?;
    refused(dat.pz_free(side.pz), Kind::InvalidHandle, "dat_pz_free")?;
    let queried = dat.pz_query(side.pz).err().unwrap_or(0);
    refused(queried, Kind::InvalidHandle, "dat_pz_query")
}

fn create(side: &Side<'_>, source: Source, privileges: u32) -> Result<Region, u32> {
    side.dat.lmr_create(side.ia, source, side.pz, privileges)
}

fn on_lmr(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, base) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(6);
    let upper = create(&pair.b, Source::Lmr(base.region.lmr), ALL);
    let upper = expect_ok(upper, "dat_lmr_create, DAT_MEM_TYPE_LMR")?;
    let code = dat.lmr_free(base.region.lmr);
    refused(code, Kind::InvalidState, "dat_lmr_free of the base")?;
    let there = Post::Write(base.under(upper.rmr_context));
    pair.a.post(pair.from, there, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        base.is_all(6),
        "the destination does not hold the transferred bytes",
    )?;
    ok(dat.lmr_free(upper.lmr), "dat_lmr_free")?;
    ok(dat.lmr_free(base.region.lmr), "dat_lmr_free of the base")
}

fn shared_name(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(64, ALL)?.bytes();
    // The name is unique: it holds an address of this process, and no other statement leaks this memory.
    let mut name = [7; 40];
    name[..8].copy_from_slice(&(memory.as_ptr() as u64).to_ne_bytes());
    let region = create(&side, Source::Shared(memory, name), ALL);
    let region = expect_ok(region, "dat_lmr_create, DAT_MEM_TYPE_SHARED_VIRTUAL")?;
    let again = create(&side, Source::Shared(memory, name), ALL);
    expect_ok(again, "dat_lmr_create of the same memory")?;
    let half = create(&side, Source::Shared(&memory[..32], name), ALL).err();
    refused(
        half.unwrap_or(0),
        Kind::InvalidParameter,
        "dat_lmr_create of another length by the same name",
    )?;
    name[39] = 8;
    let other = create(&side, Source::Shared(&memory[..32], name), ALL);
    expect_ok(
        other,
        "dat_lmr_create by a name that differs in its last byte",
    )?;
    same(
        &expect_ok(dat.lmr_query(region.lmr), "dat_lmr_query")?.mem_type,
        &2,
        "mem_type",
    )
}

fn no_remote_key(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    let memory = side.memory(64, local.bits())?;
    let queried = expect_ok(dat.lmr_query(memory.region.lmr), "dat_lmr_query")?;
    same(
        &(memory.region.rmr_context, queried.rmr_context),
        &(0, 0),
        "rmr_context",
    )
}

fn unknown_privileges(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(64, ALL)?.bytes();
    let code = create(&side, Source::Virtual(memory), 0x8000_0000).err();
    refused(
        code.unwrap_or(0),
        Kind::InvalidParameter,
        "dat_lmr_create with privileges 0x80000000",
    )
}

fn zone_of_other_ia(dat: &Dat) -> Check {
    let (side, other) = (Side::open(dat)?, Side::open(dat)?);
    let memory = side.memory(64, ALL)?.bytes();
    let code = dat
        .lmr_create(side.ia, Source::Virtual(memory), other.pz, ALL)
        .err();
    refused(code.unwrap_or(0), Kind::InvalidHandle, "dat_lmr_create")
}

fn sync_read(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    far.fill(2);
    let code = dat.lmr_sync(pair.b.ia, &[far.local()], false);
    ok(code, "dat_lmr_sync_rdma_read")?;
    let read = Post::Read(far.remote());
    pair.a.post(pair.from, read, &[own.local()], 1)?;
    pair.a.completes(pair.a.request, 1, SUCCESS)?;
    holds(
        own.is_all(2),
        "the destination does not hold the transferred bytes",
    )
}

fn sync_write(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, ALL)?);
    own.fill(2);
    write(&pair, &own, &far, 1, SUCCESS)?;
    let code = dat.lmr_sync(pair.b.ia, &[far.local()], true);
    ok(code, "dat_lmr_sync_rdma_write")?;
    holds(
        far.is_all(2),
        "the destination does not hold the transferred bytes",
    )
}

fn sync_beyond(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let mut piece = side.memory(64, ALL)?.local();
    piece.segment_length += 1;
    for write in [false, true] {
        let code = dat.lmr_sync(side.ia, &[piece], write);
        refused(code, Kind::InvalidParameter, "dat_lmr_sync_rdma")?;
    }
    Ok(())
}

fn zone(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let zone = expect_ok(dat.pz_create(side.ia), "dat_pz_create")?;
    holds(
        zone != side.pz,
        "dat_pz_create returned the same handle twice",
    )?;
    let memory = side.memory(64, ALL)?.bytes();
    let region = dat.lmr_create(side.ia, Source::Virtual(memory), zone, ALL);
    let region = expect_ok(region, "dat_lmr_create in the new PZ")?;
    ok(dat.lmr_free(region.lmr), "dat_lmr_free")?;
    ok(dat.pz_free(zone), "dat_pz_free")
}

fn zone_query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let seen = expect_ok(dat.pz_query(side.pz), "dat_pz_query")?;
    same(&seen.ia_handle, &side.ia, "IA")
}
