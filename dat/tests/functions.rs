//! FUNCTIONS.md lists every function of uDAPL 2.0 and of the IB extension, and names items that exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

fn text(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns all source of the crate.
fn source(folder: &Path) -> String {
    let entries = fs::read_dir(folder).expect("a folder");
    entries
        .map(|entry| entry.expect("an entry").path())
        .map(|path| {
            if path.is_dir() {
                source(&path)
            } else {
                fs::read_to_string(path).expect("a file")
            }
        })
        .collect()
}

/// Returns the text between backticks.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// Returns the rows of the tables: the function, and the item's column.
fn rows(table: &str) -> Vec<(&str, &str)> {
    table
        .lines()
        .filter_map(|line| line.strip_prefix("| `"))
        .filter_map(|line| line.split_once("` | "))
        .collect()
}

#[test]
fn every_function_has_an_item_that_exists() {
    let table = text("FUNCTIONS.md");
    let rows = rows(&table);
    let listed: BTreeSet<&str> = rows.iter().map(|(function, _)| *function).collect();
    assert_eq!(listed.len(), rows.len(), "a function is listed twice");

    let slots = text("../dat-abi/slots/slots.txt");
    let slots = slots.lines().filter(|line| !line.starts_with(['#', ' ']));
    let of_2_0 = slots.filter_map(|line| {
        let (name, rest) = line.split_once(" | ")?;
        (rest.contains("2.0") && name != "handle_extendedop").then(|| format!("dat_{name}"))
    });
    let header = text("../capi/include/dat2/dat_ib_extensions.h");
    let counters = text("../capi/include/dat2/dat_ib_counters.h");
    let extension = header.lines().chain(counters.lines()).filter_map(|line| {
        let name = line.strip_prefix("#define dat_ib_")?;
        let end = name.find(|c: char| !c.is_alphanumeric() && c != '_')?;
        Some(format!("dat_ib_{}", &name[..end]))
    });
    let all: BTreeSet<String> = of_2_0.chain(extension).collect();
    assert!(all.len() > 85, "only {} functions", all.len());
    let missing: Vec<_> = all
        .iter()
        .filter(|name| !listed.contains(name.as_str()))
        .collect();
    assert!(missing.is_empty(), "FUNCTIONS.md lacks {missing:?}");

    let source = source(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    for (function, items) in rows {
        for item in quoted(items) {
            let exists = match item.split_once("::") {
                Some((_, method)) => source.contains(&format!("fn {method}")),
                None => ["struct", "enum", "trait", "fn", "impl fmt::"]
                    .iter()
                    .any(|word| {
                        source.contains(&format!("{word} {item}"))
                            || source.contains(&format!("{word}{item}"))
                    }),
            };
            assert!(
                exists || ["Display", "Code"].contains(&item),
                "{function}: there is no {item}"
            );
        }
    }
}
