//! Consumers that post and poll, and so drive an adapter. Those that wait are in `waiter`.

use std::sync::atomic::Ordering;

use dat_os::schedule;
use softrxe_port::slot::slot_of_qpn;
use softrxe_proto::{Completion, CqId, DatagramPeer, PostError, Qpn, SendRequest};

use super::super::hub::Hub;
use super::super::poll_turns::{AfterPoll, PollTurns};
use super::super::state::State;
use super::roles::Watcher;
use super::state::Driver;
use crate::adaptive::empty_polls::{Idle, LONG_YIELD, Look, PAUSE};
use crate::clock;

impl Hub {
    /// Takes completions that are there; returns how many. Does not drive the engine.
    pub(crate) fn take(&self, cq: CqId, into: &mut [Completion]) -> usize {
        let mut state = self.lock();
        let count = state.engine.poll_cq(cq, into);
        if count != 0 {
            let now = state.now();
            state.driver.batch.called(now);
            state.driver.taken(now, &into[..count]);
        }
        count
    }

    /// Takes completions; without any, receives what has arrived, unless other threads do that. Returns how many, and what the caller is to
    /// do without its locks. If this process holds the port, this call waits up to 1 ms for each datagram to a member whose connection
    /// is full. May allocate, for messages of the connection manager.
    pub(crate) fn poll(
        &self,
        cq: CqId,
        turns: &PollTurns,
        into: &mut [Completion],
    ) -> (usize, AfterPoll) {
        let mut after = AfterPoll::Return;
        let mut locked = self.state.lock_to_poll(turns, &mut after);
        // Used where it is: the guard was written in parts a moment ago, and a copy of it would wait.
        let Some(state) = &mut locked else {
            return (0, after);
        };
        let mut count = state.engine.poll_cq(cq, into);
        let mut arrived = false;
        let now = state.now();
        state.driver.batch.called(now);
        state.driver.loop_exit.polled(now);
        if count == 0
            && (state.driver.replies.just_delivered(now)
                || state.driver.write_replies.just_written(now))
        {
            return (0, AfterPoll::Return);
        }
        if count == 0 {
            state.driver.replies.not_replied();
            state.driver.write_replies.not_replied();
            let mailbox = state.driver.roles.count_poll() && !state.near.cadence().is_busy();
            self.state.poll_receives();
            arrived = state.receive(now, mailbox);
            count = state.engine.poll_cq(cq, into);
            let watched = state.notices.any_watched();
            let roles = &mut state.driver.roles;
            roles.stop_watching_socket(watched, &self.wakers);
            let written = count == 0 && state.engine.owes_ack();
            let expected = match (count, written) {
                (0, false) => false,
                (0, true) => state.driver.write_replies.reply_expected(),
                _ => state.driver.replies.reply_expected(),
            };
            // Acknowledgements wait only where a thread transmits them soon, whatever the consumer does next.
            let hold = expected && state.driver.roles.is_left_to_polls();
            state.transmit(now, hold);
            self.wake(state);
            if written {
                state.driver.write_replies.delivered(now);
            }
        }
        state.driver.taken(now, &into[..count]);
        if count != 0 {
            turns.found();
        }
        let Driver {
            empty_polls,
            oversubscription,
            ..
        } = &mut state.driver;
        if arrived {
            // Writes of the peer end in no completion here.
            empty_polls.found();
        } else if count == 0 {
            let look = || Look {
                switches: schedule::preemptions(),
                helper_runs: self.helper_runs.load(Ordering::Relaxed),
            };
            let idle = empty_polls.polled(
                oversubscription,
                now,
                dat_arena::current_thread(),
                schedule::crowded,
                look,
            );
            let after = match idle {
                Idle::Poll => AfterPoll::Return,
                Idle::Yield => AfterPoll::GiveWay,
                Idle::Pause => AfterPoll::Pause,
            };
            return (0, after);
        }
        (count, AfterPoll::Return)
    }

    /// Yields the processor in a consumer's polling loop.
    pub(crate) fn give_way(&self) {
        let begin = clock::now();
        self.give_way.fetch_add(1, Ordering::Relaxed);
        std::thread::yield_now();
        self.give_way.fetch_sub(1, Ordering::Relaxed);
        let end = clock::now();
        let time = end.since(begin);
        if time >= LONG_YIELD {
            let mut state = self.state.lock();
            let Driver {
                empty_polls,
                oversubscription,
                ..
            } = &mut state.driver;
            empty_polls.yielded(oversubscription, end, time);
        }
    }

    /// Sleeps until something arrives, for [`PAUSE`] at most. Where processors are few, a consumer that polls in a loop keeps its peers
    /// on this host from sending what it polls for.
    pub(crate) fn pause(&self) {
        if !self.arm_for_pause() {
            return;
        }
        self.descriptors.sleep(PAUSE);
        let mut state = self.state.lock();
        // A thread that has become the watcher meanwhile has prepared the rings for its own sleep.
        if state.driver.roles.watcher == Watcher::None {
            state.near.disarm();
            if state.near.hear() {
                state.driver.roles.wake_helper(&self.wakers);
            }
        }
    }

    /// Lets peers wake this thread by records, unless they wake a watcher. Returns false if a record is there.
    fn arm_for_pause(&self) -> bool {
        let mut state = self.state.lock();
        if state.driver.roles.watcher != Watcher::None {
            return true;
        }
        let now = state.now();
        let State { engine, near, .. } = &mut *state;
        let sleeps = near.arm(engine, now);
        if !sleeps {
            near.disarm();
            // Those of a channel that has ended.
            state.collect_events();
        }
        sleeps
    }

    /// Posts a request and transmits it, or leaves it to the next call if more are likely to follow.
    /// Its segments have `bytes` bytes.
    pub(crate) fn post(
        &self,
        qpn: Qpn,
        request: &SendRequest<'_>,
        bytes: u64,
    ) -> Result<(), PostError> {
        let mut state = self.lock();
        let near = state.engine.near_for_post(qpn, bytes);
        let busy = near.map_or_else(|| state.engine.in_flight(qpn), |near| near.busy);
        let previous = state.driver.batch.previous(busy);
        let now = previous.unwrap_or_else(|| state.now());
        let transmits = state.driver.batch.posted(now, bytes, busy);
        let posted = near.and_then(|near| state.post_near(now, near, request, transmits));
        match posted {
            Some(posted) => posted?,
            None => state.engine.post_send(now, qpn, request)?,
        }
        state.driver.replies.posted(now);
        state.driver.write_replies.posted(now);
        if transmits {
            let datagrams = state.transmit(now, false);
            // A system call took time. To copy a record takes less than to read the clock.
            let end = if datagrams { state.now() } else { now };
            state.driver.batch.returned(end);
        } else {
            state.collect_events();
        }
        self.wake(&mut state);
        Ok(())
    }

    /// Posts a datagram for `to` if there is a channel to that engine, and transmits it: over the channel if it has room, else over UDP.
    /// `None`: there is no channel, and nothing was posted.
    #[inline(never)]
    pub(crate) fn post_datagram(
        &self,
        qpn: Qpn,
        to: &DatagramPeer,
        request: &SendRequest<'_>,
    ) -> Option<Result<(), PostError>> {
        let peer = (to.address, slot_of_qpn(to.qpn.value()));
        let mut state = self.lock();
        let now = state.now();
        let posted = state.post_datagram(now, qpn, peer, request)?;
        if let Err(error) = posted {
            return Some(Err(error));
        }
        state.transmit(now, false);
        self.wake(&mut state);
        Some(Ok(()))
    }
}
