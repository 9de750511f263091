//! The lines that an engine logs.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Level, Metadata, Subscriber};

/// Collects the lines of a level and of those above it.
#[derive(Clone)]
pub struct Lines {
    level: Level,
    lines: Arc<Mutex<Vec<String>>>,
}

impl Lines {
    pub fn from(level: Level) -> Self {
        let lines = Arc::default();
        Self { level, lines }
    }

    pub fn all(&self) -> Vec<String> {
        self.lines.lock().unwrap().clone()
    }
}

impl Visit for Lines {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let mut all = self.lines.lock().unwrap();
        let line = all.last_mut().expect("a line began");
        write!(line, " {field}={value:?}").unwrap();
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= self.level
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        self.lines.lock().unwrap().push(String::new());
        event.record(&mut self.clone());
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}
