//! Parses entries in TOML, from files that end in `.toml`.
//!
//! ```toml
//! [[ia]]
//! name = "softrxe"
//! api = "u2.0"
//! library = "libdat-provider-softrxe.so.2"
//! params = "lo 0 engine=user"
//! ```

use std::path::Path;

use serde::Deserialize;

use super::entry::Entry;
use super::entry::Origin;
use super::error::{ConfError, ConfErrorKind};
use super::parser;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    ia: Vec<toml::Value>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ia {
    name: String,
    library: String,
    #[serde(default = "two")]
    api: String,
    #[serde(default)]
    thread_safe: bool,
    #[serde(default = "yes")]
    default: bool,
    #[serde(default = "version")]
    provider_version: String,
    #[serde(default)]
    params: String,
    #[serde(default)]
    platform: String,
}

fn two() -> String {
    "u2.0".to_owned()
}

fn yes() -> bool {
    true
}

fn version() -> String {
    "dat.1.0".to_owned()
}

/// Parses the TOML form. A faulty table is left out; text that is no TOML yields no entry.
#[must_use]
pub(super) fn parse(text: &str, path: &Path) -> (Vec<Entry>, Vec<ConfError>) {
    let fault = |line, error: toml::de::Error| ConfError {
        origin: Origin {
            path: path.to_owned(),
            line,
        },
        column: error.span().map_or(0, |s| s.start),
        kind: ConfErrorKind::Toml(error.message().to_owned()),
    };
    let toml_form: File = match toml::from_str(text) {
        Ok(toml_form) => toml_form,
        Err(error) => return (Vec::new(), vec![fault(0, error)]),
    };
    let (mut entries, mut errors) = (Vec::new(), Vec::new());
    for (number, value) in (1..).zip(toml_form.ia) {
        match value.try_into::<Ia>() {
            Err(error) => errors.push(fault(number, error)),
            Ok(ia) => {
                // One grammar for the fields: the classic parser checks them as a line.
                let quote =
                    |s: &str| format!("\"{}\"", s.replace('\\', "\\\\").replace('"', "\\\""));
                let line = [
                    quote(&ia.name),
                    ia.api,
                    (if ia.thread_safe {
                        "threadsafe"
                    } else {
                        "nonthreadsafe"
                    })
                    .to_owned(),
                    (if ia.default { "default" } else { "nondefault" }).to_owned(),
                    quote(&ia.library),
                    quote(&ia.provider_version),
                    quote(&ia.params),
                    quote(&ia.platform),
                ]
                .join(" ");
                let origin = Origin {
                    path: path.to_owned(),
                    line: number,
                };
                // Parsed as one line, not as a file: a value may contain line breaks, and a table is one entry.
                match parser::entry(&line, &origin) {
                    Ok(entry) => entries.extend(entry),
                    Err((column, kind)) => errors.push(ConfError {
                        origin,
                        column,
                        kind,
                    }),
                }
            }
        }
    }
    (entries, errors)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_with_line_breaks_in_its_values_is_one_entry_or_one_error() {
        let table = |name: &str, api: &str| {
            format!("[[ia]]\nname = {name:?}\nlibrary = \"l\"\napi = {api:?}\n")
        };
        let broken = "a\nb u2.0 threadsafe default l d.1.0 p q";
        let (entries, errors) = parse(&table(broken, "u2.0"), Path::new("x.toml"));
        assert_eq!((entries.len(), errors.len()), (1, 0), "{errors:?}");
        assert_eq!(entries[0].name, broken);
        let (entries, errors) = parse(&table("a", "u2.0\nb u2.0"), Path::new("x.toml"));
        assert_eq!((entries.len(), errors.len()), (0, 1), "{entries:?}");
    }

    #[test]
    fn a_table_is_an_entry() {
        let text = r#"
            [[ia]]
            name = "soft \"rxe\""
            library = "lib.so"
            params = 'v0 0 engine=user'
            [[ia]]
            name = "bad"
            colour = "red"
            [[ia]]
            name = "old"
            library = "lib.so"
            api = "1.2"
        "#;
        let (entries, errors) = parse(text, Path::new("dat.toml"));
        assert_eq!(entries.len(), 1);
        assert_eq!(
            (entries[0].name.as_str(), entries[0].ia_params.as_str()),
            ("soft \"rxe\"", "v0 0 engine=user")
        );
        assert!(entries[0].default && !entries[0].thread_safe && entries[0].api.major == 2);
        assert_eq!(
            errors.iter().map(|e| e.origin.line).collect::<Vec<_>>(),
            [2, 3]
        );
        assert!(errors[0].to_string().contains("colour"), "{}", errors[0]);
        assert_eq!(parse("[[ia", Path::new("x")).1.len(), 1);
    }
}
