//! The `params` of an `[[ia]]` table: the text of the classic form, or a table of typed settings.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{File, in_order};
use crate::conf::entry::{Places, Setting, Value};
use crate::conf::error::ConfErrorKind;
use crate::conf::fields;
use crate::conf::toml_table::Fault;

impl File<'_> {
    /// Returns the parameters as the text of the classic form, with the places of the value and of its settings.
    pub(super) fn params(&self, value: &Spanned<DeValue<'_>>) -> Result<(String, Places), Fault> {
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

    /// Returns the settings of a `params` table as text.
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
}

/// Returns the span of a table's first key.
fn first_key_span(table: &DeTable<'_>) -> Range<usize> {
    table.iter().next().map_or(0..0, |(key, _)| key.span())
}

/// Returns the value of a setting: a string or an integer.
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
