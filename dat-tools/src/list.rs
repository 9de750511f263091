//! `dat list`: every entry of dat.conf, usable or why not.

use std::collections::HashSet;

use dat_registry::catalog::Catalog;
use dat_registry::conf::{Effect, Entry};
use serde::Serialize;

use crate::cli::List;
use crate::machine::{self, Device};
use crate::{Outcome, Reported, assess, read};

/// A line of the list.
#[derive(Debug, Serialize)]
struct Row {
    name: String,
    api: String,
    thread_safe: bool,
    default: bool,
    library: String,
    path: Option<String>,
    ia_params: String,
    file: String,
    line: usize,
    usable: bool,
    /// Why it is not usable.
    why: Option<String>,
    /// The entry for which this one is another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    alias_of: Option<String>,
}

/// Prints the list.
pub(crate) fn run(arguments: &List, json: bool) -> Outcome {
    let found = read::configuration()?;
    let catalog = Catalog::of(&found);
    let paths = found.iter().map(|file| file.path.display().to_string());
    let files: Vec<String> = paths.collect();
    let faults = catalog.faults();
    let devices = machine::devices()?;
    let mut seen = HashSet::new();
    let mut rows = Vec::new();
    for entry in catalog.entries() {
        let first = seen.insert((
            &entry.name,
            entry.api.major,
            entry.api.kernel,
            entry.thread_safe,
        ));
        rows.push(row(entry, first, arguments.open, &devices));
    }
    for alias in catalog.aliases() {
        let broken = faults
            .iter()
            .find(|f| f.origin == alias.origin && f.kind.effect() == Effect::Open);
        rows.push(Row {
            name: alias.name.clone(),
            api: String::new(),
            thread_safe: false,
            default: false,
            library: String::new(),
            path: None,
            ia_params: String::new(),
            file: alias.origin.path.display().to_string(),
            line: alias.origin.line,
            usable: broken.is_none(),
            why: broken.map(|fault| fault.kind.to_string()),
            alias_of: Some(alias.target.clone()),
        });
    }
    let wrong: Vec<String> = catalog
        .errors()
        .iter()
        .chain(&faults)
        .map(ToString::to_string)
        .collect();
    let usable = rows.iter().filter(|row| row.usable).count();
    let outcome = if usable > 0 {
        Ok(())
    } else {
        Err(Reported.into())
    };
    if json {
        let faults = wrong;
        crate::out::json(
            &serde_json::json!({ "files": files, "entries": rows, "faults": faults }),
            false,
        );
        return outcome;
    }
    print(&rows);
    println!();
    println!("{}: {usable} of {} usable", catalog.source(), rows.len());
    for fault in wrong {
        println!("{fault}");
    }
    outcome
}

/// Judges an entry. `first` tells that no earlier entry has its name, version and thread safety.
fn row(entry: &Entry, first: bool, open: bool, devices: &[Device]) -> Row {
    let verdict = assess::entry(entry);
    let mut why = verdict.faults.first().map(|fault| fault.kind.to_string());
    if why.is_none() && !first {
        why = Some("an earlier entry has the same name, version and thread safety".into());
    }
    if why.is_none() && !entry.is_pattern() {
        why = assess::missing_device(entry, devices);
    }
    let can_open = !entry.is_pattern() && entry.api.major == 2;
    if why.is_none() && open && can_open {
        why = dat::Ia::open(&entry.name)
            .err()
            .map(|error| error.to_string());
    }
    Row {
        name: entry.name.clone(),
        api: entry.api.to_string(),
        thread_safe: entry.thread_safe,
        default: entry.default,
        library: entry.library.clone(),
        path: verdict.library,
        ia_params: entry.ia_params.clone(),
        file: entry.origin.path.display().to_string(),
        line: entry.origin.line,
        usable: why.is_none(),
        why,
        alias_of: None,
    }
}

fn print(rows: &[Row]) {
    let width = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
    let name = width(|row| row.name.chars().count()).clamp(4, 40);
    let library = width(|row| row.library.chars().count()).clamp(7, 40);
    println!(
        "{:<name$}  {:<4} {:<6} {:<library$}  {:<6} parameters",
        "name", "api", "thread", "library", "usable"
    );
    for row in rows {
        if let Some(target) = &row.alias_of {
            println!(
                "{:<name$}  is another name for {target}{}",
                row.name,
                because(row)
            );
            continue;
        }
        println!(
            "{:<name$}  {:<4} {:<6} {:<library$}  {:<6} {:?}{}",
            row.name,
            row.api,
            if row.thread_safe { "safe" } else { "unsafe" },
            row.library,
            if row.usable { "yes" } else { "no" },
            row.ia_params,
            because(row)
        );
    }
}

fn because(row: &Row) -> String {
    match &row.why {
        None => String::new(),
        Some(why) => format!("\n    line {}: {why}", row.line),
    }
}
