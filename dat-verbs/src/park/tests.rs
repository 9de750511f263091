use dat_core::transport::Token;

use super::*;
use crate::fake::{self, FakeContext};

/// The completion channel of a device that is gone has an error for ever.
#[test]
fn a_wait_sleeps_although_the_device_is_removed() {
    let adapter = fake::adapter("");
    let cq = Cq::new(&adapter, 16, Token::default()).unwrap();
    FakeContext::of(&adapter).remove();
    let parker = Parker::default();
    let short = Some(Duration::from_millis(50));
    let mut woken = 0;
    while parker.park(Some(&cq), short, &mut || false) == Parked::Woken {
        woken += 1;
        assert!(woken < 10, "each sleep ends at once");
    }
}

#[test]
fn unpark_leaves_a_permit_for_the_next_sleep_only() {
    let parker = Parker::default();
    parker.unpark();
    assert_eq!(parker.park(None, None, &mut || false), Parked::Woken);
    let short = Some(Duration::from_millis(1));
    assert_eq!(parker.park(None, short, &mut || false), Parked::TimedOut);
    assert_eq!(parker.park(None, short, &mut || true), Parked::Woken);
}

#[test]
fn a_sleeper_is_woken_from_another_thread() {
    let parker = Arc::new(Parker::default());
    let (parked, waking) = (Arc::clone(&parker), Arc::clone(&parker));
    let sleeper = std::thread::spawn(move || {
        let start = Instant::now();
        let mut rounds = 0;
        while rounds < 1000 {
            match parked.park(None, Some(Duration::from_secs(20)), &mut || false) {
                Parked::Woken => rounds += 1,
                other => panic!("{other:?} after {rounds} rounds"),
            }
            if start.elapsed() > Duration::from_secs(20) {
                panic!("{rounds} rounds only");
            }
        }
    });
    while !sleeper.is_finished() {
        waking.unpark();
        std::thread::yield_now();
    }
    sleeper.join().unwrap();
}

/// Checks that a signal ends a wait, although glibc's `signal` requests restart of interrupted calls.
#[test]
fn a_signal_interrupts_a_sleep_without_end() {
    use std::os::unix::thread::JoinHandleExt;

    extern "C" fn handler(_: libc::c_int) {}
    // SAFETY: all-zero is a valid value of this plain C struct; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as extern "C" fn(libc::c_int) as usize;
        action.sa_flags = libc::SA_RESTART;
        assert_eq!(
            libc::sigaction(libc::SIGURG, &raw const action, std::ptr::null_mut()),
            0
        );
    }
    let sleeper = std::thread::spawn(|| Parker::default().park(None, None, &mut || false));
    let begin = Instant::now();
    while !sleeper.is_finished() {
        assert!(
            begin.elapsed() < Duration::from_secs(20),
            "the signal does not end the sleep"
        );
        // SAFETY: the thread is not joined yet.
        unsafe { libc::pthread_kill(sleeper.as_pthread_t(), libc::SIGURG) };
        std::thread::yield_now();
    }
    assert_eq!(sleeper.join().unwrap(), Parked::Interrupted);
}
