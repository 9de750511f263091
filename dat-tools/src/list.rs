//! `dat list`: every entry of dat.conf, usable or why not.

use std::collections::HashSet;

use dat_registry::catalog::Catalog;
use dat_registry::conf::{Effect, Entry};
use serde::Serialize;

use crate::cli::List;
use crate::machine::{self, Device};
use crate::out::COLUMNS;
use crate::{Outcome, Reported, assess, open, read};

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
    /// A name of this machine that a pattern stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    example: Option<String>,
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
            example: None,
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
    let how = if arguments.open {
        ""
    } else {
        ", as far as that shows without opening them (`dat list --open`)"
    };
    println!(
        "{}: {usable} of {} usable{how}",
        catalog.source(),
        rows.len()
    );
    for fault in wrong {
        println!("{fault}");
    }
    outcome
}

/// Judges an entry. `first` tells that no earlier entry has its name, version and thread safety.
fn row(entry: &Entry, first: bool, to_open: bool, devices: &[Device]) -> Row {
    let verdict = assess::entry(entry);
    let mut why = verdict.faults.first().map(|fault| fault.kind.to_string());
    if why.is_none() && !first {
        why = Some("an earlier entry has the same name, version and thread safety".into());
    }
    let mut names = vec![entry.name.clone()];
    if why.is_none() {
        if entry.is_pattern() {
            match assess::of_pattern(entry, devices) {
                Ok(of_devices) => names = of_devices,
                Err(none) => why = Some(none),
            }
        } else {
            why = assess::missing_device(entry, devices);
        }
    }
    let mut example = names.first().cloned();
    if why.is_none() && to_open && entry.api.major == 2 {
        // A pattern is usable if one of its names is.
        for name in names {
            match open::attempt(&name) {
                Ok(()) => {
                    (example, why) = (Some(name), None);
                    break;
                }
                Err(error) => why = why.or_else(|| Some(error.to_string())),
            }
        }
    }
    let example = example.filter(|_| entry.is_pattern() && why.is_none());
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
        example,
        alias_of: None,
    }
}

fn print(rows: &[Row]) {
    let table = Table::of(rows);
    println!(
        "{}",
        table.line("name", "api", "thread", "library", "ok", "parameters")
    );
    for (at, row) in rows.iter().enumerate() {
        if let Some(target) = &row.alias_of {
            println!("{:<1$}  is another name for {target}", row.name, table.name);
        } else {
            let thread = if row.thread_safe { "safe" } else { "unsafe" };
            let ok = if row.usable { "yes" } else { "no" };
            let params = format!("{:?}", row.ia_params);
            println!(
                "{}",
                table.line(&row.name, &row.api, thread, table.library(row), ok, &params)
            );
        }
        if let Some(why) = &row.why {
            let first = format!("    {}:{}: ", row.file, row.line);
            // One library that is not there is the reason of many entries.
            let mut before = rows[..at].iter().filter(|other| other.file == row.file);
            match before.find(|other| other.why.as_ref() == Some(why)) {
                Some(other) => println!("{first}as on line {}", other.line),
                None => crate::out::hanging(&first, why),
            }
        } else if let Some(example) = &row.example {
            println!("    {}:{}: stands for {example}", row.file, row.line);
        }
    }
}

/// The widths of the columns, and which are there.
struct Table {
    name: usize,
    library: usize,
    /// Whether there is a column for the thread safety: not if all entries are safe.
    has_thread: bool,
    /// Whether libraries have their folders.
    has_folders: bool,
}

impl Table {
    /// Makes a table of at most 80 columns, if the names and parameters leave room for that.
    fn of(rows: &[Row]) -> Self {
        let width = |of: fn(&Row) -> usize| rows.iter().map(of).max().unwrap_or(0);
        let entries = || rows.iter().filter(|row| row.alias_of.is_none());
        let mut table = Self {
            name: width(|row| row.name.chars().count()).clamp(4, 40),
            library: 0,
            has_thread: entries().any(|row| !row.thread_safe),
            has_folders: true,
        };
        let params = width(|row| format!("{:?}", row.ia_params).chars().count());
        for has_folders in [true, false] {
            table.has_folders = has_folders;
            let libraries = entries().map(|row| table.library(row).chars().count());
            table.library = libraries.max().unwrap_or(0).clamp(7, 40);
            let columns = table.line("", "", "", "", "", "").chars().count() + params;
            if columns <= COLUMNS {
                break;
            }
        }
        table
    }

    fn library<'a>(&self, row: &'a Row) -> &'a str {
        let file = row.library.rsplit('/').next();
        file.filter(|_| !self.has_folders).unwrap_or(&row.library)
    }

    fn line(
        &self,
        name: &str,
        api: &str,
        thread: &str,
        library: &str,
        ok: &str,
        params: &str,
    ) -> String {
        let Self {
            name: names,
            library: libraries,
            ..
        } = *self;
        let thread = if self.has_thread {
            format!("{thread:<6} ")
        } else {
            String::new()
        };
        format!("{name:<names$}  {api:<4} {thread}{library:<libraries$}  {ok:<3} {params}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, library: &str, ia_params: &str, thread_safe: bool) -> Row {
        Row {
            name: name.into(),
            api: "u2.0".into(),
            thread_safe,
            default: true,
            library: library.into(),
            path: None,
            ia_params: ia_params.into(),
            file: "dat.conf".into(),
            line: 1,
            usable: true,
            why: None,
            example: None,
            alias_of: None,
        }
    }

    fn widest(rows: &[Row]) -> usize {
        let table = Table::of(rows);
        let lines = rows.iter().map(|row| {
            let params = format!("{:?}", row.ia_params);
            table.line(
                &row.name,
                &row.api,
                "unsafe",
                table.library(row),
                "yes",
                &params,
            )
        });
        lines.map(|line| line.chars().count()).max().unwrap_or(0)
    }

    #[test]
    fn usual_tables_have_80_columns_at_most() {
        let shipped = [
            row(
                "ofa-v2-scm-roe-*-1",
                "libdat-provider-ibverbs.so.2",
                "* 1 cm=socket",
                true,
            ),
            row(
                "softrxe-lo",
                "libdat-provider-softrxe.so.2",
                "lo 0 engine=user",
                true,
            ),
        ];
        assert!(widest(&shipped) <= 80, "{}", widest(&shipped));
        assert!(!Table::of(&shipped).has_thread);
        let dapl = [row(
            "ofa-v2-mlx4_0-1u",
            "libdaploucm.so.2",
            "mlx4_0 1",
            false,
        )];
        assert!(widest(&dapl) <= 80 && Table::of(&dapl).has_thread);
        let folder = [row(
            "a",
            "/usr/lib/x86_64-linux-gnu/dat/liba.so.2",
            "10.0.0.1 0 engine=user mtu=1024",
            true,
        )];
        assert!(widest(&folder) <= 80 && !Table::of(&folder).has_folders);
        assert!(Table::of(&[row("a", "/lib/a.so", "", true)]).has_folders);
    }
}
