//! Writes entries and aliases in either form.

use std::fmt::Write as _;

use super::alias::Alias;
use super::entry::Entry;

/// Returns the entry as a line of the classic form, without a line break.
#[must_use]
pub fn classic_line(entry: &Entry) -> String {
    [
        word(&entry.name),
        entry.api.to_string(),
        (if entry.thread_safe {
            "threadsafe"
        } else {
            "nonthreadsafe"
        })
        .to_owned(),
        (if entry.default {
            "default"
        } else {
            "nondefault"
        })
        .to_owned(),
        word(&entry.library),
        word(&entry.provider_version.to_string()),
        quoted(&entry.ia_params),
        quoted(&entry.platform_params),
    ]
    .join(" ")
}

/// Returns the alias as a line of the classic form.
#[must_use]
pub fn classic_alias(alias: &Alias) -> String {
    format!("alias {} {}", word(&alias.name), word(&alias.target))
}

/// Returns the alias as a row of the table `[alias]`, without a line break.
#[must_use]
pub fn toml_alias(alias: &Alias) -> String {
    let string = |text: &str| toml::Value::from(text).to_string();
    format!("{} = {}", string(&alias.name), string(&alias.target))
}

/// Returns the entry as an `[[ia]]` table. `is_number` tells which settings are numbers.
#[must_use]
pub fn toml_table(entry: &Entry, is_number: impl Fn(&str) -> bool) -> String {
    let string = |text: &str| toml::Value::from(text).to_string();
    let mut table = format!("[[ia]]\nname = {}\n", string(&entry.name));
    let mut line =
        |key: &str, value: String| writeln!(table, "{key} = {value}").unwrap_or_default();
    if entry.api.to_string() != "u2.0" {
        line("api", string(&entry.api.to_string()));
    }
    if !entry.thread_safe {
        line("thread_safe", "false".into());
    }
    if !entry.default {
        line("default", "false".into());
    }
    line("library", string(&entry.library));
    line(
        "provider_version",
        string(&entry.provider_version.to_string()),
    );
    if !entry.platform_params.is_empty() {
        line("platform", string(&entry.platform_params));
    }
    match params(entry, is_number) {
        None => line("params", string(&entry.ia_params)),
        Some(rows) if rows.is_empty() => {}
        Some(rows) => {
            table.push_str("[ia.params]\n");
            rows.iter().for_each(|(key, value)| {
                writeln!(table, "{key} = {value}").unwrap_or_default();
            });
        }
    }
    table
}

/// Returns the parameters as keys and values of a table; `None` if they do not follow the grammar `device port key=value ...`.
fn params(entry: &Entry, is_number: impl Fn(&str) -> bool) -> Option<Vec<(String, String)>> {
    let string = |text: &str| toml::Value::from(text).to_string();
    let text = entry.ia_params.as_str();
    let words: Vec<&str> = text.split_whitespace().collect();
    let count = words.iter().take_while(|w| !w.contains('=')).count();
    let (first, settings) = words.split_at(count);
    let mut rows = Vec::new();
    match *first {
        [] => {}
        [device] => rows.push(("device".to_owned(), string(device))),
        [device, port] => {
            rows.push(("device".to_owned(), string(device)));
            let port: u8 = port.parse().ok()?;
            rows.push(("port".to_owned(), port.to_string()));
        }
        _ => return None,
    }
    for word in settings {
        let (key, value) = word.split_once('=')?;
        let bare = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if key.is_empty() || !key.chars().all(bare) || rows.iter().any(|(k, _)| k == key) {
            return None;
        }
        let number = is_number(key) && value.parse::<i64>().is_ok_and(|n| n.to_string() == value);
        let value = if number {
            value.to_owned()
        } else {
            string(value)
        };
        rows.push((key.to_owned(), value));
    }
    Some(rows)
}

/// Returns a field that needs quotes only for blanks and the like.
fn word(text: &str) -> String {
    let plain = |c: char| !c.is_whitespace() && c != '"' && c != '#' && c != '\\';
    if !text.is_empty() && text.chars().all(plain) {
        text.to_owned()
    } else {
        quoted(text)
    }
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}
