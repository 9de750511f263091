//! What the consumer usually does next, learnt from what it did: how long to spin, whether to hold an acknowledgement back,
//! whether a post is one of many. Pure.

use std::time::Duration;

use softrxe_proto::Time;

/// How long a waiter looks again and again before it sleeps in the kernel. A sleeper on a halted processor costs some 30 us
/// to wake, so spinning pays when the wait ends within about that; where it never does, the budget shrinks to nothing.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    budget: Duration,
    most: Duration,
}

/// A wake-up that took less came from the same processor: spinning would have kept the peer from running.
const WAKE: Duration = Duration::from_micros(12);
/// Waits up to so many budgets may have been long only because both ends slept.
const SLEEPERS: u32 = 3;
/// First budget after none.
const LEAST: Duration = Duration::from_micros(2);

impl Spin {
    /// At most `most` at a time; nothing if there is only one of `processors`.
    pub(crate) const fn new(most: Duration, processors: usize) -> Self {
        let most = if processors == 1 {
            Duration::ZERO
        } else {
            most
        };
        Self { budget: most, most }
    }

    pub(crate) const fn budget(self) -> Duration {
        self.budget
    }

    /// What was waited for came while spinning.
    pub(crate) fn hit(&mut self) {
        self.grow();
    }

    /// It did not; it came `waited` after the wait began, of which `spun` was spun.
    pub(crate) fn missed(&mut self, spun: Duration, waited: Duration) {
        if waited <= self.most * SLEEPERS && waited.saturating_sub(spun) > WAKE {
            // A longer spin would have caught it, or would if the peer spun as well: two that sleep wake each other late.
            self.grow();
        } else {
            self.budget /= 2;
            if self.budget < LEAST / 2 {
                self.budget = Duration::ZERO;
            }
        }
    }

    fn grow(&mut self) {
        self.budget = (self.budget * 2).clamp(LEAST.min(self.most), self.most);
    }
}

/// Does the consumer answer a message as soon as it gets it? Then its acknowledgement goes with the answer, in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answers {
    handed: Option<Time>,
    /// Nobody has looked for more since.
    fresh: bool,
    score: u8,
}

/// An answer comes within this time, or it is none.
const SOON: Duration = Duration::from_micros(15);
/// How long a look for more takes.
const GLANCE: Duration = Duration::from_micros(1);
/// Answers in a row that make a habit, and how well it is remembered.
const HABIT: u8 = 2;
const MEMORY: u8 = 4;

impl Answers {
    /// A message was given to the consumer; `now` may be when it was looked for, which saves reading the clock.
    pub(crate) const fn handed(&mut self, now: Time) {
        self.handed = Some(now);
        self.fresh = true;
    }

    /// The consumer posted a request.
    pub(crate) fn posted(&mut self, now: Time) {
        if let Some(at) = self.handed.take() {
            if now.since(at) <= SOON {
                self.score = (self.score + 1).min(MEMORY);
            } else {
                self.score = 0;
            }
        }
    }

    /// Was something given out only just now? Then the consumer sees whether there is more, and decides.
    pub(crate) fn just_handed(&mut self, now: Time) -> bool {
        let Some(at) = self.handed else { return false };
        if std::mem::take(&mut self.fresh) && now.since(at) <= SOON {
            self.handed = Some(now);
            return true;
        }
        now.since(at) < GLANCE
    }

    /// As [`just_handed`](Self::just_handed) for what the consumer may not even have an eye on: only if it usually answers.
    pub(crate) fn just_shown(&mut self, now: Time) -> bool {
        self.expected() && self.just_handed(now)
    }

    /// It did something else first.
    pub(crate) fn passed(&mut self) {
        if self.handed.take().is_some() {
            self.score = self.score.saturating_sub(1);
        }
    }

    pub(crate) const fn expected(&self) -> bool {
        self.score >= HABIT
    }
}

/// Posts that another call follows quickly, while the peer is busy anyway, go out together, in full runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    /// When the post before returned to the consumer, if it has not called since.
    done: Option<Time>,
    /// So many posts in a row were soon followed by another call.
    followed: u8,
    posts: u32,
    bytes: u64,
}

/// Calls further apart do not follow each other.
const QUICK: Duration = Duration::from_micros(2);
/// What fills a run of small packets, and four of large ones: a run and a bit would leave much of its second one empty.
const POSTS: u32 = 64;
const BYTES: u64 = 240_000;

impl Batch {
    /// A request of `bytes` was posted; `busy`: others of its queue pair are on their way. Whether to send now; else
    /// the next post, poll or wait does.
    pub(crate) fn posted(&mut self, now: Time, bytes: u64, busy: bool) -> bool {
        let quick = self.done.is_some_and(|at| now.since(at) < QUICK);
        self.called(now);
        self.done = Some(now);
        self.posts += 1;
        self.bytes += bytes;
        let soon = quick || self.followed >= HABIT;
        !busy || !soon || self.posts >= POSTS || self.bytes >= BYTES
    }

    /// The consumer calls.
    pub(crate) fn called(&mut self, now: Time) {
        if let Some(at) = self.done.take() {
            if now.since(at) < QUICK {
                self.followed = (self.followed + 1).min(HABIT);
            } else {
                self.followed = 0;
            }
        }
    }

    /// Everything was sent.
    pub(crate) const fn sent(&mut self) {
        self.posts = 0;
        self.bytes = 0;
    }

    /// The post that sent it returns `now`.
    pub(crate) const fn returned(&mut self, now: Time) {
        self.done = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn us(n: u64) -> Duration {
        Duration::from_micros(n)
    }

    fn at(n: u64) -> Time {
        Time::from_nanos(n * 1000)
    }

    #[test]
    fn spinning_stops_where_it_never_helps_and_comes_back_where_it_would() {
        let mut spin = Spin::new(us(50), 2);
        for _ in 0..10 {
            spin.missed(spin.budget(), us(5000));
        }
        assert_eq!(spin.budget(), us(0));
        // Woken on this very processor: the peer had been waiting for us to stop.
        spin.missed(us(0), us(4));
        assert_eq!(spin.budget(), us(0));
        // Woken from afar: it was there soon, or as soon as a peer that sleeps as well can be.
        spin.missed(us(0), us(35));
        assert_eq!(spin.budget(), us(2));
        spin.missed(us(2), us(100));
        assert_eq!(spin.budget(), us(4));
        for _ in 0..10 {
            spin.hit();
        }
        assert_eq!(spin.budget(), us(50));
    }

    #[test]
    fn one_processor_never_spins() {
        let mut spin = Spin::new(us(50), 1);
        spin.hit();
        spin.missed(us(0), us(20));
        assert_eq!(spin.budget(), us(0));
    }

    #[test]
    fn two_quick_answers_make_a_habit_and_others_end_it() {
        let mut answers = Answers::default();
        for n in 0..2 {
            assert!(!answers.expected());
            answers.handed(at(n * 100));
            answers.posted(at(n * 100 + 3));
        }
        assert!(answers.expected());
        // A post without a message before it says nothing.
        answers.posted(at(300));
        assert!(answers.expected());
        answers.handed(at(400));
        answers.passed();
        assert!(!answers.expected());
        answers.handed(at(500));
        answers.posted(at(501));
        assert!(answers.expected());
        answers.handed(at(600));
        assert!(answers.just_shown(at(600)));
        answers.posted(at(900));
        assert!(!answers.expected());
        answers.handed(at(1000));
        assert!(!answers.just_shown(at(1003)), "no habit");
        assert!(answers.just_handed(at(1003)), "the first look");
        assert!(answers.just_handed(at(1003)) && !answers.just_handed(at(1005)));
        answers.handed(at(1100));
        assert!(!answers.just_handed(at(1200)), "it did something else");
    }

    #[test]
    fn a_lone_post_goes_at_once_and_many_go_together() {
        let mut batch = Batch::default();
        assert!(batch.posted(at(100), 64, false));
        batch.sent();
        let mut sent = 0;
        for n in 0..128 {
            if batch.posted(Time::from_nanos(100_000 + n * 300), 64, true) {
                batch.sent();
                sent += 1;
            }
        }
        assert_eq!(sent, 2);
        assert!(batch.posted(at(500), 64, true), "a pause ends a batch");
        batch.sent();
        assert!(batch.posted(at(501), 1 << 20, true), "runs are full");
    }

    #[test]
    fn who_always_calls_again_soon_has_its_posts_sent_by_that_call() {
        let mut batch = Batch::default();
        for n in 0..2 {
            assert!(batch.posted(at(n * 10), 1 << 16, true), "not yet known");
            batch.sent();
            batch.returned(at(n * 10 + 3));
            batch.called(at(n * 10 + 4));
        }
        assert!(!batch.posted(at(30), 1 << 16, true));
        assert!(batch.posted(at(31), 1 << 16, false), "the peer is idle");
        batch.called(at(40));
        assert!(batch.posted(at(50), 1 << 16, true), "it was late once");
    }
}
