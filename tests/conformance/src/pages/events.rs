//! dat_evd_*, dat_cno_*.

use std::time::{Duration, Instant};

use dat_core::error::Kind;
use dat_core::flags::EvdFlags;

use super::statements;
use crate::dat::Dat;
use crate::event::Seen;
use crate::fixture::{ABRUPT, FOREVER, MOMENT, Side, TIMEOUT, expect_ok};
use crate::verdict::{Check, broken, holds, ok, refused, same};

statements! {
    "dat_evd_dequeue": "An empty EVD is DAT_QUEUE_EMPTY." => empty;
    "dat_evd_dequeue": "Events come out in the order in which they went in." => in_order;
    "dat_evd_post_se": "An EVD without the software stream is DAT_INVALID_PARAMETER or DAT_INVALID_HANDLE." => no_stream;
    "dat_evd_wait": "It returns an event and the number of events left." => waits;
    "dat_evd_wait": "Without an event it returns DAT_TIMEOUT_EXPIRED when the timeout has passed, not before." => time_over;
    "dat_evd_wait": "A threshold of 0, or above the queue's length, is DAT_INVALID_PARAMETER." => threshold;
    "dat_evd_wait": "A second waiter is DAT_INVALID_STATE." => one_waiter;
    "dat_evd_wait": "A posted event ends a wait of another thread." => wakes;
    "dat_evd_set_unwaitable": "A wait is DAT_INVALID_STATE until dat_evd_clear_unwaitable." => unwaitable;
    "dat_evd_set_unwaitable": "A waiter is woken." => unwaitable_wakes;
    "dat_evd_resize": "Events stay, and more events fit." => resize;
    "dat_evd_free": "Events on the queue are lost." => free_loses;
    "dat_evd_free": "The handle of a destroyed EVD fails in any later operation." => freed;
    "dat_evd_free": "An EVD that an object uses cannot be destroyed: DAT_INVALID_STATE." => fed;
    "dat_ia_close": "An abrupt close ends a wait on an EVD of the IA." => close_wakes;
    "dat_cno_wait": "It returns the EVD that has an event." => cno_tells;
    "dat_cno_wait": "Without an event it returns DAT_QUEUE_EMPTY when the timeout has passed." => cno_time_over;
    "dat_cno_wait": "All EVDs of a CNO belong to its IA: an EVD of another IA is DAT_INVALID_HANDLE." => cno_of_other_ia;
    "dat_cno_free": "A CNO with EVDs cannot be destroyed: DAT_INVALID_STATE." => cno_in_use;
    "dat_evd_disable": "A disabled EVD does not trigger its CNO; an enabled EVD does." => disabled;
}

fn software<'a>(dat: &'a Dat, cno: bool) -> Check<(Side<'a>, usize, usize)> {
    let side = Side::open(dat)?;
    let cno = if cno {
        expect_ok(dat.cno_create(side.ia), "dat_cno_create")?
    } else {
        0
    };
    let evd = dat.evd_create(side.ia, 8, cno, EvdFlags::SOFTWARE.bits());
    let evd = expect_ok(evd, "dat_evd_create")?;
    Ok((side, evd, cno))
}

fn post(dat: &Dat, evd: usize, pointer: usize) -> Check {
    ok(dat.evd_post_se(evd, pointer), "dat_evd_post_se")
}

fn code<T>(result: Result<T, u32>) -> u32 {
    result.err().unwrap_or(0)
}

fn empty(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    for evd in [side.recv, side.conn, side.cr, side.async_evd] {
        refused(
            code(dat.evd_dequeue(evd)),
            Kind::QueueEmpty,
            "dat_evd_dequeue",
        )?;
    }
    Ok(())
}

fn in_order(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    for round in 0..5 {
        for n in 0..8 {
            post(dat, evd, round * 8 + n)?;
        }
        for n in 0..8 {
            let seen = dat.evd_dequeue(evd);
            same(&seen, &Ok(Seen::Software(round * 8 + n)), "event")?;
        }
    }
    Ok(())
}

fn no_stream(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let code = dat.evd_post_se(side.conn, 1);
    refused(code, Kind::InvalidHandle, "dat_evd_post_se")
        .or_else(|_| refused(code, Kind::InvalidParameter, "dat_evd_post_se"))
}

fn waits(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    for n in 1..=3 {
        post(dat, evd, n)?;
    }
    for n in 1..=3 {
        let expected = Ok((Seen::Software(n), 3 - n as i32));
        same(&dat.evd_wait(evd, TIMEOUT, 1), &expected, "event and nmore")?;
    }
    Ok(())
}

fn time_over(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    let begun = Instant::now();
    let waited = code(dat.evd_wait(evd, MOMENT, 1));
    refused(waited, Kind::TimeoutExpired, "dat_evd_wait")?;
    let time = begun.elapsed();
    holds(
        time >= Duration::from_micros(MOMENT.into()),
        "dat_evd_wait returned before its timeout",
    )
}

fn threshold(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    for threshold in [0, -1, i32::MAX] {
        let waited = code(dat.evd_wait(evd, MOMENT, threshold));
        refused(waited, Kind::InvalidParameter, "dat_evd_wait")?;
    }
    Ok(())
}

/// Runs `wait` in a thread, and repeats `act` until the thread ends.
fn during<R: Send>(wait: impl FnOnce() -> R + Send, mut act: impl FnMut() -> Check) -> Check<R> {
    std::thread::scope(|scope| {
        let waiter = scope.spawn(wait);
        let begun = Instant::now();
        while !waiter.is_finished() {
            act()?;
            if begun.elapsed() > Duration::from_secs(20) {
                return broken("dat_evd_wait did not return");
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        waiter
            .join()
            .or_else(|_| broken("the waiting thread panicked"))
    })
}

fn one_waiter(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    let first = dat.clone();
    let (mut seen, mut posted) = (0, false);
    let waited = during(
        move || first.evd_wait(evd, TIMEOUT, 1),
        || {
            // Refused once the other thread waits; before that the timeout passes.
            let second = code(dat.evd_wait(evd, 100, 1));
            if refused(second, Kind::InvalidState, "").is_ok() {
                seen += 1;
            }
            // Once: a thread that is not scheduled takes none of them.
            if seen == 1 && !std::mem::replace(&mut posted, true) {
                post(dat, evd, 1)?;
            }
            Ok(())
        },
    )?;
    // The first thread may have been second: then its call was refused.
    match waited {
        Ok(_) => holds(
            seen > 0,
            "no second dat_evd_wait failed; expected DAT_INVALID_STATE",
        ),
        Err(code) => refused(code, Kind::InvalidState, "dat_evd_wait"),
    }
}

fn wakes(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    let waiter = dat.clone();
    let mut posted = false;
    let waited = during(
        move || waiter.evd_wait(evd, FOREVER, 1),
        || {
            if std::mem::replace(&mut posted, true) {
                Ok(())
            } else {
                post(dat, evd, 5)
            }
        },
    )?;
    same(&waited, &Ok((Seen::Software(5), 0)), "event and nmore")
}

fn unwaitable(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    ok(dat.evd_set_unwaitable(evd), "dat_evd_set_unwaitable")?;
    post(dat, evd, 3)?;
    let waited = code(dat.evd_wait(evd, MOMENT, 1));
    refused(waited, Kind::InvalidState, "dat_evd_wait, unwaitable")?;
    ok(dat.evd_clear_unwaitable(evd), "dat_evd_clear_unwaitable")?;
    let waited = dat.evd_wait(evd, TIMEOUT, 1);
    same(&waited, &Ok((Seen::Software(3), 0)), "event and nmore")
}

fn unwaitable_wakes(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    let waiter = dat.clone();
    let waited = during(
        move || waiter.evd_wait(evd, FOREVER, 1),
        || ok(dat.evd_set_unwaitable(evd), "dat_evd_set_unwaitable"),
    )?;
    holds(
        waited.is_err(),
        "dat_evd_wait returned an event; expected an error",
    )
}

fn resize(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    for n in 0..8 {
        post(dat, evd, n)?;
    }
    ok(dat.evd_resize(evd, 16), "dat_evd_resize")?;
    for n in 8..16 {
        post(dat, evd, n)?;
    }
    for n in 0..16 {
        same(&dat.evd_dequeue(evd), &Ok(Seen::Software(n)), "event")?;
    }
    Ok(())
}

fn free_loses(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    post(dat, evd, 1)?;
    ok(dat.evd_free(evd), "dat_evd_free with an event queued")
}

fn freed(dat: &Dat) -> Check {
    let (_side, evd, _) = software(dat, false)?;
    ok(dat.evd_free(evd), "dat_evd_free")?;
    let codes = [
        dat.evd_free(evd),
        dat.evd_post_se(evd, 1),
        dat.evd_enable(evd),
        code(dat.evd_dequeue(evd)),
        code(dat.evd_wait(evd, MOMENT, 1)),
        code(dat.evd_query(evd)),
    ];
    for code in codes {
        refused(code, Kind::InvalidHandle, "a call with a freed EVD")?;
    }
    Ok(())
}

fn fed(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let (psp, _) = side.listen()?;
    refused(
        dat.evd_free(side.cr),
        Kind::InvalidState,
        "dat_evd_free, PSP",
    )?;
    ok(dat.psp_free(psp), "dat_psp_free")?;
    ok(dat.evd_free(side.cr), "dat_evd_free")
}

fn close_wakes(dat: &Dat) -> Check {
    let (side, evd, _) = software(dat, false)?;
    let waiter = dat.clone();
    let begun = Instant::now();
    let mut closed = false;
    let waited = during(
        move || waiter.evd_wait(evd, FOREVER, 1),
        || {
            // The thread probably waits by now; if not, its handle is refused, which is correct too.
            if !closed && begun.elapsed() > Duration::from_millis(20) {
                closed = true;
                return ok(dat.ia_close(side.ia, ABRUPT), "dat_ia_close");
            }
            Ok(())
        },
    )?;
    holds(
        waited.is_err(),
        "dat_evd_wait returned an event; expected an error",
    )
}

fn cno_tells(dat: &Dat) -> Check {
    let (_side, evd, cno) = software(dat, true)?;
    post(dat, evd, 1)?;
    same(&dat.cno_wait(cno, TIMEOUT), &Ok(evd), "EVD")?;
    same(&dat.evd_dequeue(evd), &Ok(Seen::Software(1)), "event")
}

fn cno_time_over(dat: &Dat) -> Check {
    let (_side, _, cno) = software(dat, true)?;
    let waited = code(dat.cno_wait(cno, MOMENT));
    refused(waited, Kind::QueueEmpty, "dat_cno_wait")
}

fn cno_of_other_ia(dat: &Dat) -> Check {
    let (other, _, cno) = software(dat, true)?;
    let (side, evd, _) = software(dat, false)?;
    let changed = dat.evd_modify_cno(evd, cno);
    refused(changed, Kind::InvalidHandle, "dat_evd_modify_cno")?;
    let created = code(dat.evd_create(side.ia, 8, cno, EvdFlags::SOFTWARE.bits()));
    refused(created, Kind::InvalidHandle, "dat_evd_create")?;
    ok(dat.ia_close(other.ia, ABRUPT), "dat_ia_close")
}

fn cno_in_use(dat: &Dat) -> Check {
    let (_side, evd, cno) = software(dat, true)?;
    refused(dat.cno_free(cno), Kind::InvalidState, "dat_cno_free")?;
    ok(dat.evd_free(evd), "dat_evd_free")?;
    ok(dat.cno_free(cno), "dat_cno_free")
}

fn disabled(dat: &Dat) -> Check {
    let (_side, evd, cno) = software(dat, true)?;
    ok(dat.evd_disable(evd), "dat_evd_disable")?;
    post(dat, evd, 1)?;
    let waited = code(dat.cno_wait(cno, MOMENT));
    refused(waited, Kind::QueueEmpty, "dat_cno_wait, EVD disabled")?;
    ok(dat.evd_enable(evd), "dat_evd_enable")?;
    post(dat, evd, 2)?;
    same(&dat.cno_wait(cno, TIMEOUT), &Ok(evd), "EVD")
}
