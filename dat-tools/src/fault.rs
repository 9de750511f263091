//! `dat fault`: runs a program over the filter `fault`, and prints the faults that it did.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Outcome;
use crate::cli::Fault;
use crate::read;
use crate::wrapped::{self, Folder};

/// A fault, as the filter logs it.
#[derive(Debug, Deserialize)]
struct Done {
    process: u32,
    milliseconds: u64,
    rule: String,
    number: u64,
    handle: String,
    detail: String,
}

/// Runs the program and prints the log; the status is the program's.
pub(crate) fn run(arguments: &Fault, json: bool) -> Outcome {
    let folder = Folder::new()?;
    let pattern = folder.file("%p.log");
    let mut settings = format!("filter=fault file={}", pattern.display());
    if let Some(script) = &arguments.rules.script {
        settings += &format!(" script={}", usable(script, &folder)?.display());
    }
    if let Some(seed) = arguments.rules.seed {
        settings += &format!(" seed={seed}");
    }
    let conf = wrapped::configure(&arguments.ia, &settings, &folder)?;
    let output = wrapped::create(read::output(arguments.output.as_deref()))?;
    let status = wrapped::run(&arguments.program, &conf)?;
    let mut lines = Vec::new();
    for file in folder.files("log")? {
        let text = std::fs::read_to_string(file)?;
        lines.extend(text.lines().map(str::to_owned));
    }
    let text = if json {
        let faults: Vec<Value> = parsed(&lines)?;
        format!("{:#}\n", json!({ "status": status, "faults": faults }))
    } else {
        table(&parsed(&lines)?)
    };
    wrapped::report(output.zip(arguments.output.as_deref()), &text)?;
    wrapped::ended(status)
}

/// Returns an absolute path, since the program may change its folder. It is the path of a copy if the script's own has blanks, which
/// dat.conf cannot hold, or if the script is a pipe (`<(...)` in a shell), which can be read only once.
fn usable(script: &Path, folder: &Folder) -> Outcome<PathBuf> {
    let unreadable = |error| format!("cannot read {}: {error}", script.display());
    if script.is_file() {
        let full = script.canonicalize().map_err(unreadable)?;
        let text = full.to_str();
        if text.is_some_and(|text| !text.contains(char::is_whitespace)) {
            return Ok(full);
        }
    }
    let copy = folder.file("script");
    let text = std::fs::read(script).map_err(unreadable)?;
    std::fs::write(&copy, text).map_err(unreadable)?;
    Ok(copy)
}

fn parsed<T: for<'a> Deserialize<'a>>(lines: &[String]) -> serde_json::Result<Vec<T>> {
    lines
        .iter()
        .map(|line| serde_json::from_str(line))
        .collect()
}

fn table(faults: &[Done]) -> String {
    if faults.is_empty() {
        return "no faults: no rule applied, or no process opened the IA\n".into();
    }
    let mut text = String::new();
    for done in faults {
        let Done {
            process,
            milliseconds,
            rule,
            number,
            handle,
            detail,
        } = done;
        // Writing to a string cannot fail.
        let _ = write!(
            text,
            "process {process}, {milliseconds} ms: {rule}: number {number}, handle {handle}"
        );
        let _ = match detail.as_str() {
            "" => writeln!(text),
            detail => writeln!(text, "; {detail}"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd as _;

    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_script_may_come_from_a_pipe() {
        let (reader, mut writer) = std::io::pipe().expect("a pipe");
        let rule = b"completion:any every=50 delay=20\n";
        writer.write_all(rule).expect("written");
        drop(writer);
        let folder = Folder::new().expect("a folder");
        let pipe = format!("/dev/fd/{}", reader.as_raw_fd());
        let copy = usable(Path::new(&pipe), &folder).expect("a copy");
        assert_eq!(std::fs::read(copy).expect("readable"), rule);
    }

    #[test]
    fn a_fault_is_a_line() {
        let line = json!({ "process": 7, "milliseconds": 12, "line": 1, "rule": "completion:send nth=3 drop", "number": 3,
                           "handle": "0x10", "detail": "" });
        let faults: Vec<Done> = parsed(&[line.to_string()]).expect("the filter's form");
        assert_eq!(
            table(&faults),
            "process 7, 12 ms: completion:send nth=3 drop: number 3, handle 0x10\n"
        );
        assert!(table(&[]).contains("no rule applied"));
    }
}
