//! The text of an event or a span: one line.

use std::fmt::{self, Write as _};
use std::io::Write as _;

use tracing::Metadata;
use tracing::field::{Field, Visit};

/// A message, and other fields as `name=value`.
#[derive(Debug, Default)]
pub(super) struct Line {
    message: String,
    fields: String,
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a string cannot fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name => write!(self.fields, " {name}={value:?}"),
        };
    }
}

impl Line {
    /// Returns an empty line with this message.
    pub(super) fn new(message: &str) -> Self {
        Self {
            message: message.to_owned(),
            fields: String::new(),
        }
    }

    /// Adds `text` after the fields.
    pub(super) fn append(&mut self, text: &str) {
        self.fields.push_str(text);
    }

    /// Returns the text.
    pub(super) fn text(&self, metadata: &Metadata<'_>) -> String {
        format!(
            "{}[{}] {}: {}{}\n",
            metadata.target().split("::").next().unwrap_or_default(),
            std::process::id(),
            metadata.level().as_str().to_ascii_lowercase(),
            self.message,
            self.fields
        )
    }

    /// Writes the line to standard error.
    pub(super) fn write(&self, metadata: &Metadata<'_>) {
        // One write, so that lines of several processes do not mix. An error cannot be reported.
        let text = self.text(metadata);
        let _ = dat_os::cancel::defer(|| std::io::stderr().write_all(text.as_bytes()));
    }
}
