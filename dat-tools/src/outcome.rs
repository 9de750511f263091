//! What a subcommand returns.

/// Result of a subcommand; an error's text is printed for the user.
pub(crate) type Outcome = Result<(), Box<dyn std::error::Error>>;
