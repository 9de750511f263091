//! Access rights and protection zones: which accesses to memory are granted, and what a refusal does to a connection.

use dat_abi::v2_0::types::DatLmrTriplet;
use dat_core::error::{Error, Kind};
use dat_core::flags::MemPriv;

use super::{NOT_INLINE, statements};
use crate::dat::{Dat, Post};
use crate::event::{FLUSHED, REMOTE_ACCESS, SUCCESS};
use crate::fixture::{Memory, Pair, Side, expect_ok};
use crate::verdict::{Check, broken, holds, ok, same};

statements! {
    "dat_lmr_create": "A peer's RDMA Read needs the remote read privilege: DAT_DTO_ERR_REMOTE_ACCESS, and both sides end." => read_right;
    "dat_lmr_create": "A receive into memory without the local write privilege fails, and the memory stays as it is." => receive_right;
    "dat_pz_create": "A key opens nothing to a peer whose connection ends at an endpoint of another PZ: DAT_DTO_ERR_REMOTE_ACCESS." => zone_of_peer;
    "dat_pz_create": "A send, a write, a read or a receive of an endpoint fails with memory of another PZ." => own_zone;
    "dat_ep_post_rdma_write": "After a refused access the peer executes no later request of the connection." => nothing_follows;
}

const ALL: u32 = MemPriv::ALL.bits();

/// Checks that the request in `what` is refused by the peer, and that the connection ends on both sides.
fn refused_at_both(pair: &Pair<'_>, own: &Memory, what: Post, name: &str) -> Check {
    pair.a.post(pair.from, what, &[own.local()], 1)?;
    let seen = pair.a.result(pair.a.request, 1, name)?;
    same(&seen, &REMOTE_ACCESS, &format!("status of {name}"))?;
    pair.a.ends(pair.from)?;
    pair.b.ends(pair.to)
}

fn read_right(dat: &Dat) -> Check {
    let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
    for rights in [local, local | MemPriv::REMOTE_WRITE] {
        let pair = Pair::connected(dat)?;
        let (own, far) = (pair.a.memory(64, ALL)?, pair.b.memory(64, rights.bits())?);
        far.fill(3);
        // Without any remote right there is no rmr_context, and then the other context is the one that a peer may try.
        let key = match far.region.rmr_context {
            0 => far.region.lmr_context,
            key => key,
        };
        let read = Post::Read(far.under(key));
        let name = "an RDMA Read of memory without the remote read privilege";
        let refused = refused_at_both(&pair, &own, read, name);
        holds(
            own.is_all(0),
            "an RDMA Read without the remote read privilege has brought the peer's bytes",
        )?;
        refused?;
    }
    Ok(())
}

/// Posts `what` with a segment that it may not use; it is refused, or completes as failed. `name` says what it is.
pub(super) fn fails(
    side: &Side<'_>,
    ep: usize,
    what: Post,
    segment: DatLmrTriplet,
    name: &str,
) -> Check<bool> {
    let code = side.dat.post(ep, what, &[segment], 1, 0);
    match Error::from_code(code).map(Error::kind) {
        None => Ok(false),
        Some(Some(Kind::PrivilegesViolation | Kind::ProtectionViolation)) => Ok(true),
        Some(_) => ok(code, &format!("the post of {name}")).map(|()| true),
    }
}

/// Checks that the request with cookie 1 failed by itself, neither with success nor as part of a disconnect.
pub(super) fn failed(side: &Side<'_>, evd: usize, name: &str) -> Check {
    let status = side.result(evd, 1, name)?;
    holds(
        status != SUCCESS && status != FLUSHED,
        &format!("{name} completed with {status:?}; expected DAT_DTO_ERR_LOCAL_PROTECTION"),
    )
}

fn receive_right(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let source = pair.a.memory(64, ALL)?;
    source.fill(5);
    let readable = pair.b.memory(64, MemPriv::LOCAL_READ.bits())?;
    let name = "a receive into memory without the local write privilege";
    if fails(&pair.b, pair.to, Post::Recv, readable.local(), name)? {
        return Ok(());
    }
    pair.a.post(pair.from, Post::Send, &[source.local()], 2)?;
    let result = failed(&pair.b, pair.b.recv, name);
    holds(
        readable.is_all(0),
        &format!("{name} has changed the memory"),
    )?;
    result?;
    let status = pair
        .a
        .result(pair.a.request, 2, "the send to that receive")?;
    holds(
        status != SUCCESS,
        &format!("the send to {name} completed with success"),
    )?;
    pair.a.ends(pair.from)?;
    pair.b.ends(pair.to)
}

/// Registers memory of `side` in a PZ that is not the one of its endpoints.
fn elsewhere(side: &Side<'_>) -> Check<Memory> {
    let zone = expect_ok(side.dat.pz_create(side.ia), "dat_pz_create")?;
    side.memory_in(zone, NOT_INLINE, ALL)
}

fn zone_of_peer(dat: &Dat) -> Check {
    for write in [true, false] {
        let pair = Pair::connected(dat)?;
        let (own, far) = (pair.a.memory(NOT_INLINE, ALL)?, elsewhere(&pair.b)?);
        own.fill(4);
        far.fill(3);
        let (what, name) = if write {
            let name = "an RDMA Write to memory of another PZ than the peer's endpoint";
            (Post::Write(far.remote()), name)
        } else {
            let name = "an RDMA Read of memory of another PZ than the peer's endpoint";
            (Post::Read(far.remote()), name)
        };
        let refused = refused_at_both(&pair, &own, what, name);
        holds(
            own.is_all(4) && far.is_all(3),
            &format!("{name} has transferred bytes"),
        )?;
        refused?;
    }
    Ok(())
}

fn own_zone(dat: &Dat) -> Check {
    for kind in ["a send", "an RDMA Write", "an RDMA Read", "a receive"] {
        let pair = Pair::connected(dat)?;
        let (own, far) = (elsewhere(&pair.a)?, pair.b.memory(NOT_INLINE, ALL)?);
        own.fill(4);
        far.fill(3);
        let receives = kind == "a receive";
        let what = match kind {
            "a send" => Post::Send,
            "an RDMA Write" => Post::Write(far.remote()),
            "an RDMA Read" => Post::Read(far.remote()),
            _ => Post::Recv,
        };
        let name = format!("{kind} with memory of another PZ than its endpoint's");
        // The peer of a send has a receive for it.
        pair.b.post(pair.to, Post::Recv, &[far.local()], 2)?;
        if fails(&pair.a, pair.from, what, own.local(), &name)? {
            continue;
        }
        let evd = if receives {
            pair.b.post(pair.to, Post::Send, &[far.local()], 3)?;
            pair.a.recv
        } else {
            pair.a.request
        };
        let result = failed(&pair.a, evd, &name);
        holds(
            own.is_all(4) && far.is_all(3),
            &format!("{name} has transferred bytes"),
        )?;
        result?;
    }
    Ok(())
}

fn nothing_follows(dat: &Dat) -> Check {
    for _ in 0..8 {
        let pair = Pair::connected(dat)?;
        let own = pair.a.memory(64, ALL)?;
        let readable = MemPriv::LOCAL_READ | MemPriv::REMOTE_READ;
        let (shut, open) = (pair.b.memory(64, readable.bits())?, pair.b.memory(64, ALL)?);
        own.fill(9);
        pair.b.post(pair.to, Post::Recv, &[], 10)?;
        for (cookie, what) in [
            (1, Post::Write(shut.remote())),
            (2, Post::Write(open.remote())),
        ] {
            pair.a.post(pair.from, what, &[own.local()], cookie)?;
        }
        pair.a.post(pair.from, Post::Send, &[], 3)?;
        let expected = [(1, REMOTE_ACCESS), (2, FLUSHED), (3, FLUSHED)];
        for (cookie, status) in expected {
            let seen = pair.a.result(pair.a.request, cookie, "a request")?;
            same(
                &seen,
                &status,
                &format!("status of request {cookie} of three, where the peer refuses the first"),
            )?;
        }
        let seen = pair.b.result(pair.b.recv, 10, "the peer's receive")?;
        if seen == SUCCESS {
            return broken(
                "the peer's receive has a message that was sent after a refused RDMA Write: the side that refuses must break the connection too",
            );
        }
        holds(
            open.is_all(0),
            "the peer's memory has the bytes of a write after a refused one: the side that refuses must break the connection too",
        )?;
        pair.a.ends(pair.from)?;
        pair.b.ends(pair.to)?;
    }
    Ok(())
}
