//! Tables and lists of the pages, compared with the code.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::tree::Tree;

/// Returns the part of a page between `<!-- name -->` and `<!-- end -->`.
fn part<'a>(text: &'a str, name: &str) -> &'a str {
    let (_, after) = text
        .split_once(&format!("<!-- {name} -->"))
        .unwrap_or_else(|| panic!("no part {name}"));
    after.split_once("<!-- end -->").expect("the part ends").0
}

/// Returns the code spans of a text.
fn code(text: &str) -> Vec<&str> {
    text.split('`').skip(1).step_by(2).collect()
}

/// Compares the crate table of ARCHITECTURE.md with the workspace's dependencies.
pub(crate) fn crates(tree: &Tree) -> Vec<String> {
    let metadata = dat_tests::cargo_metadata(&["--no-deps"]);
    let packages = metadata["packages"].as_array().expect("packages");
    let name = |value: &Value| value["name"].as_str().expect("a name").to_owned();
    let ours: BTreeSet<String> = packages.iter().map(name).collect();
    let page = tree.text("ARCHITECTURE.md");
    let mut table = BTreeMap::new();
    for row in part(&page, "crates")
        .lines()
        .filter(|line| line.starts_with("| `"))
    {
        let cells: Vec<&str> = row.split('|').collect();
        let imports: BTreeSet<String> = code(cells[4]).into_iter().map(str::to_owned).collect();
        for named in code(cells[1]).into_iter().filter(|it| ours.contains(*it)) {
            table.insert(named.to_owned(), imports.clone());
        }
        for path in code(cells[1]).into_iter().filter(|it| it.contains('/')) {
            assert!(tree.has(path), "ARCHITECTURE.md: no {path}");
        }
    }
    let mut wrong = Vec::new();
    for package in packages {
        let (crate_name, depends) = (
            name(package),
            package["dependencies"].as_array().expect("dependencies"),
        );
        let Some(said) = table.remove(&crate_name) else {
            wrong.push(format!("ARCHITECTURE.md has no row for {crate_name}"));
            continue;
        };
        let normal = depends.iter().filter(|it| it["kind"] != "dev").map(name);
        let real: BTreeSet<String> = normal.filter(|it| ours.contains(it)).collect();
        if real != said {
            wrong.push(format!(
                "ARCHITECTURE.md: {crate_name} imports {real:?}, the table has {said:?}"
            ));
        }
    }
    wrong
}

/// Compares the lock order of seam.md with the numbered list of lock_order.rs; writes it if `bless`.
pub(crate) fn lock_order(tree: &Tree, bless: bool) -> Vec<String> {
    let order = tree.text("dat-core/src/lock_order.rs");
    let lines = order.lines().filter_map(|line| line.strip_prefix("//! "));
    let item = |line: &&str| {
        line.split_once(". ")
            .is_some_and(|(number, _)| number.parse::<u32>().is_ok())
    };
    let list: String = lines.filter(item).map(|line| format!("{line}\n")).collect();
    assert!(!list.is_empty(), "lock_order.rs has a list");
    let path = "docs/design/seam.md";
    let page = tree.text(path);
    let written = part(&page, "lock order");
    let list = format!("\n{list}");
    if written == list {
        return Vec::new();
    }
    if bless {
        std::fs::write(tree.path(path), page.replace(written, &list)).expect("the page is written");
        return Vec::new();
    }
    vec![format!(
        "{path}: the lock order is not that of lock_order.rs: run this test with DAT_BLESS=1"
    )]
}

/// Returns the strings of the `KEYS` of a file.
fn keys(text: &str) -> BTreeSet<String> {
    let (_, list) = text.split_once("const KEYS: &[&str] = &[").expect("KEYS");
    list.split(']')
        .next()
        .unwrap_or_default()
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// Compares the settings of ia_params.md with those that the engines, the filters and core accept.
pub(crate) fn settings(tree: &Tree) -> Vec<String> {
    let page = tree.text("docs/ia_params.md");
    let mut known = BTreeSet::from(["strict".to_owned(), "engine".to_owned()]);
    let mut files = 0;
    for file in tree
        .files_in("dat-verbs", "rs")
        .into_iter()
        .chain(tree.files_in("dat-provider-softrxe", "rs"))
        .chain(tree.files_in("dat-provider-filter", "rs"))
    {
        let text = tree.text(&file);
        if text.contains("const KEYS: &[&str] = &[") {
            known.extend(keys(&text));
            files += 1;
        }
    }
    assert!(
        files >= 3,
        "the settings of both engines and of the filters are found"
    );
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let first: BTreeSet<&str> = rows
        .map(|(key, _)| key)
        .filter(|key| key.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect();
    let mut wrong: Vec<String> = known
        .iter()
        .filter(|key| !first.contains(key.as_str()))
        .map(|key| format!("ia_params.md has no row for {key}"))
        .collect();
    wrong.extend(
        first
            .iter()
            .filter(|key| !known.contains(**key))
            .map(|key| format!("ia_params.md: no engine has the setting {key}")),
    );
    wrong
}

/// Returns the rows of the table of renames whose new name the code does not have.
pub(crate) fn renames(tree: &Tree) -> Vec<String> {
    let page = tree.text("docs/design/renames.md");
    let rows = part(&page, "renamed")
        .lines()
        .filter(|line| line.starts_with("| `"));
    let mut wrong = Vec::new();
    for row in rows {
        let new = row.split('|').nth(2).unwrap_or_default();
        for name in code(new) {
            let path = name.contains('/') || name.ends_with(".rs");
            let exists = if path {
                !tree.ending_in(name.trim_end_matches('/')).is_empty()
            } else {
                let plain = |c: char| !c.is_alphanumeric() && c != '_';
                let words = name.split(plain).filter(|word| !word.is_empty());
                words.into_iter().all(|word| tree.words().contains(word))
            };
            if !exists {
                wrong.push(format!("renames.md: there is no {name}"));
            }
        }
    }
    wrong
}

/// Compares the table of docs/writing-a-provider.md with the methods of the trait `Transport`: each name before a parenthesis is
/// one, and each method without a default is named on the page.
pub(crate) fn transport_methods(tree: &Tree) -> Vec<String> {
    let page = tree.text("docs/writing-a-provider.md");
    let source = tree.text("dat-core/src/transport.rs");
    let (_, body) = source
        .split_once("pub trait Transport")
        .expect("the trait Transport");
    let (body, _) = body.split_once("\n}").expect("the trait ends");
    // Method name, and whether it has a default body.
    let methods: BTreeMap<&str, bool> = body
        .split("\n    fn ")
        .skip(1)
        .map(|method| {
            let (name, rest) = method.split_once('(').expect("parameters");
            let end = rest.find([';', '{']).expect("the signature ends");
            (name, rest[end..].starts_with('{'))
        })
        .collect();
    let unknown = page
        .lines()
        .filter(|line| line.starts_with("| `"))
        .filter_map(|row| row.split(['|', '(']).nth(1))
        .flat_map(code)
        .filter(|name| !methods.contains_key(name))
        .map(|name| format!("docs/writing-a-provider.md: the trait has no method {name}"));
    let missing = methods
        .iter()
        .filter(|(name, default)| {
            !**default
                && !page.contains(&format!("`{name}`"))
                && !page.contains(&format!("`{name}()`"))
        })
        .map(|(name, _)| format!("docs/writing-a-provider.md does not name the method {name}"));
    unknown.chain(missing).collect()
}
