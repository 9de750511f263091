//! Each public type has an example in its documentation, or names an item that has one. All examples run, and are short.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// Most visible lines of an example. The parts of the tutorial are whole programs.
const LONGEST: usize = 25;

/// Returns the lines of all sources below a folder, each file with its name.
fn sources(folder: &Path) -> Vec<(String, Vec<String>)> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut files = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        if path.is_dir() {
            files.extend(sources(&path));
        } else {
            let text = fs::read_to_string(&path).expect("a file");
            let lines = text.lines().map(str::to_owned).collect();
            files.push((path.display().to_string(), lines));
        }
    }
    files
}

fn crate_sources() -> Vec<(String, Vec<String>)> {
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"))
}

/// Returns the identifier at the beginning of a text.
fn identifier(text: &str) -> &str {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_');
    &text[..end.unwrap_or(text.len())]
}

/// Returns the type whose methods an `impl` line begins; `None` for a trait's.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    let rest = match rest.strip_prefix('<') {
        Some(generics) => generics.split_once("> ")?.1,
        None => rest.strip_prefix(' ')?,
    };
    (!rest.contains(" for ")).then(|| identifier(rest))
}

/// Returns the name of the item that a line declares, with the type of a method.
fn declared(line: &str, owner: &str) -> Option<String> {
    let item = line.trim_start().strip_prefix("pub ")?;
    for word in ["struct ", "enum ", "trait ", "type ", "const "] {
        if let Some(rest) = item
            .strip_prefix(word)
            .filter(|rest| !rest.starts_with("fn "))
        {
            return Some(identifier(rest).to_owned());
        }
    }
    let item = ["async ", "unsafe ", "const "]
        .iter()
        .fold(item, |item, word| item.strip_prefix(word).unwrap_or(item));
    let name = identifier(item.strip_prefix("fn ")?);
    Some(match line.starts_with(' ') {
        true => format!("{owner}::{name}"),
        false => name.to_owned(),
    })
}

/// Returns the names that a `pub use` statement exports.
fn exported(statement: &str) -> Vec<&str> {
    let Some(path) = statement.strip_prefix("pub use ") else {
        return Vec::new();
    };
    let path = path.trim_end_matches(';').trim_end_matches('}');
    let names = path.rsplit_once('{').map_or(path, |(_, names)| names);
    let last = |name: &'_ str| name.len() - name.rsplit([' ', ':']).next().map_or(0, str::len);
    names
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .map(|name| &name[last(name)..])
        .collect()
}

/// Returns the documentation of all items, and the names that `lib.rs` and `aio/mod.rs` export.
fn documentation(files: &[(String, Vec<String>)]) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut texts, mut exports) = (BTreeMap::<String, String>::new(), Vec::new());
    for (file, lines) in files {
        let (mut text, mut owner) = (String::new(), "");
        for (number, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            if let Some(doc) = trimmed.strip_prefix("///") {
                text += doc;
                text.push('\n');
                continue;
            }
            if trimmed.starts_with("#[") {
                continue;
            }
            owner = implemented(line).unwrap_or(owner);
            if let Some(item) = declared(line, owner) {
                texts.entry(item).or_default().push_str(&text);
            }
            if line.starts_with("pub use ")
                && (file.ends_with("lib.rs") || file.ends_with("mod.rs"))
            {
                let statement = lines[number..].iter().map(|line| line.trim());
                let end = statement.clone().position(|line| line.ends_with(';'));
                let statement: String = statement.take(end.expect("it ends") + 1).collect();
                for name in exported(&statement) {
                    texts.entry(name.to_owned()).or_default().push_str(&text);
                    exports.push(name.to_owned());
                }
            }
            text.clear();
        }
    }
    (texts, exports)
}

/// Returns the items that a text names as places of examples.
fn linked(text: &str) -> Vec<String> {
    let paragraphs = text.split("\n\n").filter(|part| {
        let part = part.trim_start();
        part.starts_with("Example")
            || part.contains("Example: ")
            || part.contains("has another example")
    });
    let quoted = |part: &str| -> Vec<String> {
        let links = part.split("[`").skip(1);
        links
            .filter_map(|link| link.split_once("`]"))
            .map(|(item, _)| item.trim_start_matches("aio::").to_owned())
            .collect()
    };
    paragraphs.flat_map(quoted).collect()
}

#[test]
fn each_public_type_has_an_example_or_names_one() {
    let (texts, exports) = documentation(&crate_sources());
    let shows =
        |item: &str| item == "tutorial" || texts.get(item).is_some_and(|text| text.contains("```"));
    let types = exports
        .iter()
        .filter(|name| name.starts_with(char::is_uppercase));
    let (mut count, mut without) = (0, Vec::new());
    for name in types {
        count += 1;
        let text = texts.get(name).map_or("", String::as_str);
        let links = linked(text);
        for link in &links {
            assert!(shows(link), "{name} names {link}, which has no example");
        }
        if !shows(name) && links.is_empty() {
            without.push(name);
        }
    }
    assert!(count > 70, "only {count} types were found");
    assert!(
        without.is_empty(),
        "without an example, or a line \"Example: [`Item`].\": {without:?}"
    );
}

#[test]
fn examples_run_and_are_short() {
    let mut count = 0;
    for (file, lines) in crate_sources() {
        let (mut is_inside, mut visible) = (false, 0);
        for (number, line) in lines.iter().enumerate() {
            let line = line.trim_start();
            let doc = line.strip_prefix("///").or(line.strip_prefix("//!"));
            let Some(doc) = doc else { continue };
            let doc = doc.strip_prefix(' ').unwrap_or(doc);
            match doc.trim_start().strip_prefix("```") {
                Some(language) if !is_inside => {
                    let may_not_run = language == "no_run" && file.ends_with("lib.rs");
                    assert!(
                        language.is_empty() || may_not_run,
                        "{file}:{}: an example that does not run",
                        number + 1
                    );
                    (is_inside, visible) = (true, 0);
                    count += 1;
                }
                Some(_) => {
                    is_inside = false;
                    assert!(
                        visible <= LONGEST || file.ends_with("tutorial.rs"),
                        "{file}:{}: an example of {visible} lines",
                        number + 1
                    );
                }
                None => visible += usize::from(doc != "#" && !doc.starts_with("# ")),
            }
        }
    }
    assert!(count > 100, "only {count} examples");
}
