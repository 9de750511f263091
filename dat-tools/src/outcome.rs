//! What a subcommand returns.

use std::error::Error;
use std::fmt;

/// Result of a subcommand; an error's text is printed for the user.
pub(crate) type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The error of a subcommand that has printed what is wrong.
#[derive(Debug)]
pub(crate) struct Reported;

impl fmt::Display for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("something is wrong")
    }
}

impl Error for Reported {}

/// The error of a command line that is wrong in what only the subcommand can find out; the text is printed for the user.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Usage {}

/// The error of a subcommand that has printed what is wrong, and ends the command with a status of its own.
#[derive(Debug)]
pub(crate) struct Status(pub(crate) u8);

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "status {}", self.0)
    }
}

impl Error for Status {}
