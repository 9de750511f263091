//! Predictions of what the consumer does next, from what it did: whether to hold an acknowledgement back, whether another post
//! follows, how long payloads are copied, when the UDP socket and the rings are read. Pure. How long to spin is `dat_os::spin`'s.

pub(crate) mod empty_polls;
pub(crate) mod loop_exit;
pub(crate) mod oversubscription;
pub(crate) mod pull_choice;
pub(crate) mod ring_copies;
pub(crate) mod socket_cadence;
pub(crate) mod stream_pace;

use std::time::Duration;

use softrxe_proto::Time;

/// Predicts whether the consumer replies to a message as soon as it gets it. If so, the message's acknowledgement goes with
/// the reply, in one run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReplyPredictor {
    delivered: Option<Time>,
    /// No poll has found the queue empty since.
    fresh: bool,
    score: u8,
}

/// A post within this time of a message counts as a reply to it.
const REPLY_TIME: Duration = Duration::from_micros(15);
/// Time between a delivery and the consumer's next poll in a loop.
const NEXT_POLL: Duration = Duration::from_micros(1);
/// Score from which on a reply (of [`ReplyPredictor`]) or another call (of [`Batch`]) is expected, and the highest score.
const EXPECTED: u8 = 2;
const MAX_SCORE: u8 = 4;

impl ReplyPredictor {
    /// Records that the consumer got a message. `now` may be the time of the poll that found it, which saves a clock reading.
    pub(crate) const fn delivered(&mut self, now: Time) {
        self.delivered = Some(now);
        self.fresh = true;
    }

    /// Records that the consumer posted a request.
    pub(crate) fn posted(&mut self, now: Time) {
        if let Some(at) = self.delivered.take() {
            if now.is_within(REPLY_TIME, at) {
                self.score = (self.score + 1).min(MAX_SCORE);
            } else {
                self.score = 0;
            }
        }
    }

    /// Returns whether a message was delivered just now, so that this poll only sees whether there are more.
    pub(crate) fn just_delivered(&mut self, now: Time) -> bool {
        let Some(at) = self.delivered else {
            return false;
        };
        if std::mem::take(&mut self.fresh) && now.is_within(REPLY_TIME, at) {
            self.delivered = Some(now);
            return true;
        }
        now.is_within(NEXT_POLL, at)
    }

    /// Returns whether data was written just now to which the consumer is expected to reply. It may not poll that memory at
    /// all, so without an expected reply the result is `false`.
    pub(crate) fn just_written(&mut self, now: Time) -> bool {
        self.reply_expected() && self.just_delivered(now)
    }

    /// Records that the consumer polled again instead of replying.
    pub(crate) fn not_replied(&mut self) {
        if self.delivered.take().is_some() {
            self.score = self.score.saturating_sub(1);
        }
    }

    pub(crate) const fn reply_expected(&self) -> bool {
        self.score >= EXPECTED
    }
}

/// Collects posts for one transmission where another call follows soon and the peer is busy anyway, so that runs are full.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Batch {
    /// When the previous post returned to the consumer; `None` if the consumer has called since.
    returned: Option<Time>,
    /// Number of posts in a row that another call followed soon, up to [`EXPECTED`].
    followed: u8,
    posts: u32,
    bytes: u64,
}

/// Longest time between two calls that count as consecutive.
const FOLLOWS: Duration = Duration::from_micros(2);
/// Posts that fill a run of small packets, and bytes that fill four runs of large ones. With little more than a run, most of the
/// second run would be empty.
const FULL_POSTS: u32 = 64;
const FULL_BYTES: u64 = 240_000;
/// Posts of a run for which the clock is read once: a reading takes as long as an eighth of a post.
const POSTS_OF_A_READING: u32 = 4;

impl Batch {
    /// Returns the time of the previous post, if it may stand for the present time: a run is being collected, and the clock was read in one
    /// of the last posts. If the consumer paused since then, a few posts more than needed wait for the next call, or for the answers to
    /// those that are in flight. A post with nothing in flight needs the clock.
    #[inline]
    pub(crate) fn previous(&self, busy: bool) -> Option<Time> {
        let collects = busy && !self.posts.is_multiple_of(POSTS_OF_A_READING);
        self.returned.filter(|_| collects)
    }

    /// Records a posted request of `bytes`; `busy` says whether its queue pair has others in flight. Returns whether to
    /// transmit now; if not, the next post, poll or wait transmits.
    pub(crate) fn posted(&mut self, now: Time, bytes: u64, busy: bool) -> bool {
        let quick = self.returned.is_some_and(|at| now.is_within(FOLLOWS, at));
        self.called(now);
        self.returned = Some(now);
        self.posts += 1;
        self.bytes += bytes;
        let soon = quick || self.followed >= EXPECTED;
        !busy || !soon || self.posts >= FULL_POSTS || self.bytes >= FULL_BYTES
    }

    /// Records a call of the consumer.
    pub(crate) fn called(&mut self, now: Time) {
        if let Some(at) = self.returned.take() {
            if now.is_within(FOLLOWS, at) {
                self.followed = (self.followed + 1).min(EXPECTED);
            } else {
                self.followed = 0;
            }
        }
    }

    /// Records that everything was transmitted.
    pub(crate) const fn transmitted(&mut self) {
        self.posts = 0;
        self.bytes = 0;
    }

    /// Records that the post that transmitted returns at `now`.
    pub(crate) const fn returned(&mut self, now: Time) {
        self.returned = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(n: u64) -> Time {
        Time::from_nanos(n * 1000)
    }

    #[test]
    fn two_quick_replies_make_the_next_one_expected() {
        let mut replies = ReplyPredictor::default();
        for n in 0..2 {
            assert!(!replies.reply_expected());
            replies.delivered(at(n * 100));
            replies.posted(at(n * 100 + 3));
        }
        assert!(replies.reply_expected());
        // A post without a message before it is no reply.
        replies.posted(at(300));
        assert!(replies.reply_expected());
        replies.delivered(at(400));
        replies.not_replied();
        assert!(!replies.reply_expected());
        replies.delivered(at(500));
        replies.posted(at(501));
        assert!(replies.reply_expected());
        replies.delivered(at(600));
        assert!(replies.just_written(at(600)));
        replies.posted(at(900));
        assert!(!replies.reply_expected());
        replies.delivered(at(1000));
        assert!(!replies.just_written(at(1003)), "no reply is expected");
        assert!(replies.just_delivered(at(1003)), "the first poll");
        assert!(replies.just_delivered(at(1003)) && !replies.just_delivered(at(1005)));
        replies.delivered(at(1100));
        assert!(!replies.just_delivered(at(1200)), "too late for a reply");
    }

    #[test]
    fn a_single_post_is_transmitted_at_once_and_many_together() {
        let mut batch = Batch::default();
        assert!(batch.posted(at(100), 64, false));
        batch.transmitted();
        let mut sent = 0;
        for n in 0..128 {
            if batch.posted(Time::from_nanos(100_000 + n * 300), 64, true) {
                batch.transmitted();
                sent += 1;
            }
        }
        assert_eq!(sent, 2);
        assert!(batch.posted(at(500), 64, true), "a pause ends a batch");
        batch.transmitted();
        assert!(batch.posted(at(501), 1 << 20, true), "runs are full");
    }

    #[test]
    fn a_reading_of_the_clock_serves_four_posts_of_a_run_and_none_after_it() {
        let mut batch = Batch::default();
        assert_eq!(batch.previous(true), None, "nothing was posted");
        let mut readings = 0;
        for n in 0..65 {
            assert_eq!(batch.previous(false), None, "nothing is in flight");
            let now = batch.previous(true).unwrap_or_else(|| {
                readings += 1;
                Time::from_nanos(n * 300)
            });
            assert_eq!(batch.posted(now, 64, n > 0), n == 0 || n == 64, "{n}");
            if n == 0 {
                batch.transmitted();
            }
        }
        assert_eq!(readings, 17);
        batch.transmitted();
        assert_eq!(batch.previous(true), None, "the run is transmitted");
        batch.posted(at(100), 64, true);
        batch.called(at(101));
        assert_eq!(batch.previous(true), None, "another call came between");
    }

    #[test]
    fn posts_that_a_call_always_follows_are_transmitted_by_that_call() {
        let mut batch = Batch::default();
        for n in 0..2 {
            assert!(
                batch.posted(at(n * 10), 1 << 16, true),
                "one call is not enough"
            );
            batch.transmitted();
            batch.returned(at(n * 10 + 3));
            batch.called(at(n * 10 + 4));
        }
        assert!(!batch.posted(at(30), 1 << 16, true));
        assert!(batch.posted(at(31), 1 << 16, false), "the peer is idle");
        batch.called(at(40));
        assert!(
            batch.posted(at(50), 1 << 16, true),
            "the previous call came late"
        );
    }
}
