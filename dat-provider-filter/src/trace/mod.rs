//! The filter `trace`: counts and times calls and completions, and writes them to a file as JSON.
//!
//! `histogram.rs` counts times, `span.rs` has the spans of operations.

mod histogram;
mod span;

use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

use dat_abi::ret::{DAT_SUCCESS, TYPE_MASK};
use dat_abi::types::{DatHandle, event_number};
use dat_abi::v2_0::types::DatEvent;
use dat_core::error::{Error, Kind};
use serde_json::{Value, json};

use crate::filter::{Delivery, Endpoint, Filter, Operation, Post, Queue};
use crate::outstanding::{AllOutstanding, Outstanding};
use crate::posts::Posted;
use crate::slots::{Call, Slot};
use histogram::Histogram;

/// Version of the report's form.
const FORM: u32 = 1;

/// What is counted of one function, or of one kind of operation.
#[derive(Debug, Default)]
struct Stats {
    count: AtomicU64,
    failures: AtomicU64,
    /// Calls that found nothing: an empty queue, or a time-out. They are no failures.
    empty: AtomicU64,
    bytes: AtomicU64,
    times: Histogram,
}

impl Stats {
    fn clear(&self) {
        for count in [&self.count, &self.failures, &self.empty, &self.bytes] {
            count.store(0, Ordering::Relaxed);
        }
        self.times.clear();
    }

    fn json(&self, key: &str, name: &str) -> Option<Value> {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        (get(&self.count) > 0).then(|| {
            json!({
                key: name,
                "count": get(&self.count),
                "failures": get(&self.failures),
                "empty": get(&self.empty),
                "bytes": get(&self.bytes),
                "p50_ns": self.times.percentile(50),
                "p99_ns": self.times.percentile(99),
                "max_ns": self.times.largest(),
                "total_ns": self.times.sum(),
            })
        })
    }
}

/// The filter of one entry.
#[derive(Debug)]
pub(crate) struct Trace {
    name: String,
    inner: String,
    file: String,
    calls: Vec<Stats>,
    completions: Vec<Stats>,
    outstanding: AllOutstanding,
    /// Process that the counts are of; 0 before the first IA. A forked child inherits them.
    process: AtomicU32,
}

impl Trace {
    /// Returns a filter that has counted nothing. In `file`, `%p` stands for the process id.
    pub(crate) fn new(name: &str, inner: &str, file: &str) -> Self {
        Self {
            name: name.to_owned(),
            inner: inner.to_owned(),
            file: file.to_owned(),
            calls: Slot::ALL.iter().map(|_| Stats::default()).collect(),
            completions: Operation::ALL.iter().map(|_| Stats::default()).collect(),
            outstanding: AllOutstanding::new(),
            process: AtomicU32::new(0),
        }
    }

    fn of_call(&self, slot: Slot) -> &Stats {
        &self.calls[slot as usize]
    }

    fn completed(&self, queue: Queue, cookie: u64, status: u32, bytes: u32) {
        let Some(post) = self.outstanding.complete(queue, cookie) else {
            return;
        };
        let stats = &self.completions[post.operation as usize];
        stats.count.fetch_add(1, Ordering::Relaxed);
        stats.bytes.fetch_add(bytes.into(), Ordering::Relaxed);
        if status != 0 {
            stats.failures.fetch_add(1, Ordering::Relaxed);
        }
        let latency = nanoseconds(post.at.elapsed());
        stats.times.add(latency);
        span::completed(&post.span, status, bytes, latency);
    }

    /// Returns the report.
    fn json(&self) -> Value {
        let of = |key, names: &mut dyn Iterator<Item = (&'static str, &Stats)>| -> Vec<Value> {
            names
                .filter_map(|(name, stats)| stats.json(key, name))
                .collect()
        };
        let program = std::env::current_exe().unwrap_or_default();
        json!({
            "form": FORM,
            "ia": self.name,
            "inner": self.inner,
            "process": std::process::id(),
            "program": program.display().to_string(),
            "calls": of("call", &mut Slot::ALL.iter().map(|(slot, name)| (*name, self.of_call(*slot)))),
            "completions": of("operation", &mut Operation::ALL.iter().map(|operation| {
                (operation.word(), &self.completions[*operation as usize])
            })),
        })
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Returns true for the codes of a call that found nothing.
fn is_empty(code: u32) -> bool {
    [Kind::QueueEmpty, Kind::TimeoutExpired]
        .map(|kind| Error::of(kind).code() & TYPE_MASK)
        .contains(&(code & TYPE_MASK))
}

impl Filter for Trace {
    fn opened(&self) {
        let own = std::process::id();
        let before = self.process.swap(own, Ordering::AcqRel);
        if before != 0 && before != own {
            self.calls
                .iter()
                .chain(&self.completions)
                .for_each(Stats::clear);
            self.outstanding.clear_all();
        }
    }

    fn called(&self, slot: Slot, handle: DatHandle, code: u32, time: Duration) {
        let nanos = nanoseconds(time);
        tracing::trace!(call = slot.name(), handle, code, nanos);
        let stats = self.of_call(slot);
        stats.count.fetch_add(1, Ordering::Relaxed);
        if is_empty(code) {
            stats.empty.fetch_add(1, Ordering::Relaxed);
        } else if code != DAT_SUCCESS {
            stats.failures.fetch_add(1, Ordering::Relaxed);
        }
        stats.times.add(nanos);
    }

    fn post(&self, post: &Post, inner: &mut dyn FnMut() -> Posted<'static>) -> u32 {
        let span = span::of(post);
        let outstanding = Outstanding::new(post, span.clone());
        let number = self.outstanding.begin(post.queue, outstanding);
        let done = inner();
        let bytes = done.segments.bytes();
        if done.code == DAT_SUCCESS {
            span::accepted(&span, bytes);
        } else {
            span::refused(&span, done.code);
            self.outstanding.refused(post.queue, number);
        }
        // The thread that takes the completion ends the span.
        drop(span);
        self.of_call(post.slot)
            .bytes
            .fetch_add(bytes, Ordering::Relaxed);
        done.code
    }

    fn event(&self, call: &Call, event: &mut DatEvent) -> Delivery {
        let data = &event.event_data;
        match event.event_number {
            event_number::DTO_COMPLETION => {
                // SAFETY: the data of this event.
                let dto = unsafe { data.dto_completion_event_data };
                let queue = self.outstanding.queue_of(call.handle(), &dto);
                self.completed(queue, dto.user_cookie, dto.status, dto.transfered_length);
            }
            event_number::RMR_BIND_COMPLETION => {
                // SAFETY: the data of this event.
                let bind = unsafe { data.rmr_completion_event_data };
                let queue = Queue::Requests(bind.rmr_handle);
                self.completed(queue, bind.user_cookie, bind.status, 0);
            }
            _ => {}
        }
        Delivery::Pass
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

    fn report(&self) {
        let process = std::process::id();
        if self.process.load(Ordering::Acquire) != process {
            return;
        }
        let file = self.file.replace("%p", &process.to_string());
        if let Err(error) = write(Path::new(&file), &format!("{:#}\n", self.json())) {
            dat_abi::log::say(&format!(
                "{}: cannot write the trace to {file:?}: {error}",
                self.name
            ));
        }
    }
}

/// Writes a file that appears complete or not at all.
fn write(file: &Path, text: &str) -> std::io::Result<()> {
    let mut new = file.as_os_str().to_owned();
    new.push(".new");
    std::fs::write(&new, text)?;
    std::fs::rename(&new, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIME: Duration = Duration::from_micros(3);

    fn of<'a>(report: &'a Value, list: &str, key: &str, name: &str) -> &'a Value {
        let all = report[list].as_array().expect("a list");
        all.iter()
            .find(|one| one[key] == name)
            .unwrap_or(&Value::Null)
    }

    #[test]
    fn empty_queues_are_no_failures() {
        let trace = Trace::new("t", "inner", "/nowhere");
        let empty = Error::of(Kind::QueueEmpty);
        for code in [
            0,
            empty.code(),
            empty.without_class().code(),
            Error::of(Kind::InternalError).code(),
        ] {
            trace.called(Slot::evd_dequeue, 1, code, TIME);
        }
        let report = trace.json();
        let dequeue = of(&report, "calls", "call", "dat_evd_dequeue");
        assert_eq!(
            (&dequeue["count"], &dequeue["empty"], &dequeue["failures"]),
            (&json!(4), &json!(2), &json!(1))
        );
        assert_eq!(dequeue["max_ns"], 3000);
        assert_eq!(
            report["calls"].as_array().map(Vec::len),
            Some(1),
            "what was not called is left out"
        );
    }
}
