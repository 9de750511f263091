//! When a poll leaves the lock of an adapter to the threads that use it. Pure but for [`PollTurns`], which stores a [`Turn`].
//!
//! A poll of an empty completion queue receives what has arrived. While other threads' polls do the same, it has nothing to do, and each
//! time it takes the lock it takes the state from their caches. So it steps back: it returns without the lock. [`Occupancy`] says when there
//! is a completion to take. After some polls it looks whether another thread has received meanwhile. If not, it takes the lock, as the other
//! threads may do nothing but post.

use std::sync::atomic::{AtomicU64, Ordering};

use softrxe_proto::Occupancy;

/// Polls from the first one that steps back to the one that looks at what the other threads do, at first and at most. The number doubles
/// with each look until a completion is found.
const MIN_INTERVAL: u16 = 4;
const MAX_INTERVAL: u16 = 512;

/// What a thread is to do after a poll that found nothing, once it has released its own locks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum AfterPoll {
    /// Return to the consumer.
    Return,
    /// Yield to the threads that use the lock.
    Yield,
    /// [Give way](super::hub::Hub::give_way) to all other threads.
    GiveWay,
    /// [Pause](super::hub::Hub::pause).
    Pause,
}

/// Where the polls of a completion queue are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Turn {
    /// Polls that stepped back, since the last one that took the lock or that looked.
    stepped_back: u16,
    /// Value of `stepped_back` with which a poll looks.
    interval: u16,
    /// Number of polls of the adapter that had received when this queue's polls looked last.
    received: u32,
}

impl Turn {
    /// No other thread uses the lock.
    const ALONE: Self = Self {
        stepped_back: 0,
        interval: MIN_INTERVAL,
        received: 0,
    };

    /// Decides what a poll does that found another thread at the lock, or that comes after one which stepped back: `Ok` if it takes the lock.
    /// `received` returns the number of polls of the adapter that have received.
    fn step(&mut self, occupied: bool, received: impl FnOnce() -> u32) -> Result<(), AfterPoll> {
        if occupied {
            *self = Self::ALONE;
            return Ok(());
        }
        self.stepped_back += 1;
        if self.stepped_back == 1 {
            self.received = received();
            return Err(AfterPoll::Return);
        }
        if self.stepped_back < self.interval {
            return Err(AfterPoll::Return);
        }
        let now = received();
        let others_receive = std::mem::replace(&mut self.received, now) != now;
        let step = match (others_receive, self.interval) {
            (false, _) => Ok(()),
            // It has found nothing for long.
            (true, MAX_INTERVAL) => Err(AfterPoll::Yield),
            (true, _) => Err(AfterPoll::Return),
        };
        self.stepped_back = u16::from(others_receive);
        self.interval = (2 * self.interval).min(MAX_INTERVAL);
        step
    }

    const fn to_bits(self) -> u64 {
        self.stepped_back as u64 | (self.interval as u64) << 16 | (self.received as u64) << 32
    }

    const fn from_bits(bits: u64) -> Self {
        Self {
            stepped_back: bits as u16,
            interval: (bits >> 16) as u16,
            received: (bits >> 32) as u32,
        }
    }
}

/// Turns of the polls of one completion queue. One thread at a time polls it.
#[derive(Debug)]
pub(crate) struct PollTurns {
    occupancy: Occupancy,
    /// A [`Turn`], so no update is lost between a load and a store.
    turn: AtomicU64,
}

impl PollTurns {
    /// The first poll tries to take the lock.
    pub(crate) const fn new(occupancy: Occupancy) -> Self {
        Self {
            occupancy,
            turn: AtomicU64::new(Turn::ALONE.to_bits()),
        }
    }

    /// Returns whether the next poll tries to take the lock.
    #[inline]
    pub(crate) fn begins_at_the_lock(&self) -> bool {
        Turn::from_bits(self.turn.load(Ordering::Relaxed)).stepped_back == 0
    }

    /// Decides what a poll does that found another thread at the lock, or that does not [begin there](Self::begins_at_the_lock): `Ok` if it takes the
    /// lock. `received`: number of polls of the adapter that have received.
    pub(crate) fn step(&self, received: impl FnOnce() -> u32) -> Result<(), AfterPoll> {
        let mut turn = Turn::from_bits(self.turn.load(Ordering::Relaxed));
        let step = turn.step(self.occupancy.is_occupied(), received);
        self.turn.store(turn.to_bits(), Ordering::Relaxed);
        step
    }

    /// Records that a poll took completions. Called with the lock.
    #[inline]
    pub(crate) fn found(&self) {
        let mut turn = Turn::from_bits(self.turn.load(Ordering::Relaxed));
        if turn.interval != MIN_INTERVAL {
            turn.interval = MIN_INTERVAL;
            self.turn.store(turn.to_bits(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Steps until the lock is taken or `max` polls have stepped back. Returns their number, and how many of them yield.
    fn steps(turn: &mut Turn, max: u32, mut received: impl FnMut() -> u32) -> (u32, u32) {
        let (mut back, mut yields) = (0, 0);
        while back < max {
            match turn.step(false, &mut received) {
                Ok(()) => break,
                Err(after) => {
                    back += 1;
                    yields += u32::from(after == AfterPoll::Yield);
                }
            }
        }
        (back, yields)
    }

    #[test]
    fn a_poll_takes_the_lock_at_once_if_there_is_a_completion() {
        let mut turn = Turn::ALONE;
        steps(&mut turn, 100, || 0);
        assert_eq!(turn.step(true, || 0), Ok(()));
        assert_eq!(turn, Turn::ALONE);
    }

    #[test]
    fn polls_receive_now_and_then_if_other_threads_only_post() {
        let mut turn = Turn::ALONE;
        for interval in [4, 8, 16, 32, 64, 128, 256, 512, 512] {
            assert_eq!(steps(&mut turn, u32::MAX, || 7), (interval - 1, 0));
            assert_eq!(turn.stepped_back, 0, "the next poll tries the lock");
        }
    }

    #[test]
    fn polls_stay_back_while_other_threads_receive_and_yield_after_some_time() {
        let (mut turn, mut received) = (Turn::ALONE, u32::MAX - 2);
        let (back, yields) = steps(&mut turn, 10_000, || {
            received = received.wrapping_add(1);
            received
        });
        assert_eq!(back, 10_000);
        // The looks after 4, 8, ... 256 polls do not yield, the later ones do.
        assert_eq!(yields, (10_000 - (4 + 7 + 15 + 31 + 63 + 127 + 255)) / 511);
        // They stop: the next look finds that, and takes the lock.
        assert!(steps(&mut turn, u32::MAX, || received).0 < 512);
    }

    #[test]
    fn a_completion_makes_the_looks_frequent_again() {
        let turns = PollTurns::new(Occupancy::default());
        let until_locked = || (0..).take_while(|_| turns.step(|| 0).is_err()).count();
        assert_eq!((until_locked(), until_locked()), (3, 7));
        turns.found();
        assert_eq!(until_locked(), 3);
        assert!(turns.begins_at_the_lock());
    }

    #[test]
    fn a_turn_survives_its_packing() {
        let turn = Turn {
            stepped_back: 0x1234,
            interval: 0x89ab,
            received: 0xfedc_ba98,
        };
        assert_eq!(Turn::from_bits(turn.to_bits()), turn);
    }
}
