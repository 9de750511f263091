//! Parses entries in TOML, from files that end in `.toml`.
//!
//! ```toml
//! [defaults]                  # for every [[ia]] that has not the key itself
//! library = "libdat-provider-softrxe.so.2"
//!
//! [[ia]]
//! name = "softrxe"
//! [ia.params]                 # or: params = "lo 0 engine=user mtu=1024"
//! device = "lo"
//! engine = "user"
//! mtu = 1024
//!
//! [alias]
//! "*" = "softrxe"
//! ```

use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::alias::Alias;
use super::decode::Decoded;
use super::entry::{Entry, Places, Setting, Value};
use super::error::{ConfError, ConfErrorKind};
use super::fields;
use super::mistakes;
use super::parsed::Parsed;
use super::place::{Origin, Place};
use super::toml_table::{Fault, Table};

const FILE: &[&str] = &["ia", "defaults", "alias"];
const DEFAULTS: &[&str] = &[
    "library",
    "api",
    "thread_safe",
    "default",
    "provider_version",
    "platform",
];
const IA: &[&str] = &[
    "name",
    "library",
    "params",
    "alias",
    "api",
    "thread_safe",
    "default",
    "provider_version",
    "platform",
];

/// The form's parser, at one file.
struct File<'a> {
    text: &'a str,
    path: &'a Path,
}

/// Parses the TOML form. A faulty table is left out; text that is no TOML yields no entry.
pub(super) fn parse(decoded: &Decoded<'_>, path: &Path, parsed: &mut Parsed) {
    let file = File {
        text: &decoded.text,
        path,
    };
    for (place, byte) in &decoded.wrong {
        let line = decoded.text.lines().nth(place.line - 1).unwrap_or_default();
        let before: String = line.chars().take(place.column - 1).collect();
        // A `#` before it on the line: a comment, unless it is in a string, whose field is checked below.
        if before.contains('#') {
            parsed.errors.push(ConfError {
                origin: file.origin(*place),
                column: place.column,
                kind: ConfErrorKind::EncodingOfComment(*byte),
            });
        }
    }
    let root = match DeTable::parse(&decoded.text) {
        Ok(root) => root.into_inner(),
        Err(error) => {
            parsed.errors.push(file.no_toml(&error));
            return;
        }
    };
    let unknown = unknown_key(&root, FILE);
    parsed.errors.extend(unknown.map(|fault| file.error(fault)));
    let defaults = match root.get("defaults") {
        None => Table::default(),
        Some(value) => file.defaults(value).unwrap_or_else(|fault| {
            parsed.errors.push(file.error(fault));
            Table::default()
        }),
    };
    for (name, value) in root.iter().filter(|(key, _)| key.get_ref() == "ia") {
        match value.get_ref() {
            DeValue::Array(tables) => {
                for table in tables.iter() {
                    let done = file.ia(table, &defaults, decoded, parsed);
                    done.unwrap_or_else(|fault| parsed.errors.push(file.error(fault)));
                }
            }
            _ => parsed.errors.push(file.error((
                name.span(),
                ConfErrorKind::Toml("ia is not an array of tables: write [[ia]]".into()),
            ))),
        }
    }
    if let Some(value) = root.get("alias") {
        let done = file.aliases(value, parsed);
        done.unwrap_or_else(|fault| parsed.errors.push(file.error(fault)));
    }
}

impl File<'_> {
    fn origin(&self, place: Place) -> Origin {
        Origin {
            path: self.path.to_owned(),
            line: place.line,
        }
    }

    fn place(&self, span: &Range<usize>) -> Place {
        Place::of(self.text, span.start)
    }

    fn error(&self, (span, kind): Fault) -> ConfError {
        let place = self.place(&span);
        ConfError {
            origin: self.origin(place),
            column: place.column,
            kind,
        }
    }

    /// Returns the fault of text that is no TOML: the usual mistake that explains it, else what the parser says.
    fn no_toml(&self, error: &toml::de::Error) -> ConfError {
        if let Some(line) = mistakes::first_classic_line(self.text) {
            let place = Place { line, column: 1 };
            return ConfError {
                origin: self.origin(place),
                column: place.column,
                kind: ConfErrorKind::ClassicLine,
            };
        }
        let mut fault = self.error((
            error.span().unwrap_or_default(),
            ConfErrorKind::Syntax(error.message().to_owned()),
        ));
        let mut lines = self.text.lines().skip(fault.origin.line - 1);
        let code = lines.next().and_then(|line| line.split('#').next());
        if let Some((column, quote)) = code.and_then(mistakes::quote_in) {
            let kind = ConfErrorKind::TypographicQuote(quote);
            fault.column = column;
            fault.kind = ConfErrorKind::Syntax(kind.to_string());
        }
        fault
    }

    fn defaults(&self, value: &Spanned<DeValue<'_>>) -> Result<Table, Fault> {
        let Some(table) = value.get_ref().as_table() else {
            let kind = ConfErrorKind::Toml("defaults is not a table: write [defaults]".into());
            return Err((value.span(), kind));
        };
        match unknown_key(table, DEFAULTS) {
            Some(fault) => Err(fault),
            None => Table::read(table),
        }
    }

    /// Adds the entry of one `[[ia]]` table, and its aliases.
    fn ia(
        &self,
        value: &Spanned<DeValue<'_>>,
        defaults: &Table,
        decoded: &Decoded<'_>,
        parsed: &mut Parsed,
    ) -> Result<(), Fault> {
        let header = value.span();
        let Some(table) = value.get_ref().as_table() else {
            let kind = ConfErrorKind::Toml("an ia is a table: write [[ia]]".into());
            return Err((header, kind));
        };
        if let Some(fault) = unknown_key(table, IA) {
            return Err(fault);
        }
        let params = table.get("params");
        let mut ia = Table::read(table)?;
        ia.library = ia.library.or_else(|| defaults.library.clone());
        let missing = |key: &str| {
            let kind = ConfErrorKind::Toml(format!("this [[ia]] has no {key}"));
            (header.clone(), kind)
        };
        let name = ia.name.take().ok_or_else(|| missing("name"))?;
        let library = ia.library.take().ok_or_else(|| missing("library"))?;
        let origin = self.origin(self.place(&header));
        let (text, mut places) = match params {
            None => Default::default(),
            Some(params) => self.params(params)?,
        };
        check(&name, fields::name)?;
        check(&library, |text| fields::filled(text, fields::LIBRARY))?;
        for field in [&name, &library] {
            let (from, to) = (
                self.place(&field.span()),
                Place::of(self.text, field.span().end),
            );
            if let Some((_, kind)) = decoded.wrong_between(from.line, from.column, to.column) {
                return Err((field.span(), kind));
            }
        }
        let given =
            |own: &Option<Spanned<String>>, default: &Option<Spanned<String>>, usual: &str| {
                let given = own.as_ref().or(default.as_ref()).cloned();
                given.unwrap_or_else(|| Spanned::new(header.clone(), usual.to_owned()))
            };
        let api = given(&ia.api, &defaults.api, "u2.0");
        let version = given(&ia.provider_version, &defaults.provider_version, "dat.1.0");
        let platform = given(&ia.platform, &defaults.platform, "");
        check(&platform, |text| fields::printable(text, fields::PLATFORM))?;
        places.name = self.place(&name.span());
        places.library = self.place(&library.span());
        for alias in &ia.alias {
            check(alias, fields::name)?;
            parsed.aliases.push(Alias {
                name: alias.get_ref().clone(),
                target: name.get_ref().clone(),
                origin: origin.clone(),
                place: self.place(&alias.span()),
            });
        }
        parsed.entries.push(Entry {
            api: check(&api, fields::api)?,
            thread_safe: ia.thread_safe.or(defaults.thread_safe).unwrap_or(true),
            default: ia.default.or(defaults.default).unwrap_or(true),
            provider_version: check(&version, fields::provider_version)?,
            name: name.into_inner(),
            library: library.into_inner(),
            ia_params: text,
            platform_params: platform.into_inner(),
            origin,
            places,
        });
        Ok(())
    }

    /// Returns the parameters as the text of the classic form, with the places of the settings.
    fn params(&self, value: &Spanned<DeValue<'_>>) -> Result<(String, Places), Fault> {
        let mut places = Places {
            params: self.place(&value.span()),
            ..Places::default()
        };
        match value.get_ref() {
            DeValue::String(text) => {
                fields::printable(text, fields::PARAMS).map_err(|kind| (value.span(), kind))?;
                for word in text.split_whitespace() {
                    if let Some((key, value)) = word.split_once('=') {
                        places.settings.push(Setting {
                            key: key.to_owned(),
                            value: Value::Word(value.to_owned()),
                            place: places.params,
                        });
                    }
                }
                Ok((text.to_string(), places))
            }
            DeValue::Table(table) => {
                let text = self.typed(table, &mut places)?;
                Ok((text, places))
            }
            other => {
                let kind = format!("params is a string or a table, not {}", other.type_str());
                Err((value.span(), ConfErrorKind::Toml(kind)))
            }
        }
    }

    fn typed(&self, table: &DeTable<'_>, places: &mut Places) -> Result<String, Fault> {
        let (mut device, mut port, mut words) = (String::new(), None, Vec::new());
        // In the order of the file: the parser sorts them by name.
        let mut settings: Vec<_> = table.iter().collect();
        settings.sort_by_key(|(key, _)| key.span().start);
        for (key, value) in settings {
            let (name, at) = (key.get_ref().as_ref(), value.span());
            let value = typed_value(value)?;
            let text = value.to_string();
            if text.contains(char::is_whitespace) || text.chars().any(char::is_control) {
                let kind = format!("{name} contains a blank, which no setting can have");
                return Err((at, ConfErrorKind::Toml(kind)));
            }
            match (name, &value) {
                ("device", Value::Text(_)) => device = text,
                ("port", Value::Number(0..=255)) => port = Some(text),
                ("device" | "port", _) => {
                    let kind = "device is a string, and port a number from 0 to 255";
                    return Err((at, ConfErrorKind::Toml(kind.into())));
                }
                _ => {
                    words.push(format!("{name}={text}"));
                    places.settings.push(Setting {
                        key: name.to_owned(),
                        value,
                        place: self.place(&key.span()),
                    });
                }
            }
        }
        if let (true, Some(_)) = (device.is_empty(), &port) {
            let kind = ConfErrorKind::Toml("params has a port and no device".into());
            return Err((places_span(table), kind));
        }
        let first = [device, port.unwrap_or_default()];
        let first = first.into_iter().filter(|word| !word.is_empty());
        Ok(first.chain(words).collect::<Vec<_>>().join(" "))
    }

    fn aliases(&self, value: &Spanned<DeValue<'_>>, parsed: &mut Parsed) -> Result<(), Fault> {
        let Some(table) = value.get_ref().as_table() else {
            let kind = ConfErrorKind::Toml("alias is not a table: write [alias]".into());
            return Err((value.span(), kind));
        };
        for (name, target) in table.iter() {
            let Some(text) = target.get_ref().as_str() else {
                let kind = ConfErrorKind::Toml("an alias stands for the name of an IA".into());
                return Err((target.span(), kind));
            };
            fields::name(name.get_ref()).map_err(|kind| (name.span(), kind))?;
            fields::name(text).map_err(|kind| (target.span(), kind))?;
            parsed.aliases.push(Alias {
                name: name.get_ref().to_string(),
                target: text.to_owned(),
                origin: self.origin(self.place(&name.span())),
                place: self.place(&target.span()),
            });
        }
        Ok(())
    }
}

/// Returns the span of a table's first key.
fn places_span(table: &DeTable<'_>) -> Range<usize> {
    table.iter().next().map_or(0..0, |(key, _)| key.span())
}

fn typed_value(value: &Spanned<DeValue<'_>>) -> Result<Value, Fault> {
    match value.get_ref() {
        DeValue::String(text) => Ok(Value::Text(text.to_string())),
        DeValue::Integer(number) => {
            let digits = number.as_str().replace('_', "");
            i64::from_str_radix(&digits, number.radix())
                .map(Value::Number)
                .map_err(|_| {
                    let kind = format!("{number} is too large");
                    (value.span(), ConfErrorKind::Toml(kind))
                })
        }
        other => {
            let kind = format!(
                "a setting is a string or an integer, not {}",
                other.type_str()
            );
            Err((value.span(), ConfErrorKind::Toml(kind)))
        }
    }
}

/// Returns the fault of the first key that is not in `known`.
fn unknown_key(table: &DeTable<'_>, known: &'static [&'static str]) -> Option<Fault> {
    let mut keys = table.iter().map(|(key, _)| key);
    let key = keys.find(|key| !known.contains(&key.get_ref().as_ref()))?;
    let kind = ConfErrorKind::UnknownKey {
        key: key.get_ref().to_string(),
        known,
    };
    Some((key.span(), kind))
}

/// Applies a rule to a value; a fault gets the value's span.
fn check<T>(
    value: &Spanned<String>,
    rule: impl Fn(&str) -> Result<T, ConfErrorKind>,
) -> Result<T, Fault> {
    rule(value.get_ref()).map_err(|kind| (value.span(), kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Parsed {
        crate::conf::parse(text.as_bytes(), Path::new("dat.toml"))
    }

    #[test]
    fn a_table_is_an_entry_and_a_fault_has_line_and_column() {
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
[[ia]]
name = "typed"
libary = "lib.so"
[[ia]]
name = 7
"#;
        let parsed = of(text);
        assert_eq!(parsed.entries.len(), 1);
        let entry = &parsed.entries[0];
        assert_eq!(
            (entry.name.as_str(), entry.ia_params.as_str()),
            ("soft \"rxe\"", "v0 0 engine=user")
        );
        assert!(entry.default && entry.thread_safe && entry.api.major == 2);
        let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
        for (text, wants) in said.iter().zip([
            "dat.toml:8:3: unknown key \"colour\"; known ones: name, library",
            "dat.toml:12:7: API version \"1.2\"",
            "dat.toml:15:1: unknown key \"libary\"; did you mean \"library\"?",
            "dat.toml:17:8: invalid type: integer `7`, expected a string",
        ]) {
            assert!(text.starts_with(wants), "{text}\n{wants}");
        }
        assert_eq!(said.len(), 4, "{said:?}");
        let broken = of("[[ia]]\nname = \"a\n");
        assert!(
            broken.errors[0].to_string().starts_with("dat.toml:2:"),
            "{:?}",
            broken.errors
        );
        assert!(
            of("[[ia]]\n").errors[0]
                .to_string()
                .contains("1:1: this [[ia]] has no name")
        );
    }

    #[test]
    fn defaults_aliases_and_typed_parameters() {
        let parsed = of(r#"
[defaults]
library = "lib.so"
thread_safe = false
[[ia]]
name = "a"
alias = ["b", "OpenIB-*"]
[ia.params]
device = "lo"
port = 0
engine = "user"
mtu = 0x400
[[ia]]
name = "c"
thread_safe = true
params.retry = 3
[alias]
"*" = "c"
"#);
        assert!(parsed.errors.is_empty(), "{:?}", parsed.errors);
        let [a, c] = parsed.entries.as_slice() else {
            panic!("{:?}", parsed.entries)
        };
        assert_eq!(
            (a.ia_params.as_str(), a.thread_safe),
            ("lo 0 engine=user mtu=1024", false)
        );
        assert_eq!((c.ia_params.as_str(), c.thread_safe), ("retry=3", true));
        assert_eq!(a.places.settings[1].value, Value::Number(1024));
        assert_eq!(
            a.places.settings[1].place,
            Place {
                line: 12,
                column: 1
            }
        );
        let aliases: Vec<_> = parsed
            .aliases
            .iter()
            .map(|a| (&*a.name, &*a.target))
            .collect();
        assert_eq!(aliases, [("b", "a"), ("OpenIB-*", "a"), ("*", "c")]);
    }

    #[test]
    fn a_value_with_a_line_break_is_refused() {
        let table = |name: &str, api: &str| {
            of(&format!(
                "[[ia]]\nname = {name:?}\nlibrary = \"l\"\napi = {api:?}\n"
            ))
        };
        assert_eq!(
            table("a\nb u2.0 threadsafe default l d.1.0 p q", "u2.0")
                .errors
                .len(),
            1
        );
        assert_eq!(table("a", "u2.0\nb u2.0").errors.len(), 1);
    }
}
