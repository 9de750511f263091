//! Polls in a row of a consumer that find nothing, and what the consumer does after each: a polling loop notices
//! [oversubscription](super::oversubscription), and gives its processor to other threads then. Pure.

use std::time::Duration;

use softrxe_proto::Time;

use super::oversubscription::{Oversubscription, PREEMPTED, Remembered};

/// What a consumer does after a poll that found nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Idle {
    /// It polls again.
    Poll,
    /// It yields its processor.
    Yield,
    /// It sleeps until something arrives, for [`PAUSE`] at most.
    Pause,
}

/// What a look at the scheduler finds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look {
    /// How often the scheduler switched from the calling thread to another one.
    pub(crate) switches: u64,
    /// How often the helper thread had a processor.
    pub(crate) helper_runs: u64,
}

/// The helper interrupts the consumer by twos where it yields.
const SWITCHES_PER_RUN: u64 = 2;

/// Counts polls in a row of a consumer that found nothing.
///
/// Under oversubscription a consumer that polls in a loop gives its processor to other threads. `sched_yield` is the cheapest way, as long
/// as the other threads do the same: each of them then runs for some microseconds. Oversubscription is present as long as yields lead to
/// other threads.
///
/// A thread that computes runs for a whole slice instead. After yields that took that long the consumer pauses for a while, as a sleeping
/// thread gets its processor back when it is woken.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EmptyPolls {
    row: u32,
    /// The thread of the last poll.
    thread: Option<usize>,
    /// When another thread than before polled.
    turned: Option<Time>,
    last: Option<Time>,
    yields: u32,
    polls: u32,
    /// Oversubscription is suspected: the yields that follow show whether there is another thread.
    suspected: bool,
    /// At the last look: the thread, what it found, and when.
    looked: Option<(usize, Look, Time)>,
    /// Time of long yields, less [a part](DRAIN) of all time until `drained`.
    long_yields: Duration,
    drained: Option<Time>,
    /// Threads that compute.
    computing: Remembered,
}

/// Empty polls in a row between two yields: some 2 us.
const POLLS_PER_YIELD: u32 = 4;
/// Empty polls in a row between two pauses: some 15 us.
const POLLS_PER_PAUSE: u32 = 32;
/// So many times as many polls lie between the yields of threads that poll in turn. An MPI's lock makes its threads take turns, and the caller
/// holds it: a thread that yields keeps the others from it.
const TURNS: u32 = 16;
/// How long after a turn threads count as such.
const TIME_OF_TURNS: Duration = Duration::from_millis(10);
/// Empty polls in a row that make a loop. A consumer that polls now and then may have computed in between.
const POLLS_OF_A_LOOP: u32 = 8;
/// Yields between two looks at the number of switches, and the switches that show oversubscription.
const YIELDS_PER_LOOK: u32 = 64;
const SWITCHES_PER_LOOK: u64 = 16;
/// The same for empty polls without yields, where it is a suspicion only. A consumer that polls beside threads that pause, or yield to it, is
/// preempted often, but never for long. Two looks may be so near that the one switch between them, to a thread that runs once, is often: so
/// the consumer yields until the next look, and that decides.
const POLLS_PER_LOOK: u32 = 2048;
const TIME_PER_SWITCH: Duration = Duration::from_micros(300);
/// A yield that takes longer gave the processor to a thread that computes. Slices are longer, and a turn of dozens of polling threads is shorter.
pub(crate) const LONG_YIELD: Duration = Duration::from_millis(1);
/// Time in long yields that shows a thread that computes, if it is more than one `DRAIN`th of all time. A thread that polls uses a whole
/// slice until it is preempted, once in a while.
const LONG_YIELDS: Duration = Duration::from_millis(12);
const DRAIN: u32 = 8;
/// Longest pause; arriving packets end it. It is several times the row before it, so that the consumer has most of its share
/// left afterwards.
pub(crate) const PAUSE: Duration = Duration::from_micros(100);

impl EmptyPolls {
    /// Records a poll that found something.
    pub(crate) fn found(&mut self) {
        self.row = 0;
        self.last = None;
    }

    /// Returns whether the last poll was in vain and a short while ago. A consumer that yields since then is about to poll again, unless
    /// its processor has gone to a thread that computes.
    pub(crate) fn is_polling(&self, now: Time) -> bool {
        self.last
            .is_some_and(|last| now.is_within(LONG_YIELD, last))
    }

    /// Returns whether the last poll was in vain and is so long ago that the consumer has lost its processor, or does something else.
    pub(crate) fn is_away(&self, now: Time) -> bool {
        self.last
            .is_some_and(|last| !now.is_within(PREEMPTED, last))
    }

    /// Records an empty poll of `thread`. Returns what the caller is to do. `crowded` says whether the calling thread
    /// waited for its processor since it was last called: a hypervisor can cause a gap as well.
    pub(crate) fn polled(
        &mut self,
        oversubscription: &mut Oversubscription,
        now: Time,
        thread: usize,
        crowded: impl FnOnce() -> bool,
        look: impl FnOnce() -> Look,
    ) -> Idle {
        let last = self.last.replace(now);
        if last.is_some_and(|last| !now.is_within(PREEMPTED, last)) {
            if self.row >= POLLS_OF_A_LOOP && crowded() {
                oversubscription.preempted(now);
            }
            self.row = 0;
        }
        self.row += 1;
        if self
            .thread
            .replace(thread)
            .is_some_and(|last| last != thread)
        {
            self.turned = Some(now);
        }
        if !self.suspected && !oversubscription.is_present(now) {
            self.polls = self.polls.wrapping_add(1);
            if self.polls.is_multiple_of(POLLS_PER_LOOK)
                && let Some((switches, time)) = self.switches(now, thread, look())
                && switches.saturating_mul(TIME_PER_SWITCH.as_nanos() as u64)
                    >= time.as_nanos() as u64
            {
                (self.suspected, self.yields) = (true, 0);
            }
            return Idle::Poll;
        }
        if self.computing.is_present(now) {
            if !self.row.is_multiple_of(POLLS_PER_PAUSE) {
                return Idle::Poll;
            }
            self.last = None;
            return Idle::Pause;
        }
        if !self.row.is_multiple_of(self.polls_per_yield(now)) {
            return Idle::Poll;
        }
        self.yields = self.yields.wrapping_add(1);
        if self.yields.is_multiple_of(YIELDS_PER_LOOK) {
            let suspected = std::mem::take(&mut self.suspected);
            match self.switches(now, thread, look()) {
                Some((SWITCHES_PER_LOOK.., _)) if suspected => oversubscription.preempted(now),
                Some((SWITCHES_PER_LOOK.., _)) => oversubscription.lasts(now),
                _ => {}
            }
        }
        Idle::Yield
    }

    /// Returns the number of polls between two yields.
    fn polls_per_yield(&self, now: Time) -> u32 {
        match self.turned {
            Some(at) if now.is_within(TIME_OF_TURNS, at) => TURNS * POLLS_PER_YIELD,
            _ => POLLS_PER_YIELD,
        }
    }

    /// Returns the switches to other threads than the helper, and the time, since the last look; `None` if that was another thread's.
    fn switches(&mut self, now: Time, thread: usize, look: Look) -> Option<(u64, Duration)> {
        let last = self.looked.replace((thread, look, now));
        let (_, before, at) = last.filter(|(of, ..)| *of == thread)?;
        let runs = look.helper_runs.saturating_sub(before.helper_runs);
        let switches = look.switches.saturating_sub(before.switches);
        let others = switches.saturating_sub(SWITCHES_PER_RUN * runs);
        Some((others, now.since(at)))
    }

    /// Records a yield that took this long. The time to the next poll does not tell: the consumer may compute or sleep meanwhile.
    pub(crate) fn yielded(
        &mut self,
        oversubscription: &mut Oversubscription,
        now: Time,
        time: Duration,
    ) {
        if time < LONG_YIELD {
            return;
        }
        let since = self.drained.map_or(Duration::ZERO, |at| now.since(at));
        let level = self.long_yields.saturating_sub(since / DRAIN) + time;
        (self.long_yields, self.drained) = (level, Some(now));
        if level >= LONG_YIELDS {
            let until = self.computing.record(now);
            oversubscription.lasts(until);
            // After that, less shows that it has not ended.
            (self.long_yields, self.drained) = (LONG_YIELDS / 2, Some(until));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(micros: u64) -> Time {
        Time::from_nanos(1_000_000_000 + micros * 1000)
    }

    /// A consumer, and what the scheduler says about its thread.
    #[derive(Default)]
    struct Consumer {
        polls: EmptyPolls,
        state: Oversubscription,
        thread: usize,
        look: Look,
    }

    impl Consumer {
        /// Polls of half a microsecond each from `from` on. `crowded`: the thread waited for its processor. Returns what it did after
        /// each of them, which takes no time here.
        fn poll(&mut self, from: u64, count: u64, crowded: bool) -> Vec<Idle> {
            let one = |n| self.one(at(from + n / 2), crowded);
            (0..count).map(one).collect()
        }

        fn one(&mut self, now: Time, crowded: bool) -> Idle {
            let look = self.look;
            self.polls
                .polled(&mut self.state, now, self.thread, || crowded, || look)
        }

        /// Polls from `from` on for so many yields. Each takes `micros` and leads to another thread.
        fn yield_for(&mut self, from: u64, yields: u64, micros: u64) -> u64 {
            let (mut now, mut done) = (from, 0);
            while done < yields {
                now += 1;
                if self.one(at(now), true) == Idle::Yield {
                    self.look.switches += 1;
                    now += micros;
                    let time = Duration::from_micros(micros);
                    self.polls.yielded(&mut self.state, at(now), time);
                    done += 1;
                }
            }
            now
        }
    }

    fn count(idle: &[Idle], what: Idle) -> usize {
        idle.iter().filter(|one| **one == what).count()
    }

    #[test]
    fn a_polling_loop_yields_once_it_was_preempted() {
        let mut of = Consumer::default();
        assert_eq!(count(&of.poll(0, 1000, true), Idle::Poll), 1000);
        let idle = of.poll(4000, 320, true);
        assert_eq!(count(&idle, Idle::Yield), 80);
        assert_eq!(count(&idle, Idle::Pause), 0);
        // There is no yield before a full row.
        for n in 0..20 {
            of.polls.found();
            assert_eq!(count(&of.poll(4200 + n * 20, 3, true), Idle::Poll), 3);
        }
        of.polls.found();
        let idle = of.poll(30_000, 1000, true);
        assert_eq!(
            count(&idle, Idle::Poll),
            1000,
            "the preemption is forgotten"
        );
    }

    #[test]
    fn oversubscription_lasts_while_yields_lead_to_other_threads() {
        let mut of = Consumer::default();
        of.poll(0, 100, true);
        let end = of.yield_for(4000, 5000, 10);
        assert!(end > 4000 + 50_000 && of.state.is_present(at(end)));
        // Then each returns at once.
        let idle = of.poll(end, 100_000, true);
        assert_eq!(idle.last(), Some(&Idle::Poll));
    }

    #[test]
    fn a_consumer_that_is_preempted_often_and_briefly_yields() {
        for (micros_per_switch, micros_per_run, yields) in [
            (100, 1000, true),
            (1000, 1000, false),
            // The helper alone.
            (50, 100, false),
        ] {
            let mut of = Consumer::default();
            // An idle program's helper.
            of.look.helper_runs = 1_000_000;
            let mut idle = Vec::new();
            let mut by_yields = 0;
            for n in 0..20_000 {
                of.look.switches = n / 2 / micros_per_switch + by_yields;
                of.look.helper_runs = 1_000_000 + n / 2 / micros_per_run;
                // Messages arrive meanwhile.
                if n % 40 == 0 {
                    of.polls.found();
                }
                idle.push(of.one(at(n / 2), false));
                by_yields += u64::from(idle.last() == Some(&Idle::Yield));
            }
            assert_eq!(count(&idle, Idle::Yield) > 64, yields);
            assert_eq!(count(&idle, Idle::Pause), 0);
        }
    }

    /// Polls that find nothing take a twentieth of a microsecond here, so there are several looks in the time of one switch, and each switch is
    /// often. No yield leads to another thread.
    #[test]
    fn a_switch_to_a_thread_that_runs_once_leads_to_some_yields_only() {
        let (mut of, mut yields) = (Consumer::default(), 0);
        let switches = |n| n * 50 / 5_000_000;
        for n in 0..2_000_000 {
            of.look.switches = switches(n);
            let now = Time::from_nanos(1_000_000_000 + n * 50);
            yields += u64::from(of.one(now, false) == Idle::Yield);
        }
        let suspicions = switches(2_000_000 - 1);
        assert_eq!(yields, suspicions * u64::from(YIELDS_PER_LOOK));
        assert!(!of.state.is_present(Time::from_nanos(1_100_000_000)));
    }

    #[test]
    fn the_switches_of_two_threads_are_not_compared() {
        let mut of = Consumer::default();
        for n in 0..100_000 {
            of.thread = (n / 2048 % 2) as usize;
            of.look.switches = 1_000_000 * (n / 2048 % 2);
            assert_eq!(of.one(at(n / 2), false), Idle::Poll);
        }
    }

    #[test]
    fn threads_that_poll_in_turn_yield_less_often() {
        let mut of = Consumer::default();
        of.poll(0, 100, true);
        for n in 0_u64..640 {
            of.thread = usize::from(n / 8 % 2 == 0);
            let idle = of.one(at(4000 + n / 2), true);
            assert_eq!(idle == Idle::Yield, n % 64 == 63, "{n}");
        }
        // One of them goes on alone, after a while.
        of.thread = 0;
        of.state.preempted(at(30_000));
        assert_eq!(count(&of.poll(30_000, 320, true), Idle::Yield), 80);
    }

    #[test]
    fn a_consumer_pauses_beside_a_thread_that_computes() {
        let mut of = Consumer::default();
        of.poll(0, 100, true);
        // One that polls is preempted after a whole slice, once.
        let mut now = of.yield_for(4000, 1, 3000);
        now = of.yield_for(now, 1000, 10);
        let idle = of.poll(now, 64, true);
        assert_eq!(count(&idle, Idle::Pause), 0);
        now = of.yield_for(now + 32, 3, 5000);
        let idle = of.poll(now, 320, true);
        assert_eq!(count(&idle, Idle::Yield), 0);
        assert_eq!(count(&idle, Idle::Pause), 10);
        // Once this is forgotten, half of that is enough.
        of.polls.found();
        of.state.preempted(at(now + 30_000));
        now = of.yield_for(now + 30_000, 1, 9000);
        assert_eq!(count(&of.poll(now, 64, true), Idle::Pause), 2);
    }

    #[test]
    fn a_consumer_that_was_away_for_long_is_not_polling() {
        let mut of = Consumer::default();
        assert!(!of.polls.is_polling(at(0)));
        of.one(at(0), true);
        assert!(of.polls.is_polling(at(0)) && of.polls.is_polling(at(999)));
        assert!(!of.polls.is_polling(at(1000)));
        assert!(!of.polls.is_away(at(199)) && of.polls.is_away(at(200)));
        of.polls.found();
        assert!(!of.polls.is_polling(at(0)) && !of.polls.is_away(at(1000)));
    }

    #[test]
    fn work_between_polls_does_not_count_as_preemption() {
        let mut of = Consumer::default();
        // The consumer computes between a few polls.
        for n in 0..100 {
            assert_eq!(count(&of.poll(n * 1000, 4, true), Idle::Poll), 4);
        }
        assert_eq!(count(&of.poll(100_000, 1000, true), Idle::Poll), 1000);
        // The consumer sleeps between loops and is not preempted.
        assert_eq!(count(&of.poll(200_000, 1000, false), Idle::Poll), 1000);
        assert_eq!(count(&of.poll(300_000, 1000, false), Idle::Poll), 1000);
    }
}
