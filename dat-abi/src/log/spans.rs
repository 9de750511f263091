//! Open spans: each becomes a line when it closes.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use dat_os::mutex::lock;

use tracing::Metadata;
use tracing::span::{Attributes, Id, Record};

use super::line::Line;

/// A span that is open.
#[derive(Debug)]
pub(super) struct Open {
    /// Its name and fields.
    pub(super) line: Line,
    /// Its place and level.
    pub(super) metadata: &'static Metadata<'static>,
    handles: usize,
}

/// The open spans. Threads use them at the same time.
#[derive(Debug, Default)]
pub(super) struct Spans(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    last: u64,
    open: HashMap<u64, Open>,
}

impl Spans {
    fn table(&self) -> MutexGuard<'_, Table> {
        lock(&self.0)
    }

    /// Adds a span with one handle.
    pub(super) fn add(&self, span: &Attributes<'_>) -> Id {
        let metadata = span.metadata();
        let mut line = Line::new(metadata.name());
        span.record(&mut line);
        let mut table = self.table();
        table.last += 1;
        let number = table.last;
        let open = Open {
            line,
            metadata,
            handles: 1,
        };
        table.open.insert(number, open);
        Id::from_u64(number)
    }

    /// Adds fields to a span.
    pub(super) fn record(&self, id: &Id, values: &Record<'_>) {
        if let Some(open) = self.table().open.get_mut(&id.into_u64()) {
            values.record(&mut open.line);
        }
    }

    /// Counts one more handle of a span.
    pub(super) fn share(&self, id: &Id) {
        if let Some(open) = self.table().open.get_mut(&id.into_u64()) {
            open.handles += 1;
        }
    }

    /// Counts one handle less; returns the span after its last one.
    pub(super) fn release(&self, id: &Id) -> Option<Open> {
        let mut table = self.table();
        let open = table.open.get_mut(&id.into_u64())?;
        open.handles -= 1;
        match open.handles {
            0 => table.open.remove(&id.into_u64()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tracing::field::Empty;
    use tracing::{Event, Subscriber};

    use super::*;

    /// Keeps the texts of closed spans.
    #[derive(Clone, Default)]
    struct Closed(Arc<(Spans, Mutex<Vec<String>>)>);

    impl Subscriber for Closed {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, span: &Attributes<'_>) -> Id {
            self.0.0.add(span)
        }
        fn record(&self, id: &Id, values: &Record<'_>) {
            self.0.0.record(id, values);
        }
        fn record_follows_from(&self, _: &Id, _: &Id) {}
        fn event(&self, _: &Event<'_>) {}
        fn enter(&self, _: &Id) {}
        fn exit(&self, _: &Id) {}
        fn clone_span(&self, id: &Id) -> Id {
            self.0.0.share(id);
            id.clone()
        }
        fn try_close(&self, id: Id) -> bool {
            let closed = self.0.0.release(&id);
            let text = closed.map(|span| span.line.text(span.metadata));
            self.0.1.lock().expect("no panic").extend(text);
            true
        }
    }

    #[test]
    fn a_span_is_a_line_when_its_last_handle_goes() {
        let closed = Closed::default();
        tracing::subscriber::with_default(closed.clone(), || {
            let first = tracing::info_span!(target: "a::b", "first", size = 3, time = Empty);
            let other = tracing::info_span!(target: "a::b", "other");
            let shared = first.clone();
            drop(first);
            assert!(closed.0.1.lock().expect("no panic").is_empty());
            drop(other);
            shared.record("time", 7);
        });
        let own = std::process::id();
        let expected = [
            format!("a[{own}] info: other\n"),
            format!("a[{own}] info: first size=3 time=7\n"),
        ];
        assert_eq!(*closed.0.1.lock().expect("no panic"), expected);
    }
}
