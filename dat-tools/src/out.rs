//! Standard output. A reader that goes away, and a full disk, end the command without a panic.

use std::fmt::Arguments;
use std::io::{self, IsTerminal as _, Write as _};
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

/// Columns of a table, and of text on a terminal that does not tell its own.
pub(crate) const COLUMNS: usize = 80;

/// Columns before the further lines of a text whose `first` takes more than half the columns.
const LONG_INDENT: usize = 8;

/// Prints `first` and text behind it. On a terminal the text is broken at blanks, and its lines begin below each other; elsewhere it is one
/// line, for programs that search it.
pub(crate) fn hanging(first: &str, text: &str) {
    if !io::stdout().is_terminal() {
        return line(format_args!("{first}{text}"));
    }
    let columns = std::env::var("COLUMNS").ok().and_then(|n| n.parse().ok());
    let columns = columns.unwrap_or(COLUMNS);
    let indent = first.chars().count();
    if indent > columns / 2 {
        // A long path would leave a narrow column.
        let whole = format!("{}{text}", first.trim_start());
        let lines = broken(&whole, columns.saturating_sub(LONG_INDENT));
        let (blanks, begin) = (first.len() - first.trim_start().len(), "");
        return line(format_args!(
            "{begin:blanks$}{}",
            lines.join(&format!("\n{begin:LONG_INDENT$}"))
        ));
    }
    let lines = broken(text, columns.saturating_sub(indent));
    line(format_args!(
        "{first}{}",
        lines.join(&format!("\n{:indent$}", ""))
    ));
}

/// Breaks text at blanks into lines of at most `width` characters. A longer word has a line of its own.
fn broken(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().expect("there is always one");
        if last.is_empty() {
            last.push_str(word);
        } else if last.chars().count() + 1 + word.chars().count() <= width {
            last.push(' ');
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
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

/// Returns a count with its noun.
pub(crate) fn plural(count: usize, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        _ => format!("{count} {many}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_blanks() {
        assert_eq!(broken("a bc def", 4), ["a bc", "def"]);
        assert_eq!(broken("a /long/word b", 5), ["a", "/long/word", "b"]);
        assert_eq!(broken("", 5), [""]);
        assert_eq!(broken("a b", 0), ["a", "b"]);
    }
}
