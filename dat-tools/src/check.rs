//! `dat check`: prints every fault of dat.conf, as `FILE:LINE:COLUMN: text`.

use dat_registry::catalog::Catalog;
use dat_registry::conf::{self, ConfError, Effect};
use serde::Serialize;

use crate::cli::Check;
use crate::{Outcome, Reported, assess, read};

/// A fault, as JSON.
#[derive(Debug, Serialize)]
struct Finding {
    file: String,
    line: usize,
    column: usize,
    severity: &'static str,
    message: String,
}

impl From<&ConfError> for Finding {
    fn from(error: &ConfError) -> Self {
        Self {
            file: error.origin.path.display().to_string(),
            line: error.origin.line,
            column: error.column,
            severity: match error.kind.effect() {
                Effect::Warning => "warning",
                _ => "error",
            },
            message: error.kind.to_string(),
        }
    }
}

#[derive(Debug, Serialize)]
struct Report {
    files: Vec<String>,
    entries: usize,
    aliases: usize,
    findings: Vec<Finding>,
}

/// Checks the files that are named, or those that programs read.
pub(crate) fn run(arguments: &Check, json: bool) -> Outcome {
    let files = if arguments.files.is_empty() {
        read::configuration()?
    } else {
        let files = arguments.files.iter();
        files
            .map(|path| read::file(path, arguments.toml))
            .collect::<Outcome<_>>()?
    };
    let mut all = Report {
        files: Vec::new(),
        entries: 0,
        aliases: 0,
        findings: Vec::new(),
    };
    let (mut errors, mut warnings) = (0, 0);
    for found in files {
        let parsed = conf::parse(&found.bytes, &found.path);
        all.files.push(found.path.display().to_string());
        all.entries += parsed.entries.len();
        all.aliases += parsed.aliases.len();
        let mut faults = parsed.errors.clone();
        for entry in &parsed.entries {
            faults.extend(assess::entry(entry).faults);
        }
        faults.extend(Catalog::new(parsed, String::new()).faults());
        faults.sort_by_key(|fault| (fault.origin.line, fault.column));
        for fault in &faults {
            match fault.kind.effect() {
                Effect::Warning => warnings += 1,
                _ => errors += 1,
            }
            if !json {
                println!("{fault}");
            }
            all.findings.push(fault.into());
        }
    }
    if json {
        crate::out::json(&all, false);
    } else {
        let plural = |count: usize, one: &str, many: &str| match count {
            1 => format!("1 {one}"),
            count => format!("{count} {many}"),
        };
        println!(
            "{}: {}, {}, {}",
            all.files.join(", "),
            plural(all.entries, "entry", "entries"),
            plural(errors, "error", "errors"),
            plural(warnings, "warning", "warnings")
        );
    }
    if errors > 0 || arguments.strict && warnings > 0 {
        return Err(Reported.into());
    }
    Ok(())
}
