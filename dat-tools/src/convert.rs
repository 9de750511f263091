//! `dat convert`: dat.conf from one form to the other.

use std::collections::HashSet;
use std::fmt::Write as _;

use dat_registry::conf::{
    self, Effect, Entry, classic_alias, classic_line, is_toml, toml_alias, toml_table,
};
use dat_registry::library;
use dat_registry::search;
use dat_registry::settings::Declared;
use serde_json::json;

use crate::cli::{Convert, Form};
use crate::{Outcome, Reported, read};

/// Converts one file. Faulty entries are reported and left out; the status tells.
pub(crate) fn run(arguments: &Convert, json: bool) -> Outcome {
    let found = match &arguments.file {
        Some(path) => read::file("convert", path, arguments.to == Some(Form::Classic))?,
        None => read::configuration()?.pop().ok_or("there is no dat.conf")?,
    };
    let other = if is_toml(&found.path) {
        Form::Classic
    } else {
        Form::Toml
    };
    let bytes = found
        .contents
        .map_err(|reason| format!("{}: {reason}", found.path.display()))?;
    let parsed = conf::parse(&bytes, &found.path);
    let mut text = String::new();
    match arguments.to.unwrap_or(other) {
        Form::Classic => {
            for entry in &parsed.entries {
                writeln!(text, "{}", classic_line(entry))?;
            }
            for alias in &parsed.aliases {
                writeln!(text, "{}", classic_alias(alias))?;
            }
        }
        Form::Toml => {
            for entry in &parsed.entries {
                let declared = declared(entry);
                let table = toml_table(entry, |key| {
                    declared.as_ref().is_some_and(|d| d.is_number(key))
                });
                writeln!(text, "{table}")?;
            }
            if !parsed.aliases.is_empty() {
                writeln!(text, "[alias]")?;
            }
            let mut names = HashSet::new();
            for alias in &parsed.aliases {
                // A second one of a name is dead, and TOML allows none.
                if names.insert(&alias.name) {
                    writeln!(text, "{}", toml_alias(alias))?;
                }
            }
        }
    }
    let bad: Vec<String> = parsed
        .errors
        .iter()
        .filter(|e| e.kind.effect() != Effect::Warning)
        .map(ToString::to_string)
        .collect();
    let comments = parsed.comments;
    let output = read::output(arguments.output.as_deref());
    if json {
        let rest = json!({
            "source": found.path.display().to_string(),
            "entries": parsed.entries.len(),
            "aliases": parsed.aliases.len(),
            "left_out": bad,
            "comments_left_out": comments,
        });
        read::write_json(&text, output, arguments.force, rest)?;
        return match bad.len() {
            0 => Ok(()),
            _ => Err(Reported.into()),
        };
    }
    bad.iter().for_each(|error| eprintln!("{error}"));
    if comments > 0 {
        let lines = crate::out::plural(comments, "line has", "lines have");
        eprintln!("dat: comments are not converted ({lines} one)");
    }
    read::write(&text, output, arguments.force)?;
    match bad.len() {
        0 => Ok(()),
        1 => Err("1 faulty entry was left out".into()),
        bad => Err(format!("{bad} faulty entries were left out").into()),
    }
}

/// Returns what the provider of an entry declares, if its library is there.
fn declared(entry: &Entry) -> Option<Declared> {
    let folders = search::library_folders(read::own_path().as_deref(), &entry.origin.path);
    let found = library::locate(&entry.library, &folders).ok()?;
    Declared::of(&found.object)
}
