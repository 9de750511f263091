//! Messages on standard error, if the environment requests them. A shared object has its own copy of `tracing`, to which the
//! program cannot subscribe, so this module subscribes. Programs try the entries of dat.conf in turn and expect no output for
//! those that do not open: nothing is written by default, except by [`say`].
//!
//! `DAT_LOG` is `error`, `warn`, `info`, `debug` or `trace`. If only DAPL's `DAPL_DBG_TYPE` or `DAT_DBG_TYPE` is set, to a value
//! other than 0, warnings and errors are written.
//!
//! One place in the code writes a hundred lines a minute at most (`limit`), unless `DAT_LOG` is `debug` or `trace`. This does not concern
//! what must be seen, nor the lines of a transport in C, which all come from one place: such an event has the name [`UNLIMITED`].

mod limit;
mod line;
mod spans;

use std::io::Write as _;
use std::sync::Once;
use std::time::Instant;

use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use limit::{Limit, PERIOD, Verdict};
use line::Line;
use spans::Spans;

/// Name of events that are always written.
pub const UNLIMITED: &str = "unlimited";

/// Subscriber that writes events and closed spans of this level or a more severe one, one line each.
struct Stderr {
    level: LevelFilter,
    spans: Spans,
    limit: Limit,
}

impl Stderr {
    fn new(level: LevelFilter) -> Self {
        Self {
            level,
            spans: Spans::default(),
            limit: Limit::default(),
        }
    }

    /// Returns what becomes of a line. A consumer that requests all of them gets all of them.
    fn verdict(&self, metadata: &Metadata<'_>) -> Verdict {
        if self.level >= LevelFilter::DEBUG || metadata.name() == UNLIMITED {
            return Verdict::Write { left_out: 0 };
        }
        self.limit.count(metadata.callsite(), Instant::now())
    }

    /// Returns the line of an event, unless it is left out.
    fn line(&self, event: &Event<'_>) -> Option<Line> {
        let verdict = self.verdict(event.metadata());
        if verdict == Verdict::LeaveOut {
            return None;
        }
        let mut line = Line::default();
        event.record(&mut line);
        match verdict {
            Verdict::Write { left_out } if left_out > 0 => {
                line.append(&format!(" (before it {left_out} such lines were left out)"));
            }
            Verdict::WriteLast => {
                let seconds = PERIOD.as_secs();
                line.append(&format!(
                    " (further lines of this kind are left out, up to {seconds} s from the first one on; DAT_LOG=debug shows all)"
                ));
            }
            _ => {}
        }
        Some(line)
    }
}

impl Subscriber for Stderr {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.level)
    }

    fn event(&self, event: &Event<'_>) {
        if let Some(line) = self.line(event) {
            line.write(event.metadata());
        }
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        self.spans.add(span)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        self.spans.record(id, values);
    }

    fn clone_span(&self, id: &Id) -> Id {
        self.spans.share(id);
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let closed = self.spans.release(&id);
        if let Some(span) = &closed {
            span.line.write(span.metadata);
        }
        closed.is_some()
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

/// Returns the level that the environment requests; `variable` reads the environment.
fn level(variable: impl Fn(&str) -> Option<String>) -> LevelFilter {
    if let Some(word) = variable("DAT_LOG") {
        return word.trim().parse().unwrap_or(LevelFilter::WARN);
    }
    let is_set = |name| variable(name).is_some_and(|v| !matches!(v.trim(), "" | "0" | "0x0"));
    if is_set("DAPL_DBG_TYPE") || is_set("DAT_DBG_TYPE") {
        LevelFilter::WARN
    } else {
        LevelFilter::OFF
    }
}

/// Begins to write the messages of this shared object, if the environment requests any. A Rust program that links this crate and
/// has a subscriber of its own keeps it.
pub fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let level = level(|name| std::env::var(name).ok());
        if level != LevelFilter::OFF {
            tracing::subscriber::set_global_default(Stderr::new(level)).ok();
        }
    });
}

/// Writes an error that the user must see even if the environment requests no messages. `DAT_LOG=off` suppresses it.
pub fn say(text: &str) {
    if tracing::enabled!(tracing::Level::ERROR) {
        tracing::error!(name: UNLIMITED, "{text}");
    } else if std::env::var_os("DAT_LOG").is_none() {
        let line = format!("dat: {text}\n");
        // An error cannot be reported.
        let _ = dat_os::cancel::defer(|| std::io::stderr().write_all(line.as_bytes()));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    fn of(pairs: &[(&str, &str)]) -> LevelFilter {
        level(|name| {
            pairs
                .iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn nothing_is_written_unless_requested() {
        assert_eq!(of(&[]), LevelFilter::OFF);
        assert_eq!(of(&[("DAPL_DBG_TYPE", "0")]), LevelFilter::OFF);
        assert_eq!(of(&[("DAPL_DBG_TYPE", "0xffff")]), LevelFilter::WARN);
        assert_eq!(of(&[("DAT_DBG_TYPE", "1")]), LevelFilter::WARN);
        assert_eq!(of(&[("DAT_LOG", "debug")]), LevelFilter::DEBUG);
        assert_eq!(
            of(&[("DAT_LOG", "off"), ("DAPL_DBG_TYPE", "1")]),
            LevelFilter::OFF
        );
        assert_eq!(of(&[("DAT_LOG", "loud")]), LevelFilter::WARN);
    }

    #[test]
    fn events_of_higher_levels_are_not_built() {
        let subscriber = Stderr::new(LevelFilter::WARN);
        assert_eq!(subscriber.max_level_hint(), Some(LevelFilter::WARN));
        tracing::subscriber::with_default(subscriber, || {
            assert!(tracing::enabled!(tracing::Level::ERROR));
            assert!(!tracing::enabled!(tracing::Level::INFO));
        });
    }

    /// Keeps the lines.
    struct Keep(Stderr, Arc<Mutex<Vec<String>>>);

    impl Subscriber for Keep {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }

        fn event(&self, event: &Event<'_>) {
            let text = self.0.line(event).map(|line| line.text(event.metadata()));
            self.1.lock().unwrap().extend(text);
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            self.0.new_span(span)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
    }

    fn lines_of(level: LevelFilter, logs: impl FnOnce()) -> Vec<String> {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let keep = Keep(Stderr::new(level), Arc::clone(&lines));
        tracing::subscriber::with_default(keep, logs);
        std::mem::take(&mut *lines.lock().unwrap())
    }

    #[test]
    fn the_lines_of_a_place_are_bounded() {
        let lines = lines_of(LevelFilter::WARN, || {
            for n in 0..250 {
                tracing::warn!(n, "a peer");
                tracing::warn!("another place {n}");
            }
        });
        assert_eq!(lines.len(), 200);
        let last = lines.iter().rfind(|line| line.contains("a peer")).unwrap();
        assert!(last.contains(" n=99 (further lines"), "{last}");
    }

    #[test]
    fn lines_that_must_be_seen_and_those_of_one_who_requests_all_are_not() {
        let warn = || (0..250).for_each(|n| tracing::warn!("{n}"));
        assert_eq!(lines_of(LevelFilter::DEBUG, warn).len(), 250);
        let said = || (0..250).for_each(|n| say(&n.to_string()));
        assert_eq!(lines_of(LevelFilter::WARN, said).len(), 250);
    }
}
