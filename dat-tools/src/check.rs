//! `dat check`: prints every fault of dat.conf, as `FILE:LINE:COLUMN: text`.

mod folder;
mod nesting;

use std::path::Path;

use dat_registry::catalog::Catalog;
use dat_registry::conf::{ConfError, ConfErrorKind, Effect};
use dat_registry::search::Found;
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

#[derive(Debug, Default, Serialize)]
struct Report {
    files: Vec<String>,
    entries: usize,
    aliases: usize,
    findings: Vec<Finding>,
    /// What programs read otherwise than the arguments say.
    notes: Vec<String>,
}

/// Checks the files that are named, or those that programs read.
pub(crate) fn run(arguments: &Check, json: bool) -> Outcome {
    let mut all = Report::default();
    let mut faults = Vec::new();
    if arguments.files.is_empty() {
        let files = read::configuration()?;
        faults = judge(&files, &Catalog::of(&files), &mut all);
    } else {
        // Each file or folder by itself; an alias or a filter of one may lead to an entry of another one that programs read.
        let programs = read::configuration().unwrap_or_default();
        for path in &arguments.files {
            let files = if path.is_dir() {
                all.notes.extend(folder::notes(path, &programs));
                folder::files(path)?
            } else {
                vec![read::file("check", path, arguments.toml)?]
            };
            // DAT_OVERRIDE may name the same file by another path.
            let is_own = |other: &Found| {
                files
                    .iter()
                    .any(|file| read::is_same(&file.path, &other.path))
            };
            let beside = programs.iter().filter(|other| !is_own(other));
            let together: Vec<Found> = files.iter().chain(beside).cloned().collect();
            let together = Catalog::of(&together);
            let of_files = judge(&files, &together, &mut all);
            let catalog = together.faults();
            let stays = |fault: &ConfError| {
                !matches!(fault.kind, ConfErrorKind::NoTarget(_)) || catalog.contains(fault)
            };
            faults.extend(of_files.into_iter().filter(stays));
        }
    }
    let is_warning = |fault: &&ConfError| fault.kind.effect() == Effect::Warning;
    let warnings = faults.iter().filter(is_warning).count();
    let errors = faults.len() - warnings;
    all.findings = faults.iter().map(Finding::from).collect();
    if !json {
        print(&faults);
    }
    if json {
        crate::out::json(&all, false);
    } else {
        println!(
            "{}: {}, {}, {}",
            all.files.join(", "),
            crate::out::plural(all.entries, "entry", "entries"),
            crate::out::plural(errors, "error", "errors"),
            crate::out::plural(warnings, "warning", "warnings")
        );
        for note in &all.notes {
            println!("{note}");
        }
    }
    if errors > 0 || arguments.strict && warnings > 0 {
        return Err(Reported.into());
    }
    Ok(())
}

/// Returns the errors of files that make one configuration, without the warnings.
pub(crate) fn errors(files: &[Found]) -> Vec<ConfError> {
    let mut faults = judge(files, &Catalog::of(files), &mut Report::default());
    faults.retain(|fault| fault.kind.effect() != Effect::Warning);
    faults
}

/// Prints faults. Those of several lines with the same text, such as a library that is not there, are printed once.
fn print(faults: &[ConfError]) {
    for (at, fault) in faults.iter().enumerate() {
        let same =
            |other: &&ConfError| other.origin.path == fault.origin.path && other.kind == fault.kind;
        if faults[..at].iter().any(|other| same(&other)) {
            continue;
        }
        let lines = faults[at + 1..].iter().filter(same);
        let lines: Vec<String> = lines.map(|other| other.origin.line.to_string()).collect();
        if lines.is_empty() {
            println!("{fault}");
        } else {
            println!("{fault}; also on line {}", lines.join(", "));
        }
    }
}

/// Returns the faults of files that make one configuration, in the order of their lines. `together` has the files that they are read with as
/// well.
fn judge(files: &[Found], together: &Catalog, all: &mut Report) -> Vec<ConfError> {
    let catalog = Catalog::of(files);
    all.entries += catalog.entries().len();
    all.aliases += catalog.aliases().len();
    let mut faults = catalog.errors().to_vec();
    for entry in catalog.entries() {
        let verdict = assess::entry(entry);
        faults.extend(verdict.faults.into_iter().chain(verdict.warnings));
    }
    faults.extend(catalog.faults());
    let is_judged = |path: &Path| files.iter().any(|file| file.path == path);
    faults.extend(nesting::faults(together, is_judged));
    let mut sorted = Vec::new();
    for file in files {
        all.files.push(file.path.display().to_string());
        let (mut of_file, others): (Vec<_>, Vec<_>) = faults
            .into_iter()
            .partition(|fault: &ConfError| fault.origin.path == file.path);
        of_file.sort_by_key(|fault| (fault.origin.line, fault.column));
        sorted.extend(of_file);
        faults = others;
    }
    sorted
}
