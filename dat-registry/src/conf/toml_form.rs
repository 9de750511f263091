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

mod params;

use std::borrow::Cow;
use std::ops::Range;
use std::path::Path;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::alias::Alias;
use super::decode::Decoded;
use super::entry::Entry;
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
mod tests;
