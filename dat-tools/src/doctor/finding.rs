//! What `dat doctor` finds.

use std::path::Path;

use serde::Serialize;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    Ok,
    Warning,
    Fault,
    /// Could not be found out.
    Unknown,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Finding {
    /// What was examined.
    pub(super) check: &'static str,
    pub(super) state: State,
    /// What was found.
    pub(super) text: String,
    /// Command or line that mends it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) remedy: Option<String>,
}

impl Finding {
    pub(crate) fn ok(check: &'static str, text: impl Into<String>) -> Self {
        Self {
            check,
            state: State::Ok,
            text: text.into(),
            remedy: None,
        }
    }

    pub(crate) fn bad(
        check: &'static str,
        state: State,
        text: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            check,
            state,
            text: text.into(),
            remedy: Some(remedy.into()),
        }
    }
}

/// Returns a word as the shell reads it.
pub(crate) fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_./:%@+,".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// Returns the command that edits a file.
pub(crate) fn edit(file: &Path) -> String {
    format!("${{EDITOR:-vi}} {}", quoted(&file.display().to_string()))
}
