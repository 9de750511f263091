//! Counters of the IB extension (`dat_ib_extensions.h`; there is no manual page).

use dat_core::counters::{EpCounter, EvdCounter, IaCounter};
use dat_core::error::Kind;
use dat_core::flags::MemPriv;

use super::statements;
use crate::dat::{Dat, Extension, Post};
use crate::event::SUCCESS;
use crate::fixture::{ABRUPT, Pair, Side};
use crate::printed::printed;
use crate::verdict::{Check, holds, ok, refused, same};

statements! {
    since V2_0;
    "dat_ib_query_counters": "An endpoint counts its posts and receives by kind, with their bytes." => of_an_endpoint;
    "dat_ib_query_counters": "An EVD counts waits, and dequeues with and without an event." => of_an_evd;
    "dat_ib_query_counters": "An IA counts its objects and its connection events." => of_an_ia;
    "dat_ib_query_counters": "All counters of a new object are 0." => of_a_new_one;
    "dat_ib_query_counters": "With a reset the requested counters restart at 0, and no others." => reset;
    "dat_ib_query_counters": "An unknown counter is DAT_INVALID_PARAMETER, a handle without counters is DAT_INVALID_HANDLE." => unknown;
    "dat_ib_print_counters": "It prints the counters of an IA, an endpoint or an EVD." => prints;
    "dat_ib_start_counter": "Counters of the type restart at 0." => starts;
    "dat_ib_start_counter": "An unknown type is DAT_INVALID_PARAMETER; a handle that is no IA is DAT_INVALID_HANDLE." => no_type;
    "dat_ib_stop_counter": "Counters of the type keep their values." => stops;
}

const ALL: u32 = MemPriv::ALL.bits();
/// `DCNT_IA_CM`.
const CM: u64 = 0;

/// Returns all `count` counters of `handle`.
fn all(dat: &Dat, handle: usize, count: usize, reset: bool) -> Check<Vec<u64>> {
    let mut values = vec![u64::MAX; count];
    let arguments = [count as u64, values.as_mut_ptr() as u64, reset.into()];
    let code = dat.extension(handle, Extension::QUERY_COUNTERS, &arguments);
    ok(code, "dat_ib_query_counters").map(|()| values)
}

fn of_ep(dat: &Dat, ep: usize) -> Check<Vec<u64>> {
    all(dat, ep, EpCounter::ALL.len(), false)
}

fn of_evd(dat: &Dat, evd: usize) -> Check<Vec<u64>> {
    all(dat, evd, EvdCounter::ALL.len(), false)
}

pub(super) fn of_ia(dat: &Dat, ia: usize) -> Check<Vec<u64>> {
    all(dat, ia, IaCounter::ALL.len(), false)
}

/// Checks the values of these counters.
macro_rules! have {
    ($values:expr, $($counter:expr => $value:expr),* $(,)?) => {
        $(same(&$values[$counter as usize], &$value, $counter.name())?;)*
    };
}

/// Sends two messages of 8 bytes and an RDMA Write of 16 bytes from `a` to `b`.
fn traffic(dat: &Dat) -> Check<Pair<'_>> {
    let pair = Pair::connected(dat)?;
    let (own, far) = (pair.a.memory(16, ALL)?, pair.b.memory(16, ALL)?);
    let half = |mut segment: dat_abi::v2_0::types::DatLmrTriplet| {
        segment.segment_length = 8;
        segment
    };
    for cookie in 1..=2 {
        let (from, into) = (half(own.local()), far.local());
        pair.b.post(pair.to, Post::Recv, &[into], cookie)?;
        pair.a.post(pair.from, Post::Send, &[from], cookie)?;
        pair.a.completes(pair.a.request, cookie, SUCCESS)?;
        pair.b.completes(pair.b.recv, cookie, SUCCESS)?;
    }
    let write = Post::Write(far.remote());
    pair.a.post(pair.from, write, &[own.local()], 3)?;
    pair.a.completes(pair.a.request, 3, SUCCESS)?;
    Ok(pair)
}

fn of_an_endpoint(dat: &Dat) -> Check {
    use EpCounter as C;
    let pair = traffic(dat)?;
    have!(of_ep(dat, pair.from)?,
        C::Connect => 1, C::PostSend => 2, C::PostSendData => 16, C::PostWrite => 1, C::PostWriteData => 16,
        C::PostRecv => 0, C::Recv => 0, C::PostRead => 0, C::Disconnect => 0);
    have!(of_ep(dat, pair.to)?,
        C::Connect => 0, C::PostRecv => 2, C::PostRecvData => 32, C::Recv => 2, C::RecvData => 16, C::PostSend => 0);
    ok(dat.ep_disconnect(pair.from, ABRUPT), "dat_ep_disconnect")?;
    have!(of_ep(dat, pair.from)?, C::Disconnect => 1);
    Ok(())
}

fn of_an_evd(dat: &Dat) -> Check {
    use EvdCounter as C;
    let pair = traffic(dat)?;
    let evd = pair.a.request;
    for _ in 0..2 {
        let empty = dat.evd_dequeue(evd).err().unwrap_or(0);
        refused(empty, Kind::QueueEmpty, "dat_evd_dequeue")?;
    }
    pair.b.post(pair.to, Post::Recv, &[], 4)?;
    pair.a.post(pair.from, Post::Send, &[], 4)?;
    let begun = std::time::Instant::now();
    let mut polls = 2;
    while dat.evd_dequeue(evd).is_err() {
        polls += 1;
        holds(begun.elapsed().as_secs() < 10, "no completion")?;
        std::thread::yield_now();
    }
    let counted = of_evd(dat, evd)?;
    have!(counted, C::Wait => 3, C::DequeueFound => 1, C::DequeueNotFound => polls, C::Dequeue => polls + 1);
    holds(
        counted[C::DequeuePoll as usize] > counted[C::DequeuePollFound as usize],
        "the counter of empty polls is 0; expected more",
    )?;
    have!(of_evd(dat, pair.a.conn)?, C::ConnCallback => 1, C::Wait => 1);
    Ok(())
}

fn of_an_ia(dat: &Dat) -> Check {
    use IaCounter as C;
    let pair = traffic(dat)?;
    // Four EVDs of the fixture, and the asynchronous one.
    have!(of_ia(dat, pair.a.ia)?,
        C::PzCreate => 1, C::EvdCreate => 5, C::EpCreate => 1, C::LmrCreate => 1, C::EpFree => 0, C::PspCreateAny => 0,
        C::CmReqTx => 1, C::CmActiveEst => 1, C::CmPassiveEst => 0);
    have!(of_ia(dat, pair.b.ia)?,
        C::PspCreateAny => 1, C::PspFree => 1, C::CmListen => 1, C::SpCr => 1, C::SpCrAccepted => 1,
        C::SpCrRejected => 0, C::CmReqRx => 1, C::CmRepTx => 1, C::CmPassiveEst => 1, C::CmReqTx => 0);
    ok(dat.ep_free(pair.from), "dat_ep_free")?;
    have!(of_ia(dat, pair.a.ia)?, C::EpFree => 1);
    Ok(())
}

fn of_a_new_one(dat: &Dat) -> Check {
    let pair = traffic(dat)?;
    ok(dat.ep_free(pair.from), "dat_ep_free")?;
    // Repeated until the memory of a freed endpoint is reused.
    let evds = [pair.a.recv, pair.a.request, pair.a.conn];
    for _ in 0..64 {
        let ep =
            crate::fixture::expect_ok(dat.ep_create(pair.a.ia, pair.a.pz, evds), "dat_ep_create")?;
        let counted = of_ep(dat, ep)?;
        holds(
            counted.iter().all(|n| *n == 0),
            "a counter of a new endpoint is not 0",
        )?;
        ok(dat.ep_free(ep), "dat_ep_free")?;
    }
    Ok(())
}

fn reset(dat: &Dat) -> Check {
    use EpCounter as C;
    let pair = traffic(dat)?;
    let mut bytes = 0_u64;
    let arguments = [C::PostSendData as u64, &raw mut bytes as u64, 1];
    let code = dat.extension(pair.from, Extension::QUERY_COUNTERS, &arguments);
    ok(code, "dat_ib_query_counters")?;
    same(&bytes, &16, "one counter")?;
    have!(of_ep(dat, pair.from)?, C::PostSendData => 0, C::PostSend => 2);
    all(dat, pair.to, EpCounter::ALL.len(), true)?;
    let counted = of_ep(dat, pair.to)?;
    holds(
        counted.iter().all(|n| *n == 0),
        "a counter that was reset is not 0",
    )?;
    all(dat, pair.a.request, EvdCounter::ALL.len(), true)?;
    have!(of_evd(dat, pair.a.request)?, EvdCounter::Wait => 0);
    all(dat, pair.a.ia, IaCounter::ALL.len(), true)?;
    have!(of_ia(dat, pair.a.ia)?, IaCounter::EpCreate => 0, IaCounter::CmActiveEst => 0);
    Ok(())
}

fn unknown(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let mut value = 0_u64;
    let out = &raw mut value as u64;
    let query = |handle, counter: u64, out| {
        dat.extension(handle, Extension::QUERY_COUNTERS, &[counter, out, 0])
    };
    let wrong = EpCounter::ALL.len() as u64 + 1;
    let bad = Kind::InvalidParameter;
    refused(query(pair.from, wrong, out), bad, "an unknown counter")?;
    refused(query(pair.from, u64::MAX, out), bad, "counter -1")?;
    refused(query(pair.from, 0, 0), bad, "no place for the values")?;
    let none = query(pair.a.pz, 0, out);
    refused(none, Kind::InvalidHandle, "counters of a PZ")
}

fn prints(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    for handle in [pair.a.ia, pair.from, pair.a.request] {
        let print = || dat.extension(handle, Extension::PRINT_COUNTERS, &[0, 0]);
        let (code, text) = printed(print)?;
        ok(code, "dat_ib_print_counters")?;
        holds(
            !text.trim().is_empty(),
            "dat_ib_print_counters printed nothing, neither to standard output nor to standard error",
        )?;
    }
    Ok(())
}

fn starts(dat: &Dat) -> Check {
    let pair = traffic(dat)?;
    have!(of_ia(dat, pair.a.ia)?, IaCounter::CmActiveEst => 1);
    for of in 0..3 {
        let code = dat.extension(pair.a.ia, Extension::START_COUNTER, &[of]);
        ok(code, "dat_ib_start_counter")?;
    }
    have!(of_ia(dat, pair.a.ia)?, IaCounter::CmActiveEst => 0, IaCounter::EpCreate => 1);
    pair.join(pair.a.ep()?, pair.b.ep()?)?;
    have!(of_ia(dat, pair.a.ia)?, IaCounter::CmActiveEst => 1);
    Ok(())
}

fn no_type(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    for start in [Extension::START_COUNTER, Extension::STOP_COUNTER] {
        let code = dat.extension(side.ia, start, &[3]);
        refused(code, Kind::InvalidParameter, "an unknown type")?;
        let code = dat.extension(side.cr, start, &[CM]);
        refused(code, Kind::InvalidHandle, "an EVD's handle")?;
    }
    Ok(())
}

fn stops(dat: &Dat) -> Check {
    let pair = traffic(dat)?;
    let code = dat.extension(pair.a.ia, Extension::STOP_COUNTER, &[CM]);
    ok(code, "dat_ib_stop_counter")?;
    pair.join(pair.a.ep()?, pair.b.ep()?)?;
    have!(of_ia(dat, pair.a.ia)?, IaCounter::CmActiveEst => 1, IaCounter::EpCreate => 2);
    Ok(())
}
