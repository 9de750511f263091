//! The keys of an `[[ia]]` table and of `[defaults]`, with their types.
//!
//! They are read from the parsed tree directly: serde's deserializer of all of TOML would be a tenth of libdat2.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfErrorKind;

/// A fault at a range of bytes.
pub(super) type Fault = (Range<usize>, ConfErrorKind);

/// The keys of an `[[ia]]` table except `params`, and of `[defaults]`.
#[derive(Clone, Default)]
pub(super) struct Table {
    pub(super) name: Option<Spanned<String>>,
    pub(super) library: Option<Spanned<String>>,
    pub(super) alias: Vec<Spanned<String>>,
    pub(super) api: Option<Spanned<String>>,
    pub(super) thread_safe: Option<bool>,
    pub(super) default: Option<bool>,
    pub(super) provider_version: Option<Spanned<String>>,
    pub(super) platform: Option<Spanned<String>>,
}

impl Table {
    /// Reads the keys that are here; others are for the caller.
    ///
    /// # Errors
    /// A value of another type.
    pub(super) fn read(table: &DeTable<'_>) -> Result<Self, Fault> {
        let mut read = Self::default();
        for (key, value) in table.iter() {
            match key.get_ref().as_ref() {
                "name" => read.name = Some(text(value)?),
                "library" => read.library = Some(text(value)?),
                "alias" => read.alias = texts(value)?,
                "api" => read.api = Some(text(value)?),
                "thread_safe" => read.thread_safe = Some(truth(value)?),
                "default" => read.default = Some(truth(value)?),
                "provider_version" => read.provider_version = Some(text(value)?),
                "platform" => read.platform = Some(text(value)?),
                _ => {}
            }
        }
        Ok(read)
    }
}

fn text(value: &Spanned<DeValue<'_>>) -> Result<Spanned<String>, Fault> {
    let text = value.get_ref().as_str();
    let text = text.ok_or_else(|| wrong_type(value, "a string"))?;
    Ok(Spanned::new(value.span(), text.to_owned()))
}

fn texts(value: &Spanned<DeValue<'_>>) -> Result<Vec<Spanned<String>>, Fault> {
    match value.get_ref() {
        DeValue::Array(values) => values.iter().map(text).collect(),
        _ => Err(wrong_type(value, "an array of strings")),
    }
}

fn truth(value: &Spanned<DeValue<'_>>) -> Result<bool, Fault> {
    match value.get_ref() {
        DeValue::Boolean(truth) => Ok(*truth),
        _ => Err(wrong_type(value, "true or false")),
    }
}

/// Returns the fault of a value that has another type than its key.
fn wrong_type(value: &Spanned<DeValue<'_>>, wants: &str) -> Fault {
    let given = match value.get_ref() {
        DeValue::String(text) => format!("string {text:?}"),
        DeValue::Integer(number) => format!("integer `{number}`"),
        DeValue::Float(number) => format!("float `{number}`"),
        DeValue::Boolean(truth) => format!("boolean `{truth}`"),
        other => other.type_str().to_owned(),
    };
    let kind = format!("invalid type: {given}, expected {wants}");
    (value.span(), ConfErrorKind::Toml(kind))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::conf::parse;

    #[test]
    fn a_value_of_another_type_is_named_with_what_is_expected() {
        for (row, wants) in [
            (
                "name = 7",
                "2:8: invalid type: integer `7`, expected a string",
            ),
            (
                "library = 1.5",
                "2:11: invalid type: float `1.5`, expected a string",
            ),
            (
                "api = true",
                "2:7: invalid type: boolean `true`, expected a string",
            ),
            (
                "platform = []",
                "2:12: invalid type: array, expected a string",
            ),
            (
                "alias = 'b'",
                "2:9: invalid type: string \"b\", expected an array of strings",
            ),
            (
                "alias = ['b', 7]",
                "2:15: invalid type: integer `7`, expected a string",
            ),
            (
                "default = 'no'",
                "2:11: invalid type: string \"no\", expected true or false",
            ),
            (
                "thread_safe = 1",
                "2:15: invalid type: integer `1`, expected true or false",
            ),
            (
                "provider_version = 1979-05-27",
                "2:20: invalid type: datetime, expected a string",
            ),
        ] {
            for header in ["[[ia]]", "[defaults]"] {
                let parsed = parse(format!("{header}\n{row}\n").as_bytes(), Path::new("t.toml"));
                let said: Vec<String> = parsed.errors.iter().map(ToString::to_string).collect();
                let is_known =
                    header == "[[ia]]" || !row.starts_with("name") && !row.starts_with("alias");
                assert_eq!(said.len(), 1, "{said:?}");
                if is_known {
                    assert!(said[0].starts_with(&format!("t.toml:{wants}")), "{said:?}");
                }
            }
        }
        let parsed = parse(b"defaults = 3\n", Path::new("t.toml"));
        let said = parsed.errors[0].to_string();
        assert!(
            said.starts_with("t.toml:1:12: defaults is not a table"),
            "{said}"
        );
    }
}
