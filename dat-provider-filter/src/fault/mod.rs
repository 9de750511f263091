//! The filter `fault`: does to calls and completions what a script says, and writes each fault to a log.
//!
//! `script.rs` parses the script, `memory.rs` changes bytes.

mod memory;
mod script;

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use dat_abi::ret::DAT_SUCCESS;
use dat_abi::types::{DatHandle, event_number};
use dat_abi::v2_0::types::DatEvent;
use dat_os::mutex::lock;
use serde_json::json;

use crate::filter::{Delivery, Endpoint, Filter, Operation, Post, Queue};
use crate::outstanding::{AllOutstanding, Outstanding};
use crate::posts::Posted;
use crate::slots::Call;
use script::{Rule, Target, What, When};

pub(crate) use script::{ScriptError, parse};

/// The rules of a filter that has a seed and no script.
pub(crate) const BY_SEED: &str = "\
dat_ep_post_send chance=0.002 fail=DAT_INSUFFICIENT_RESOURCES
dat_ep_post_rdma_write chance=0.002 fail=DAT_INSUFFICIENT_RESOURCES
dat_ep_connect chance=0.05 fail=DAT_INSUFFICIENT_RESOURCES
completion:any chance=0.01 delay=20
completion:any chance=0.001 disconnect
";

/// `DAT_CLOSE_ABRUPT_FLAG`.
const ABRUPT: u32 = 0;

/// The filter of one entry.
#[derive(Debug)]
pub(crate) struct Fault {
    rules: Vec<Rule>,
    seed: u64,
    file: String,
    /// Numbers of the calls or completions that each rule has seen.
    seen: Vec<AtomicU64>,
    outstanding: AllOutstanding,
    log: Mutex<Option<File>>,
    begun: Mutex<Option<Instant>>,
    /// Process that the numbers are of; 0 before the first IA.
    process: AtomicU32,
}

/// A number that depends on all of these and on nothing else (SplitMix64).
fn hash(seed: u64, rule: usize, number: u64, salt: u64) -> u64 {
    let mut z = seed;
    for word in [rule as u64, number, salt] {
        z = z.wrapping_add(word).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
    }
    z
}

/// Returns a hash as a number from 0 up to, but not including, 1.
fn fraction(hash: u64) -> f64 {
    (hash >> 11) as f64 / (1_u64 << 53) as f64
}

/// A rule that applies now.
#[derive(Clone, Copy)]
struct Due<'a> {
    rule: &'a Rule,
    index: usize,
    /// Number of the call or completion, from 1.
    number: u64,
}

impl Fault {
    /// Returns a filter that has done nothing. In `file`, the log, `%p` stands for the process id.
    pub(crate) fn new(rules: Vec<Rule>, seed: u64, file: &str) -> Self {
        Self {
            seen: rules.iter().map(|_| AtomicU64::new(0)).collect(),
            rules,
            seed,
            file: file.to_owned(),
            outstanding: AllOutstanding::new(),
            log: Mutex::new(None),
            begun: Mutex::new(None),
            process: AtomicU32::new(0),
        }
    }

    fn age(&self) -> Duration {
        let begun = *lock(&self.begun);
        begun.map_or(Duration::ZERO, |begun| begun.elapsed())
    }

    /// Counts a call or completion for each rule whose target it is, and returns those that apply.
    fn due(&self, is_target: impl Fn(Target) -> bool) -> Vec<Due<'_>> {
        let mut due = Vec::new();
        for (index, rule) in self.rules.iter().enumerate() {
            if !is_target(rule.target) {
                continue;
            }
            // Of such a rule only what comes after the time has a number.
            if matches!(rule.when, When::After(time) if self.age() < time) {
                continue;
            }
            let number = self.seen[index].fetch_add(1, Ordering::Relaxed) + 1;
            let applies = match rule.when {
                When::Nth(n) => number == n,
                When::Every(n) => number.is_multiple_of(n),
                When::Chance(p) => fraction(hash(self.seed, index, number, 0)) < p,
                When::After(_) => number == 1,
            };
            if applies {
                due.push(Due {
                    rule,
                    index,
                    number,
                });
            }
        }
        due
    }

    /// Writes a fault to the log, before it happens: after a kill there is no time.
    fn record(&self, due: Due<'_>, handle: DatHandle, detail: &str) {
        let line = json!({
            "process": std::process::id(),
            "milliseconds": u64::try_from(self.age().as_millis()).unwrap_or(u64::MAX),
            "line": due.rule.line,
            "rule": due.rule.text,
            "number": due.number,
            "handle": format!("{handle:#x}"),
            "detail": detail,
        });
        tracing::debug!(fault = %line);
        let mut log = lock(&self.log);
        if log.is_none() {
            let file = self.file.replace("%p", &std::process::id().to_string());
            match OpenOptions::new()
                .create(true)
                .append(true)
                .open(Path::new(&file))
            {
                Ok(opened) => *log = Some(opened),
                Err(error) => {
                    tracing::error!("cannot write the log of faults to {file:?}: {error}");
                }
            }
        }
        if let Some(log) = &mut *log {
            // One write of a whole line; a full disk costs the line only.
            let _ = log.write_all(format!("{line}\n").as_bytes());
        }
    }

    fn kill(&self, due: Due<'_>, handle: DatHandle) {
        self.record(due, handle, "");
        // SAFETY: ends this process.
        unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    }

    fn disconnect(&self, due: Due<'_>, call: &Call, ep: DatHandle) {
        let Some(slot) = call.inner().ep_disconnect else {
            return;
        };
        // SAFETY: the slot takes any endpoint of its provider; one that is gone is refused by ours, and a completion's is there.
        let code = unsafe { slot(ep, ABRUPT) };
        self.record(due, ep, &format!("dat_ep_disconnect returned {code:#x}"));
    }

    fn corrupt(
        &self,
        due: Due<'_>,
        ep: DatHandle,
        post: Option<&Outstanding>,
        length: u32,
        bytes: u64,
    ) {
        let length = u64::from(length);
        let Some(post) = post.filter(|_| length > 0) else {
            self.record(due, ep, "nothing was transferred, so nothing is corrupted");
            return;
        };
        let mut done = Vec::new();
        for salt in 1..=bytes.min(length) {
            let random = hash(self.seed, due.index, due.number, salt);
            // Never 0: each chosen byte differs afterwards, unless it is chosen twice.
            let mask = 1 << (random >> 61);
            let at = random % length;
            let address = memory::address(&post.segments, at);
            if address.is_some_and(|address| memory::invert(address, mask)) {
                done.push(format!("byte {at} ^ {mask:#04x}"));
            }
        }
        self.record(due, ep, &format!("of {length} bytes: {}", done.join(", ")));
    }

    /// Returns the post of a completion and its operation, as far as they are known.
    fn post_of(&self, queue: Queue, cookie: u64) -> (Option<Outstanding>, Option<Operation>) {
        let post = self.outstanding.complete(queue, cookie);
        let usual = match queue {
            Queue::Receives(_) => Some(Operation::Receive),
            Queue::Requests(_) => None,
        };
        let operation = post.as_ref().map(|post| post.operation).or(usual);
        (post, operation)
    }

    fn completed(&self, call: &Call, completion: &mut Completion<'_>) -> Delivery {
        let (queue, handle) = (completion.queue, completion.handle);
        let (post, operation) = self.post_of(queue, completion.cookie);
        let is_target = |target| match target {
            Target::Completion(None) => true,
            Target::Completion(wanted) => wanted == operation,
            Target::Call(_) => false,
        };
        let mut delivery = Delivery::Pass;
        for due in self.due(is_target) {
            match due.rule.what {
                What::Drop => {
                    self.record(due, handle, "");
                    delivery = Delivery::Drop;
                }
                What::Delay(time) => {
                    self.record(due, handle, "");
                    std::thread::sleep(time);
                }
                What::FailCompletion(status) => {
                    self.record(
                        due,
                        handle,
                        &format!("the status was {}", completion.status),
                    );
                    *completion.status = status;
                }
                What::Corrupt(bytes) => {
                    let may = *completion.status == 0
                        && matches!(operation, Some(Operation::Receive | Operation::Read));
                    let length = if may { completion.length } else { 0 };
                    self.corrupt(due, handle, post.as_ref(), length, bytes);
                }
                What::Disconnect if operation == Some(Operation::Bind) => {
                    self.record(due, handle, "a bind's completion names no endpoint");
                }
                What::Disconnect => self.disconnect(due, call, handle),
                What::Kill => self.kill(due, handle),
                What::FailCall(_) => {}
            }
        }
        delivery
    }
}

/// What the events of DTOs and binds have in common.
struct Completion<'a> {
    queue: Queue,
    handle: DatHandle,
    cookie: u64,
    status: &'a mut u32,
    length: u32,
}

impl Filter for Fault {
    fn opened(&self) {
        let own = std::process::id();
        if self.process.swap(own, Ordering::AcqRel) != own {
            self.seen
                .iter()
                .for_each(|seen| seen.store(0, Ordering::Relaxed));
            self.outstanding.clear_all();
            *lock(&self.log) = None;
            *lock(&self.begun) = Some(Instant::now());
        }
    }

    fn before(&self, call: &Call) -> Option<u32> {
        let mut code = None;
        for due in self.due(|target| target == Target::Call(call.slot())) {
            match due.rule.what {
                What::Drop => {
                    self.record(due, call.handle(), "");
                    code = Some(DAT_SUCCESS);
                }
                What::Delay(time) => {
                    self.record(due, call.handle(), "");
                    std::thread::sleep(time);
                }
                What::FailCall(error) => {
                    self.record(due, call.handle(), "");
                    code = Some(error);
                }
                What::Disconnect => self.disconnect(due, call, call.handle()),
                What::Kill => self.kill(due, call.handle()),
                What::FailCompletion(_) | What::Corrupt(_) => {}
            }
        }
        code
    }

    fn post(&self, post: &Post, inner: &mut dyn FnMut() -> Posted<'static>) -> u32 {
        let outstanding = Outstanding::new(post, tracing::Span::none());
        let number = self.outstanding.begin(post.queue, outstanding);
        let done = inner();
        if done.code == DAT_SUCCESS {
            let segments = done.segments.iter().collect();
            self.outstanding.accepted(post.queue, number, segments);
        } else {
            self.outstanding.refused(post.queue, number);
        }
        done.code
    }

    fn event(&self, call: &Call, event: &mut DatEvent) -> Delivery {
        match event.event_number {
            event_number::DTO_COMPLETION => {
                // SAFETY: the data of this event.
                let dto = unsafe { &mut event.event_data.dto_completion_event_data };
                let queue = self.outstanding.queue_of(call.handle(), dto);
                let mut completion = Completion {
                    queue,
                    handle: dto.ep_handle,
                    cookie: dto.user_cookie,
                    status: &mut dto.status,
                    length: dto.transfered_length,
                };
                self.completed(call, &mut completion)
            }
            event_number::RMR_BIND_COMPLETION => {
                // SAFETY: the data of this event.
                let bind = unsafe { &mut event.event_data.rmr_completion_event_data };
                let mut completion = Completion {
                    queue: Queue::Requests(bind.rmr_handle),
                    handle: bind.rmr_handle,
                    cookie: bind.user_cookie,
                    status: &mut bind.status,
                    length: 0,
                };
                self.completed(call, &mut completion)
            }
            _ => Delivery::Pass,
        }
    }

    fn emptied(&self, ep: DatHandle) {
        self.outstanding.clear(ep);
    }

    fn freed(&self, ep: DatHandle) {
        self.outstanding.remove(ep);
    }

    fn created(&self, ep: DatHandle, endpoint: Endpoint) {
        self.outstanding.add(ep, endpoint);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::slots::Slot;

    fn applied(script: &str, seed: u64, calls: usize) -> Vec<u64> {
        let fault = Fault::new(parse(script).expect("a script"), seed, "/dev/null");
        let is_target = |target| target == Target::Call(Slot::pz_create);
        (0..calls)
            .flat_map(|_| {
                fault
                    .due(is_target)
                    .iter()
                    .map(|due| due.number)
                    .collect::<Vec<_>>()
            })
            .collect()
    }

    #[test]
    fn numbers_multiples_and_chances_choose_calls() {
        assert_eq!(applied("dat_pz_create nth=3 kill", 0, 10), [3]);
        assert_eq!(applied("dat_pz_create every=4 kill", 0, 10), [4, 8]);
        assert!(applied("dat_pz_free nth=1 kill", 0, 10).is_empty());
        assert_eq!(applied("dat_pz_create after=0 kill", 0, 10), [1]);
        assert!(applied("dat_pz_create after=100000 kill", 0, 10).is_empty());
    }

    #[test]
    fn a_seed_gives_the_same_faults_each_time_and_another_seed_others() {
        let script = "dat_pz_create chance=0.25 kill";
        let first = applied(script, 7, 1000);
        assert_eq!(first, applied(script, 7, 1000));
        assert_ne!(first, applied(script, 8, 1000));
        assert!((180..320).contains(&first.len()), "{}", first.len());
        assert!(applied("dat_pz_create chance=0 kill", 7, 1000).is_empty());
        assert_eq!(applied("dat_pz_create chance=1 kill", 7, 10).len(), 10);
    }

    #[test]
    fn the_rules_of_a_seed_are_a_script() {
        assert_eq!(parse(BY_SEED).map(|rules| rules.len()), Ok(5));
    }
}
