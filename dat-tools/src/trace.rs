//! `dat trace`: runs a program over the filter `trace`, and prints what its processes called.

use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::{Value, json};

use crate::Outcome;
use crate::cli::Trace;
use crate::read;
use crate::wrapped::{self, Folder};

/// The report of a process, as the filter writes it.
#[derive(Debug, Deserialize)]
struct Report {
    ia: String,
    process: u32,
    program: String,
    calls: Vec<Row>,
    completions: Vec<Row>,
}

/// What was counted of a function, or of a kind of operation.
#[derive(Debug, Deserialize)]
struct Row {
    #[serde(alias = "call", alias = "operation")]
    name: String,
    count: u64,
    failures: u64,
    empty: u64,
    bytes: u64,
    p50_ns: u64,
    p99_ns: u64,
    max_ns: u64,
}

/// Runs the program and prints the report; the status is the program's.
pub(crate) fn run(arguments: &Trace, json: bool) -> Outcome {
    let folder = Folder::new()?;
    let pattern = folder.file("%p.json");
    let settings = format!("filter=trace file={}", pattern.display());
    let conf = wrapped::configure(&arguments.ia, &settings, &folder)?;
    let output = wrapped::create(read::output(arguments.output.as_deref()))?;
    let status = wrapped::run(&arguments.program, &conf)?;
    let mut reports = Vec::new();
    for file in folder.files("json")? {
        reports.push(std::fs::read_to_string(file)?);
    }
    let text = if json {
        let processes: Vec<Value> = reports
            .iter()
            .map(|text| serde_json::from_str(text))
            .collect::<Result<_, _>>()?;
        format!(
            "{:#}\n",
            json!({ "status": status, "processes": processes })
        )
    } else {
        let processes: Vec<Report> = reports
            .iter()
            .map(|text| serde_json::from_str(text))
            .collect::<Result<_, _>>()?;
        of_processes(&processes, &arguments.ia)
    };
    wrapped::report(output.zip(arguments.output.as_deref()), &text)?;
    wrapped::ended(status)
}

fn of_processes(processes: &[Report], ia: &str) -> String {
    if processes.is_empty() {
        return format!("no process opened {ia} and ended by itself\n");
    }
    let mut text = String::new();
    for process in processes {
        // Writing to a string cannot fail.
        let _ = writeln!(
            text,
            "\nprocess {}, {}, IA {}",
            process.process, process.program, process.ia
        );
        table(&mut text, "call", &process.calls);
        table(&mut text, "post to completion", &process.completions);
    }
    text
}

fn table(text: &mut String, what: &str, rows: &[Row]) {
    if rows.is_empty() {
        return;
    }
    let width = rows.iter().map(|row| row.name.len()).max().unwrap_or(0);
    let width = width.max(what.len());
    let _ = writeln!(
        text,
        "{what:width$} {:>9} {:>8} {:>9} {:>13} {:>10} {:>10} {:>10}",
        "count", "failures", "empty", "bytes", "p50 us", "p99 us", "max us"
    );
    for row in rows {
        let [p50, p99, max] = [row.p50_ns, row.p99_ns, row.max_ns].map(|ns| ns as f64 / 1000.0);
        let Row {
            name,
            count,
            failures,
            empty,
            bytes,
            ..
        } = row;
        let _ = writeln!(
            text,
            "{name:width$} {count:>9} {failures:>8} {empty:>9} {bytes:>13} {p50:>10.1} {p99:>10.1} {max:>10.1}"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_a_table_of_calls_and_one_of_completions() {
        let row = |key: &str, name: &str| {
            json!({ key: name, "count": 3, "failures": 1, "empty": 0, "bytes": 64, "p50_ns": 1500, "p99_ns": 2000,
                    "max_ns": 2500, "total_ns": 6000 })
        };
        let report = json!({
            "form": 1, "ia": "lo", "inner": "lo.inner", "process": 7, "program": "/bin/x",
            "calls": [row("call", "dat_pz_create")], "completions": [row("operation", "send")],
        });
        let report: Report = serde_json::from_value(report).expect("the filter's form");
        let text = of_processes(&[report], "lo");
        let words: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert!(
            words.contains(&vec![
                "dat_pz_create",
                "3",
                "1",
                "0",
                "64",
                "1.5",
                "2.0",
                "2.5"
            ]),
            "{text}"
        );
        assert!(
            words.iter().any(|line| line.first() == Some(&"send")),
            "{text}"
        );
        assert!(of_processes(&[], "lo").contains("no process opened lo"));
    }
}
