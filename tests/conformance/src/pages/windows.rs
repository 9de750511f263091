//! dat_rmr_free, dat_rmr_bind.

use std::time::Duration;

use dat_core::ep::EpState;
use dat_core::error::Kind;
use dat_core::event::ConnectionEvent;
use dat_core::flags::MemPriv;

use super::statements;
use crate::dat::{Dat, Post};
use crate::event::{FLUSHED, REMOTE_ACCESS, SUCCESS, Seen};
use crate::fixture::{ABRUPT, Memory, Pair, Side, expect_ok};
use crate::names::Status;
use crate::verdict::{Check, broken, holds, ok, refused, same};

statements! {
    "dat_rmr_create": "It is unbound, and belongs to the PZ and its IA." => unbound;
    "dat_rmr_query": "The query returns the range that the RMR is bound to." => bound_query;
    "dat_rmr_free": "An unbound RMR is destroyed." => destroys_unbound;
    "dat_rmr_free": "The handle of a destroyed RMR fails in any later operation." => handle_fails;
    "dat_rmr_free": "A peer that uses the rmr_context of a destroyed RMR gets an error, and the connection breaks." => use_after_free_breaks;
    "dat_rmr_free": "A bound RMR is unbound and freed: its LMR is free again." => frees_bound;
    "dat_rmr_free": "An RDMA operation that was complete before the call stays complete." => earlier_use_succeeds;
    "dat_rmr_free": "An invalid handle is DAT_INVALID_HANDLE." => invalid_handle;
    "dat_rmr_bind": "The completion names the RMR and the cookie." => completion;
    "dat_rmr_bind": "A peer has the access rights of the bind, and no others." => rights;
    "dat_rmr_bind": "A new bind revokes the former one: the former rmr_context fails." => rebind;
    "dat_rmr_bind": "A bind of length 0 unbinds." => unbind;
    "dat_rmr_bind": "A range beyond the LMR is DAT_INVALID_PARAMETER." => beyond;
    "dat_rmr_bind": "A remote write window needs the LMR's local write privilege: DAT_PRIVILEGES_VIOLATION." => privileges;
    "dat_rmr_bind": "It completes behind the requests that were posted before it." => in_order;
    "dat_rmr_bind": "After a flushed bind the memory can be freed, is closed to peers, and the window can be bound." => flushed;
    "dat_rmr_bind": "A bind on an endpoint that is not connected is DAT_INVALID_STATE." => unconnected;
}

const WRITE: u32 = MemPriv::REMOTE_WRITE.bits();

/// A connected pair, memory of either side, and a window of `b` on its memory, bound for writing.
struct Bound<'a> {
    pair: Pair<'a>,
    own: Memory,
    far: Memory,
    rmr: usize,
    key: u32,
}

impl<'a> Bound<'a> {
    fn new(dat: &'a Dat) -> Check<Self> {
        let pair = Pair::connected(dat)?;
        let own = pair.a.memory(64, MemPriv::ALL.bits())?;
        let local = MemPriv::LOCAL_READ | MemPriv::LOCAL_WRITE;
        let far = pair.b.memory(64, local.bits())?;
        own.fill(5);
        let rmr = expect_ok(dat.rmr_create(pair.b.pz), "dat_rmr_create")?;
        let mut bound = Self {
            pair,
            own,
            far,
            rmr,
            key: 0,
        };
        bound.key = bound.bind(100)?;
        Ok(bound)
    }

    fn bind(&self, cookie: u64) -> Check<u32> {
        let (b, far) = (&self.pair.b, &self.far);
        let lmr = far.region.lmr;
        let bound = b
            .dat
            .rmr_bind(self.rmr, lmr, &far.local(), WRITE, self.pair.to, cookie);
        let key = expect_ok(bound, "dat_rmr_bind")?;
        b.completes(b.request, cookie, SUCCESS)?;
        Ok(key)
    }

    fn write(&self, key: u32, status: Status) -> Check {
        let a = &self.pair.a;
        let what = Post::Write(self.far.under(key));
        a.post(self.pair.from, what, &[self.own.local()], 1)?;
        a.completes(a.request, 1, status)
    }

    /// Checks that a write with `key` fails, changes nothing, and breaks the connection on both sides.
    fn is_closed(&self, key: u32) -> Check {
        self.far.fill(0);
        self.write(key, REMOTE_ACCESS)?;
        holds(
            self.far.is_all(0),
            "the memory changed through a closed window",
        )?;
        self.pair.a.ends(self.pair.from)?;
        self.pair.b.ends(self.pair.to)
    }
}

fn destroys_unbound(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let rmr = expect_ok(dat.rmr_create(side.pz), "dat_rmr_create")?;
    ok(dat.rmr_free(rmr), "dat_rmr_free")
}

fn handle_fails(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let rmr = expect_ok(dat.rmr_create(side.pz), "dat_rmr_create")?;
    ok(dat.rmr_free(rmr), "dat_rmr_free")?;
    refused(dat.rmr_free(rmr), Kind::InvalidHandle, "dat_rmr_free")?;
    let queried = dat.rmr_query(rmr).err().unwrap_or(0);
    refused(queried, Kind::InvalidHandle, "dat_rmr_query")
}

fn use_after_free_breaks(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    ok(dat.rmr_free(bound.rmr), "dat_rmr_free")?;
    bound.is_closed(bound.key)
}

fn frees_bound(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let lmr = bound.far.region.lmr;
    refused(dat.lmr_free(lmr), Kind::InvalidState, "dat_lmr_free")?;
    ok(dat.rmr_free(bound.rmr), "dat_rmr_free of a bound RMR")?;
    ok(dat.lmr_free(lmr), "dat_lmr_free")
}

fn earlier_use_succeeds(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    bound.write(bound.key, SUCCESS)?;
    ok(dat.rmr_free(bound.rmr), "dat_rmr_free")?;
    holds(
        bound.far.is_all(5),
        "the destination does not hold the transferred bytes",
    )?;
    bound.pair.a.state(bound.pair.from, EpState::Connected)
}

fn invalid_handle(dat: &Dat) -> Check {
    refused(dat.rmr_free(0), Kind::InvalidHandle, "dat_rmr_free(NULL)")
}

fn completion(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let (b, far) = (&bound.pair.b, &bound.far);
    let again = dat.rmr_bind(
        bound.rmr,
        far.region.lmr,
        &far.local(),
        WRITE,
        bound.pair.to,
        77,
    );
    expect_ok(again, "dat_rmr_bind")?;
    let expected = Seen::Bind {
        rmr: bound.rmr,
        cookie: 77,
        status: SUCCESS,
    };
    same(&b.wait(b.request)?, &expected, "completion of the bind")
}

fn rights(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    bound.write(bound.key, SUCCESS)?;
    holds(
        bound.far.is_all(5),
        "the destination does not hold the written bytes",
    )?;
    let a = &bound.pair.a;
    let read = Post::Read(bound.far.under(bound.key));
    a.post(bound.pair.from, read, &[bound.own.local()], 2)?;
    a.completes(a.request, 2, REMOTE_ACCESS)
}

fn rebind(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let new = bound.bind(101)?;
    holds(
        new != bound.key,
        "dat_rmr_bind returned the rmr_context of the former bind",
    )?;
    bound.write(new, SUCCESS)?;
    bound.is_closed(bound.key)
}

fn unbind(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let mut nothing = bound.far.local();
    nothing.segment_length = 0;
    let b = &bound.pair.b;
    let lmr = bound.far.region.lmr;
    let unbound = dat.rmr_bind(bound.rmr, lmr, &nothing, 0, bound.pair.to, 102);
    expect_ok(unbound, "dat_rmr_bind of length 0")?;
    b.completes(b.request, 102, SUCCESS)?;
    bound.is_closed(bound.key)?;
    ok(dat.lmr_free(lmr), "dat_lmr_free")
}

fn beyond(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let mut piece = bound.far.local();
    piece.segment_length += 1;
    let lmr = bound.far.region.lmr;
    let code = dat
        .rmr_bind(bound.rmr, lmr, &piece, WRITE, bound.pair.to, 1)
        .err();
    refused(code.unwrap_or(0), Kind::InvalidParameter, "dat_rmr_bind")
}

fn privileges(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let memory = pair.a.memory(64, MemPriv::LOCAL_READ.bits())?;
    let rmr = expect_ok(dat.rmr_create(pair.a.pz), "dat_rmr_create")?;
    let lmr = memory.region.lmr;
    let code = dat
        .rmr_bind(rmr, lmr, &memory.local(), WRITE, pair.from, 1)
        .err();
    refused(code.unwrap_or(0), Kind::PrivilegesViolation, "dat_rmr_bind")
}

fn in_order(dat: &Dat) -> Check {
    let pair = Pair::connected(dat)?;
    let (a, far) = (&pair.a, pair.a.memory(64, MemPriv::ALL.bits())?);
    let rmr = expect_ok(dat.rmr_create(a.pz), "dat_rmr_create")?;
    // The peer has no receive, so it stays without an answer.
    a.post(pair.from, Post::Send, &[], 1)?;
    let lmr = far.region.lmr;
    let bound = dat.rmr_bind(rmr, lmr, &far.local(), WRITE, pair.from, 2);
    expect_ok(bound, "dat_rmr_bind")?;
    if let Ok((seen, _)) = dat.evd_wait(a.request, 100_000, 1) {
        return broken(format!(
            "dat_evd_wait returned {seen:?}; expected no completion of a bind while a send before it is outstanding"
        ));
    }
    pair.b.post(pair.to, Post::Recv, &[], 1)?;
    a.completes(a.request, 1, SUCCESS)?;
    let expected = Seen::Bind {
        rmr,
        cookie: 2,
        status: SUCCESS,
    };
    same(&a.wait(a.request)?, &expected, "completion of the bind")
}

fn flushed(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let (a, b) = (&bound.pair.a, &bound.pair.b);
    let other = b.memory(64, MemPriv::ALL.bits())?;
    other.fill(0);
    // The peer has no receive, so the bind does not complete; a device may execute it all the same.
    b.post(bound.pair.to, Post::Send, &[], 1)?;
    let lmr = other.region.lmr;
    let posted = dat.rmr_bind(bound.rmr, lmr, &other.local(), WRITE, bound.pair.to, 2);
    let key = expect_ok(posted, "dat_rmr_bind")?;
    std::thread::sleep(Duration::from_millis(50));
    let ended = dat.ep_disconnect(bound.pair.to, ABRUPT);
    ok(ended, "dat_ep_disconnect")?;
    b.completes(b.request, 1, FLUSHED)?;
    b.completes(b.request, 2, FLUSHED)?;
    a.connection(bound.pair.from, ConnectionEvent::Disconnected)?;
    b.connection(bound.pair.to, ConnectionEvent::Disconnected)?;
    ok(dat.lmr_free(lmr), "dat_lmr_free")?;

    let again = Bound {
        pair: Pair::connected_again(bound.pair)?,
        ..bound
    };
    let (a, at) = (&again.pair.a, Post::Write(other.under(key)));
    a.post(again.pair.from, at, &[again.own.local()], 3)?;
    a.completes(a.request, 3, REMOTE_ACCESS)?;
    holds(
        other.is_all(0),
        "a peer wrote to an LMR that was freed after the bind to it was flushed",
    )?;
    a.ends(again.pair.from)?;
    again.pair.b.ends(again.pair.to)?;

    let again = Bound {
        pair: Pair::connected_again(again.pair)?,
        ..again
    };
    let new = again.bind(4)?;
    again.write(new, SUCCESS)?;
    holds(
        again.far.is_all(5),
        "the destination does not hold the written bytes",
    )
}

fn unconnected(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let memory = side.memory(64, MemPriv::ALL.bits())?;
    let rmr = expect_ok(dat.rmr_create(side.pz), "dat_rmr_create")?;
    let lmr = memory.region.lmr;
    let code = dat
        .rmr_bind(rmr, lmr, &memory.local(), WRITE, side.ep()?, 1)
        .err();
    refused(code.unwrap_or(0), Kind::InvalidState, "dat_rmr_bind")
}

fn unbound(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let rmr = expect_ok(dat.rmr_create(side.pz), "dat_rmr_create")?;
    let seen = expect_ok(dat.rmr_query(rmr), "dat_rmr_query")?;
    same(
        &(seen.ia_handle, seen.pz_handle, seen.rmr_context),
        &(side.ia, side.pz, 0),
        "IA, PZ and rmr_context",
    )
}

fn bound_query(dat: &Dat) -> Check {
    let bound = Bound::new(dat)?;
    let seen = expect_ok(dat.rmr_query(bound.rmr), "dat_rmr_query")?;
    let piece = bound.far.local();
    let at = seen.lmr_triplet;
    same(
        &(at.virtual_address, at.segment_length, seen.rmr_context),
        &(piece.virtual_address, piece.segment_length, bound.key),
        "range and rmr_context",
    )?;
    same(&(seen.mem_priv & WRITE), &WRITE, "mem_priv")
}
