//! Standard output. A reader that goes away, and a full disk, end the command without a panic.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::process;

use serde::Serialize;

/// Status of a program that the signal of a closed pipe ends, as the shell reports it.
const CLOSED_PIPE: i32 = 128 + 13;

/// Prints a line, as `std::println!` does, which panics if it cannot.
macro_rules! println {
    () => {
        $crate::out::line(format_args!(""))
    };
    ($($arguments:tt)*) => {
        $crate::out::line(format_args!($($arguments)*))
    };
}

/// Prints one line.
pub(crate) fn line(arguments: Arguments<'_>) {
    let mut out = io::stdout().lock();
    let done = out.write_fmt(arguments).and_then(|()| out.write_all(b"\n"));
    if let Err(error) = done {
        end(&error);
    }
}

/// Prints text as it is.
pub(crate) fn text(text: &str) {
    let mut out = io::stdout().lock();
    let done = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    if let Err(error) = done {
        end(&error);
    }
}

/// Prints a value as JSON, on one line if `compact`.
pub(crate) fn json(value: &impl Serialize, compact: bool) {
    let made = if compact {
        serde_json::to_string(value)
    } else {
        serde_json::to_string_pretty(value)
    };
    match made {
        Ok(made) => line(format_args!("{made}")),
        Err(error) => end(&error.into()),
    }
}

/// Ends the command because standard output takes nothing more.
fn end(error: &io::Error) -> ! {
    if error.kind() == io::ErrorKind::BrokenPipe {
        process::exit(CLOSED_PIPE);
    }
    // If standard error is full as well, the status alone tells.
    let _ = writeln!(
        io::stderr(),
        "dat: cannot write to standard output: {error}"
    );
    process::exit(1);
}
