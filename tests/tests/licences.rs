//! Every dependency's licence is one that `deny.toml` allows: the cheap part of `make deny`, in every test run.

use std::fs;
use std::path::Path;

use serde_json::Value;

const TOP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Returns true if the allowed licences satisfy an SPDX expression. `A/B` is the old spelling of `A OR B`.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let expression = expression.trim();
    // OR is split first: AND binds more tightly.
    if let Some(parts) = split(expression, " OR ").or_else(|| split(expression, "/")) {
        return parts.iter().any(|part| satisfied(part, allowed));
    }
    if let Some(parts) = split(expression, " AND ") {
        return parts.iter().all(|part| satisfied(part, allowed));
    }
    match expression
        .strip_prefix('(')
        .and_then(|rest| rest.strip_suffix(')'))
    {
        Some(inner) => satisfied(inner, allowed),
        None => allowed.iter().any(|licence| licence == expression),
    }
}

/// Returns the operands of `operator` outside parentheses, if there are two or more.
fn split<'a>(expression: &'a str, operator: &str) -> Option<Vec<&'a str>> {
    let (mut depth, mut start, mut parts) = (0, 0, Vec::new());
    for (at, character) in expression.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            _ if depth == 0 && at >= start && expression[at..].starts_with(operator) => {
                parts.push(&expression[start..at]);
                start = at + operator.len();
            }
            _ => {}
        }
    }
    parts.push(&expression[start..]);
    (parts.len() > 1).then_some(parts)
}

/// Returns the strings of `allow = [...]` in deny.toml's `[licenses]`.
fn allowed() -> Vec<String> {
    let text = fs::read_to_string(Path::new(TOP).join("deny.toml")).expect("deny.toml");
    let list = text
        .split_once("allow = [")
        .expect("deny.toml allows licences")
        .1;
    let list = list.split_once(']').expect("the list ends").0;
    list.split('"')
        .skip(1)
        .step_by(2)
        .map(String::from)
        .collect()
}

#[test]
fn expressions_are_read_as_spdx_reads_them() {
    let allowed = ["MIT".to_owned(), "ISC".to_owned()];
    for yes in [
        "MIT",
        "GPL-2.0 OR MIT",
        "Zlib/MIT",
        "(MIT OR X) AND ISC",
        "MIT AND (X OR ISC)",
        "MIT OR X AND Y",
    ] {
        assert!(satisfied(yes, &allowed), "{yes}");
    }
    for no in [
        "GPL-2.0",
        "MIT AND GPL-2.0",
        "(X OR MIT) AND Y",
        "X/Y",
        "",
        "MIT WITH exception",
    ] {
        assert!(!satisfied(no, &allowed), "{no}");
    }
}

#[test]
fn every_dependency_has_a_licence_that_deny_toml_allows() {
    let metadata = dat_tests::cargo_metadata(&["--filter-platform", "x86_64-unknown-linux-gnu"]);
    let allowed = allowed();
    let packages = metadata["packages"].as_array().expect("packages");
    assert!(packages.len() > 20, "only {} packages", packages.len());
    let refused: Vec<String> = packages
        .iter()
        .filter_map(|package| {
            let licence = match package["license"].as_str() {
                Some(expression) => expression.to_owned(),
                None => licence_of_file(package),
            };
            (!satisfied(&licence, &allowed)).then(|| format!("{}: {licence}", package["name"]))
        })
        .collect();
    assert!(
        refused.is_empty(),
        "licences outside deny.toml: {refused:#?}"
    );
}

/// Returns the first line of the licence file that the manifest names in place of an expression.
fn licence_of_file(package: &Value) -> String {
    let manifest = Path::new(package["manifest_path"].as_str().expect("manifest_path"));
    package["license_file"]
        .as_str()
        .and_then(|file| fs::read_to_string(manifest.with_file_name(file)).ok())
        .and_then(|text| text.lines().next().map(|line| line.replace(" License", "")))
        .unwrap_or_default()
}

#[test]
fn every_installed_header_names_the_licence() {
    let top = Path::new(TOP);
    let mut headers = 0;
    for folder in [
        "capi/include/dat",
        "capi/include/dat2",
        "dat-provider/c/include",
    ] {
        for entry in fs::read_dir(top.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let text = fs::read_to_string(&path).expect("a header");
            let line = "/* SPDX-License-Identifier: MIT OR Apache-2.0 */";
            assert_eq!(text.lines().next(), Some(line), "{}", path.display());
            headers += 1;
        }
    }
    assert!(headers > 20, "{headers}");
}
