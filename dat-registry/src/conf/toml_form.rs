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

use std::borrow::Cow;
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

const ONE_TABLE: &str = "ia is not an array of tables: write [[ia]]";

/// The form's parser, at one file.
struct File<'a> {
    text: &'a str,
    path: &'a Path,
    decoded: &'a Decoded<'a>,
}

/// Parses the TOML form. A faulty table is left out; text that is no TOML yields no entry.
pub(super) fn parse(decoded: &Decoded<'_>, path: &Path, parsed: &mut Parsed) {
    let file = File {
        text: &decoded.text,
        path,
        decoded,
    };
    file.warn_of_comments(parsed);
    parsed.comments = decoded
        .text
        .lines()
        .filter(|line| has_comment(line))
        .count();
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
                    let done = file.ia(table, &defaults, parsed);
                    done.unwrap_or_else(|fault| parsed.errors.push(file.error(fault)));
                }
            }
            _ => parsed
                .errors
                .push(file.error((name.span(), ConfErrorKind::Toml(ONE_TABLE.into())))),
        }
    }
    if let Some(value) = root.get("alias") {
        let done = file.aliases(value, parsed);
        done.unwrap_or_else(|fault| parsed.errors.push(file.error(fault)));
    }
}

/// Returns a line without its comment.
fn code(line: &str) -> &str {
    line.split('#').next().unwrap_or_default()
}

impl File<'_> {
    /// Adds a warning for the first wrong byte of each comment: behind a `#`. Where that is in a string, the string's field is checked, too.
    fn warn_of_comments(&self, parsed: &mut Parsed) {
        let mut lines = (1..).zip(self.text.lines());
        let (mut line, mut comment) = (0, None);
        for (place, byte) in &self.decoded.wrong {
            while line < place.line
                && let Some((number, text)) = lines.next()
            {
                line = number;
                comment = text.chars().position(|c| c == '#').map(|at| at + 1);
            }
            if comment.is_some_and(|column| column < place.column) {
                comment = None;
                parsed.errors.push(ConfError {
                    origin: self.origin(*place),
                    column: place.column,
                    kind: ConfErrorKind::EncodingOfComment(*byte),
                });
            }
        }
    }

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
        // A header may have a comment, and blanks within.
        let header = |line| code(line).replace([' ', '\t'], "");
        let faulty = self.text.lines().nth(fault.origin.line - 1);
        // The parser calls the second of the two headers a duplicate key.
        if faulty.is_some_and(|line| matches!(header(line).as_str(), "[ia]" | "[[ia]]"))
            && let Some(at) = self.text.lines().position(|line| header(line) == "[ia]")
        {
            fault.origin.line = at + 1;
            fault.column = 1;
            fault.kind = ConfErrorKind::Syntax(ONE_TABLE.into());
        }
        if let Some((column, quote)) = faulty.map(code).and_then(mistakes::quote_in) {
            let kind = ConfErrorKind::WrongQuote(quote);
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
        match unknown_key(table, DEFAULTS).or_else(|| self.wrong_byte(table)) {
            Some(fault) => Err(fault),
            None => Table::read(table),
        }
    }

    /// Adds the entry of one `[[ia]]` table, and its aliases.
    fn ia(
        &self,
        value: &Spanned<DeValue<'_>>,
        defaults: &Table,
        parsed: &mut Parsed,
    ) -> Result<(), Fault> {
        let header = value.span();
        let Some(table) = value.get_ref().as_table() else {
            let kind = ConfErrorKind::Toml("an ia is a table: write [[ia]]".into());
            return Err((header, kind));
        };
        if let Some(fault) = unknown_key(table, IA).or_else(|| self.wrong_byte(table)) {
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
        let given =
            |own: &Option<Spanned<String>>, default: &Option<Spanned<String>>, usual: &str| {
                let given = own.as_ref().or(default.as_ref()).cloned();
                given.unwrap_or_else(|| Spanned::new(header.clone(), usual.to_owned()))
            };
        let api = given(&ia.api, &defaults.api, "u2.0");
        let version = given(&ia.provider_version, &defaults.provider_version, "dat.1.0");
        let platform = given(&ia.platform, &defaults.platform, "");
        check(&platform, |text| fields::printable(text, fields::PLATFORM))?;
        let api = check(&api, fields::api)?;
        let provider_version = check(&version, fields::provider_version)?;
        // The last that may be wrong: a faulty entry leaves no alias.
        ia.alias
            .iter()
            .try_for_each(|alias| check(alias, fields::name))?;
        places.name = self.place(&name.span());
        places.library = self.place(&library.span());
        parsed.aliases.extend(ia.alias.iter().map(|alias| Alias {
            name: alias.get_ref().clone(),
            target: name.get_ref().clone(),
            origin: origin.clone(),
            place: self.place(&alias.span()),
        }));
        parsed.entries.push(Entry {
            api,
            thread_safe: ia.thread_safe.or(defaults.thread_safe).unwrap_or(true),
            default: ia.default.or(defaults.default).unwrap_or(true),
            provider_version,
            name: name.into_inner(),
            library: library.into_inner(),
            ia_params: text,
            platform_params: platform.into_inner(),
            origin,
            places,
        });
        Ok(())
    }

    /// Returns the fault of the first key or value of a table that has a byte which is not UTF-8.
    fn wrong_byte(&self, table: &DeTable<'_>) -> Option<Fault> {
        table
            .iter()
            .find_map(|(key, value)| self.wrong_key(key).or_else(|| self.wrong_value(value)))
    }

    fn wrong_key(&self, key: &Spanned<Cow<'_, str>>) -> Option<Fault> {
        self.wrong_at(key.span())
    }

    fn wrong_value(&self, value: &Spanned<DeValue<'_>>) -> Option<Fault> {
        match value.get_ref() {
            DeValue::Table(table) => self.wrong_byte(table),
            DeValue::Array(values) => values.iter().find_map(|value| self.wrong_value(value)),
            _ => self.wrong_at(value.span()),
        }
    }

    fn wrong_at(&self, span: Range<usize>) -> Option<Fault> {
        if self.decoded.wrong.is_empty() {
            return None;
        }
        let (from, to) = (self.place(&span), Place::of(self.text, span.end));
        let (_, byte) = self.decoded.wrong_within(from, to)?;
        Some((span, ConfErrorKind::Encoding(byte)))
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
        for (key, value) in in_order(table) {
            let (name, at) = (key.get_ref().as_ref(), value.span());
            let splits = |c: char| c == '=' || c.is_whitespace() || c.is_control();
            if name.is_empty() || name.contains(splits) {
                let kind = format!("{name:?} is no setting: its name is one word, without =");
                return Err((key.span(), ConfErrorKind::Toml(kind)));
            }
            let value = typed_value(name, value)?;
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
            return Err((first_key_span(table), kind));
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
        for (name, target) in in_order(table) {
            match self.alias(name, target) {
                Ok(alias) => parsed.aliases.push(alias),
                Err(fault) => parsed.errors.push(self.error(fault)),
            }
        }
        Ok(())
    }

    fn alias(
        &self,
        name: &Spanned<Cow<'_, str>>,
        target: &Spanned<DeValue<'_>>,
    ) -> Result<Alias, Fault> {
        let wrong = self.wrong_key(name).or_else(|| self.wrong_value(target));
        if let Some(fault) = wrong {
            return Err(fault);
        }
        let Some(text) = target.get_ref().as_str() else {
            let kind = ConfErrorKind::Toml("an alias stands for the name of an IA".into());
            return Err((target.span(), kind));
        };
        fields::name(name.get_ref()).map_err(|kind| (name.span(), kind))?;
        fields::name(text).map_err(|kind| (target.span(), kind))?;
        Ok(Alias {
            name: name.get_ref().to_string(),
            target: text.to_owned(),
            origin: self.origin(self.place(&name.span())),
            place: self.place(&target.span()),
        })
    }
}

/// Returns true if a line has a `#` outside of quotes. Strings of several lines, which no key needs, are not looked for.
fn has_comment(line: &str) -> bool {
    let mut open = None;
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (open, c) {
            (None, '#') => return true,
            (None, '"' | '\'') => open = Some(c),
            (Some('"'), '\\') => _ = chars.next(),
            (Some(quote), c) if quote == c => open = None,
            _ => {}
        }
    }
    false
}

/// Returns the rows of a table in the order of the file: the parser sorts them by name.
fn in_order<'a, 'b>(
    table: &'a DeTable<'b>,
) -> Vec<(&'a Spanned<Cow<'b, str>>, &'a Spanned<DeValue<'b>>)> {
    let mut rows: Vec<_> = table.iter().collect();
    rows.sort_by_key(|(key, _)| key.span().start);
    rows
}

/// Returns the span of a table's first key.
fn first_key_span(table: &DeTable<'_>) -> Range<usize> {
    table.iter().next().map_or(0..0, |(key, _)| key.span())
}

fn typed_value(name: &str, value: &Spanned<DeValue<'_>>) -> Result<Value, Fault> {
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
            let kind = format!("{name} is a string or an integer, not {}", other.type_str());
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

    #[test]
    fn aliases_keep_the_order_of_the_file_and_a_faulty_one_leaves_the_others() {
        let parsed =
            of("[alias]\n\"x-*\" = 'a'\n\"*\" = 'b'\nbad = 7\n\"a*b*\" = 'c'\nlast = 'd'\n");
        let names: Vec<_> = parsed.aliases.iter().map(|a| &*a.name).collect();
        assert_eq!(names, ["x-*", "*", "last"]);
        let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].starts_with("dat.toml:4:7: an alias stands for"),
            "{said:?}"
        );
        assert!(said[1].starts_with("dat.toml:5:1: the name"), "{said:?}");
    }

    #[test]
    fn a_faulty_entry_leaves_no_alias() {
        for fault in ["api = '2.0'", "provider_version = '1'"] {
            let parsed = of(&format!(
                "[[ia]]\nname = 'a'\nlibrary = 'l'\nalias = ['b']\n{fault}\n"
            ));
            assert_eq!(
                (parsed.aliases.len(), parsed.errors.len()),
                (0, 1),
                "{fault}"
            );
        }
        let parsed = of("[[ia]]\nname = 'a'\nlibrary = 'l'\nalias = ['b', 'c*d*']\n");
        assert_eq!((parsed.aliases.len(), parsed.errors.len()), (0, 1));
    }

    #[test]
    fn a_wrong_byte_of_any_field_is_named() {
        for row in [
            "params = 'lo 0 pcap=/tmp/#\u{fc}'",
            "[ia.params]\npcap = '/tmp/\u{fc}'",
            "[ia.params]\n'\u{fc}' = 1",
            "platform = '\u{fc}'",
            "alias = ['b', '\u{fc}']",
            "[alias]\nb = '\u{fc}'",
            "[alias]\n'\u{fc}' = 'a'",
        ] {
            let text = format!("[[ia]]\nname = 'a'\nlibrary = 'l'\n{row}\n");
            // Latin-1.
            let bytes: Vec<u8> = text.chars().map(|c| c as u8).collect();
            let parsed = crate::conf::parse(&bytes, Path::new("dat.toml"));
            let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
            let of_field = said
                .iter()
                .filter(|text| text.contains("byte 0xfc is not UTF-8"));
            assert_eq!(of_field.count(), 1, "{row}: {said:?}");
            let is_alias = row.starts_with("[alias]");
            assert_eq!(
                (parsed.entries.len(), parsed.aliases.len()),
                (usize::from(is_alias), 0),
                "{row}"
            );
        }
    }

    #[test]
    fn a_key_of_the_parameters_is_one_word() {
        for key in ["a b", "a=b", "a\\nb", ""] {
            let parsed = of(&format!(
                "[[ia]]\nname = 'a'\nlibrary = 'l'\n[ia.params]\n\"{key}\" = 1\n"
            ));
            let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
            assert_eq!(
                (parsed.entries.len(), said.len()),
                (0, 1),
                "{key}: {said:?}"
            );
            assert!(said[0].starts_with("dat.toml:5:1: "), "{said:?}");
        }
    }
}
