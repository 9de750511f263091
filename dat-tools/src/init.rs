//! `dat init`: a dat.conf for this machine.

use std::fmt::Write as _;
use std::path::Path;

use dat_registry::conf::{self, is_toml, toml_table};
use serde_json::json;

use crate::cli::Init;
use crate::{Outcome, machine, read};

/// The project's own file, whose last part gives DAPL's names.
const SHIPPED: &str = include_str!("../../dat.conf");

/// Writes the file.
pub(crate) fn run(arguments: &Init, json: bool) -> Outcome {
    let output = read::output(arguments.output.as_deref());
    let devices = machine::devices()?;
    let usable = || devices.iter().filter(|device| device.why_not.is_none());
    let mut text = String::from(
        "# Interface adapters of this machine, written by `dat init`. dat.conf(5) explains the fields, `dat check` checks them.\n",
    );
    for device in usable() {
        writeln!(text, "{}", device.line("u2.0"))?;
    }
    writeln!(text, "# uDAPL 1.2, for programs linked with libdat.so.1.")?;
    for device in usable() {
        writeln!(text, "{}", device.line("u1.2"))?;
    }
    if !arguments.no_old_names {
        let old = SHIPPED
            .find("# The names that DAPL")
            .map_or("", |at| &SHIPPED[at..]);
        write!(
            text,
            "{}",
            without_broken_names(old, usable().any(|d| d.kind == "verbs"))
        )?;
    }
    if output.is_some_and(is_toml) {
        text = as_toml(&text)?;
    }
    let left_out = || devices.iter().filter(|device| device.why_not.is_some());
    if json {
        let names: Vec<&str> = usable().map(|device| device.ia.as_str()).collect();
        let left_out: Vec<_> = left_out()
            .map(|d| json!({ "kind": d.kind, "name": d.name, "why": d.why_not }))
            .collect();
        let rest = json!({ "ias": names, "left_out": left_out });
        return read::write_json(&text, output, arguments.force, rest);
    }
    read::write(&text, output, arguments.force)?;
    if let Some(path) = output {
        println!(
            "{}: {} IAs; `DAT_OVERRIDE={} dat list` shows them",
            path.display(),
            usable().count(),
            path.display()
        );
    }
    for device in left_out() {
        let why = device.why_not.as_deref().unwrap_or_default();
        eprintln!("dat: {} {} is left out: {why}", device.kind, device.name);
    }
    Ok(())
}

/// Returns DAPL's names. On a machine without verbs devices those of netdevs lead to the softrxe provider.
fn without_broken_names(old: &str, verbs: bool) -> String {
    if verbs {
        return old.to_owned();
    }
    let lines = old.lines().filter(|line| {
        line.starts_with('#')
            || line.contains("* 0\"")
            || line.contains("OpenIB-cma ")
            || line.contains("OpenIB-bond")
    });
    let mut text = String::new();
    for line in lines {
        text += &line.replace(
            "libdat-provider-ibverbs.so.2",
            "libdat-provider-softrxe.so.2",
        );
        text.push('\n');
    }
    text
}

fn as_toml(classic: &str) -> Outcome<String> {
    let parsed = conf::parse(classic.as_bytes(), Path::new("dat.conf"));
    let mut text = String::from(
        "# Interface adapters of this machine, written by `dat init`. dat.conf(5) explains the keys, `dat check` checks them.\n\n",
    );
    for entry in &parsed.entries {
        writeln!(text, "{}", toml_table(entry, |_| false))?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_names_are_entries_in_both_cases() {
        let old = &SHIPPED[SHIPPED
            .find("# The names that DAPL")
            .expect("a comment of dat.conf")..];
        for (verbs, least) in [(true, 20), (false, 4)] {
            let text = without_broken_names(old, verbs);
            let parsed = conf::parse(text.as_bytes(), Path::new("dat.conf"));
            assert_eq!(parsed.errors, []);
            assert!(parsed.entries.len() >= least, "{text}");
            assert_eq!(
                parsed.entries.iter().any(|e| e.library.contains("ibverbs")),
                verbs
            );
        }
    }
}
