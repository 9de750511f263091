//! The settings that a provider declares, and whether an entry's settings are among them.
//!
//! A provider exports the text `dat_rs_settings`: lines `KEY number LEAST MOST`, `KEY one-of WORD...` or `KEY text`. It is read from
//! the file, so that a check runs no code of the library. A classic provider declares nothing, and nothing is checked.
//!
//! Lines behind those say how settings depend on each other: `KEY only OTHER WORD...` if the provider refuses KEY beside OTHER with another
//! value than these, and `KEY idle OTHER` if KEY is without effect where OTHER is set. `KEY needed EXAMPLE OTHER...` says that the provider
//! refuses an entry without KEY, unless the entry has one of OTHER. If there is a line `KEY only` as well, KEY is needed for the values of
//! that line only. Registries that do not know these lines take them for repetitions of KEY, which they ignore.

use dat_core::ia_params::IaParams;
use serde::Deserialize;
use serde::de::IntoDeserializer;
use serde::de::value::{Error, I64Deserializer, StrDeserializer};

use crate::conf::{ConfError, ConfErrorKind, Entry, Origin, Setting, Value, suggest};
use crate::elf::Object;

/// The settings that a provider declares.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Declared {
    settings: Vec<(String, Kind)>,
    relations: Vec<Relation>,
}

/// How a setting depends on another one.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Relation {
    /// The provider refuses it beside other values of `other` than `words`.
    Only {
        key: String,
        other: String,
        words: Vec<String>,
    },
    /// It is without effect where `other` is set.
    Idle { key: String, other: String },
    /// The provider refuses an entry without it and without any of `others`.
    Needed {
        key: String,
        example: String,
        others: Vec<String>,
    },
}

/// The values of a setting.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// An integer.
    Number {
        /// The least.
        least: i64,
        /// The greatest.
        most: i64,
    },
    /// One of some words; words of digits alone may be written as integers.
    OneOf(Vec<String>),
    /// Any text that is not empty.
    Text,
}

impl Declared {
    /// Reads what the library declares; `None` for a classic provider.
    #[must_use]
    pub fn of(object: &Object) -> Option<Self> {
        let bytes = object.variable("dat_rs_settings")?;
        Some(Self::parse(&String::from_utf8_lossy(bytes)))
    }

    /// Parses the text of `dat_rs_settings`. Of a key that occurs twice the first line counts; lines of a later version's kinds are
    /// taken for text.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut all: Vec<(String, Kind)> = Vec::new();
        let mut relations = Vec::new();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            let (Some(key), kind) = (words.next(), words.next()) else {
                continue;
            };
            let rest: Vec<String> = words.map(str::to_owned).collect();
            let is_known = all.iter().any(|(known, _)| known == key);
            if let (true, Some((other, words))) = (is_known, rest.split_first()) {
                let (key, other) = (key.to_owned(), other.clone());
                match kind {
                    Some("only") => {
                        let words = words.to_vec();
                        relations.push(Relation::Only { key, other, words });
                    }
                    Some("idle") => relations.push(Relation::Idle { key, other }),
                    Some("needed") => relations.push(Relation::Needed {
                        key,
                        example: other,
                        others: words.to_vec(),
                    }),
                    _ => {}
                }
                continue;
            }
            let bound =
                |at: usize, usual| rest.get(at).and_then(|w| w.parse().ok()).unwrap_or(usual);
            let kind = match kind {
                Some("number") => Kind::Number {
                    least: bound(0, 0),
                    most: bound(1, i64::MAX),
                },
                Some("one-of") => Kind::OneOf(rest),
                _ => Kind::Text,
            };
            if !is_known {
                all.push((key.to_owned(), kind));
            }
        }
        Self {
            settings: all,
            relations,
        }
    }

    /// Returns true if the values of the setting are numbers.
    #[must_use]
    pub fn is_number(&self, key: &str) -> bool {
        self.settings.iter().any(|(known, kind)| match kind {
            _ if known != key => false,
            Kind::Number { .. } => true,
            Kind::OneOf(words) => words.iter().all(|word| is_digits(word)),
            Kind::Text => false,
        })
    }

    /// Returns the faults of an entry's settings; if there is none, that of the parameters' form; if it has one, the settings that are missing.
    #[must_use]
    pub fn check(&self, entry: &Entry) -> Vec<ConfError> {
        let mut errors = Vec::new();
        for (at, setting) in entry.places.settings.iter().enumerate() {
            let again = entry.places.settings[..at]
                .iter()
                .any(|s| s.key == setting.key);
            let fault = if again {
                Some(format!("{} is set twice; remove one", setting.key))
            } else {
                let of_one = self.check_one(setting).err();
                of_one.or_else(|| self.refusal(&setting.key, entry))
            };
            let fault = fault.map(ConfErrorKind::Provider);
            errors.extend(fault.map(|kind| located(entry, setting, kind)));
        }
        if !errors.is_empty() {
            return errors;
        }
        let of_entry = match IaParams::parse(&entry.ia_params) {
            Err(error) => vec![error.to_string()],
            Ok(_) => self.missing(entry),
        };
        let place = entry.places.params;
        let located = of_entry.into_iter().map(|text| ConfError {
            origin: Origin {
                path: entry.origin.path.clone(),
                line: place.line,
            },
            column: place.column,
            kind: ConfErrorKind::Provider(text),
        });
        located.collect()
    }

    /// Names the settings without which the provider refuses the entry.
    fn missing(&self, entry: &Entry) -> Vec<String> {
        let is_set = |key: &str| value_of(entry, key).is_some();
        let needed = self.relations.iter().filter_map(|relation| {
            let Relation::Needed {
                key,
                example,
                others,
            } = relation
            else {
                return None;
            };
            let set = is_set(key) || others.iter().any(|other| is_set(other));
            (!set && self.belongs(key, entry)).then(|| {
                format!(
                    "the setting {key} is missing: add {key}={example} to the entry's ia_params"
                )
            })
        });
        needed.collect()
    }

    /// Returns a warning for each setting that another one makes ineffective. The IA opens.
    #[must_use]
    pub fn warnings(&self, entry: &Entry) -> Vec<ConfError> {
        let mut warnings = Vec::new();
        for setting in &entry.places.settings {
            let idle = self.relations.iter().find_map(|relation| match relation {
                Relation::Idle { key, other } if *key == setting.key => value_of(entry, other),
                _ => None,
            });
            warnings.extend(idle.map(|by| {
                let kind = ConfErrorKind::NoEffect {
                    key: setting.key.clone(),
                    by: by.key.clone(),
                };
                located(entry, setting, kind)
            }));
        }
        warnings
    }

    /// Returns whether the entry has each setting that [`Relation::Only`] names for `name`, with a value beside which it is possible.
    fn belongs(&self, name: &str, entry: &Entry) -> bool {
        self.relations.iter().all(|relation| match relation {
            Relation::Only { key, other, words } if key == name => value_of(entry, other)
                .is_some_and(|setting| words.contains(&setting.value.to_string())),
            _ => true,
        })
    }

    /// Says that the provider refuses the setting `name` beside another one of the entry.
    fn refusal(&self, name: &str, entry: &Entry) -> Option<String> {
        self.relations.iter().find_map(|relation| {
            let Relation::Only { key, other, words } = relation else {
                return None;
            };
            if key != name {
                return None;
            }
            let value = value_of(entry, other)?.value.to_string();
            (!words.contains(&value)).then(|| {
                format!(
                    "{key} is not possible with {other}={value}, only with {other}={}",
                    words.join(&format!(" or {other}="))
                )
            })
        })
    }

    fn check_one(&self, setting: &Setting) -> Result<(), String> {
        let Some((key, kind)) = self.settings.iter().find(|(key, _)| *key == setting.key) else {
            let keys = || self.settings.iter().map(|(key, _)| key.as_str());
            return Err(format!(
                "the provider has no setting {:?}{}; known ones: {}",
                setting.key,
                suggest::hint(&setting.key, keys()),
                keys().collect::<Vec<_>>().join(", ")
            ));
        };
        kind.accept(&setting.value).map_err(|wants| {
            format!(
                "{key} = {:?} is not possible: {wants}",
                setting.value.to_string()
            )
        })
    }
}

/// Returns the setting of this key that an entry has.
fn value_of<'a>(entry: &'a Entry, key: &str) -> Option<&'a Setting> {
    entry.places.settings.iter().find(|s| s.key == key)
}

/// Returns a fault at the place of a setting.
fn located(entry: &Entry, setting: &Setting, kind: ConfErrorKind) -> ConfError {
    ConfError {
        origin: Origin {
            path: entry.origin.path.clone(),
            line: setting.place.line,
        },
        column: setting.place.column,
        kind,
    }
}

impl Kind {
    /// Deserialises the value as this kind; the error says what is possible.
    fn accept(&self, value: &Value) -> Result<(), String> {
        match self {
            Self::Number { least, most } => {
                let wants = format!("an integer from {least} to {most}");
                let number = match value {
                    Value::Word(word) => number(word).ok_or_else(|| wants.clone())?,
                    typed => {
                        typed_value::<i64>(typed).map_err(|error| format!("{wants} ({error})"))?
                    }
                };
                (*least..=*most)
                    .contains(&number)
                    .then_some(())
                    .ok_or(wants)
            }
            Self::OneOf(words) => {
                let text = match value {
                    Value::Number(number) if words.iter().all(|word| is_digits(word)) => {
                        number.to_string()
                    }
                    Value::Number(_) => typed_value::<String>(value).map_err(|e| e.to_string())?,
                    Value::Word(text) | Value::Text(text) => text.clone(),
                };
                let known = || words.iter().map(String::as_str);
                words.contains(&text).then_some(()).ok_or_else(|| {
                    format!(
                        "one of {}{}",
                        words.join(", "),
                        suggest::hint(&text, known())
                    )
                })
            }
            Self::Text => match value {
                Value::Number(_) => typed_value::<String>(value)
                    .map(drop)
                    .map_err(|e| e.to_string()),
                Value::Word(text) | Value::Text(text) if text.is_empty() => {
                    Err("it is empty".into())
                }
                _ => Ok(()),
            },
        }
    }
}

/// Deserialises a value of the TOML form.
fn typed_value<'de, T: Deserialize<'de>>(value: &'de Value) -> Result<T, Error> {
    match value {
        Value::Number(number) => {
            let deserializer: I64Deserializer<Error> = (*number).into_deserializer();
            T::deserialize(deserializer)
        }
        Value::Word(text) | Value::Text(text) => {
            let deserializer: StrDeserializer<'_, Error> = text.as_str().into_deserializer();
            T::deserialize(deserializer)
        }
    }
}

/// Reads a number as providers do: decimal or 0x... .
fn number(word: &str) -> Option<i64> {
    match word.strip_prefix("0x") {
        Some(hex) => i64::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}

fn is_digits(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::conf::parse;

    const DECLARED: &str = "mtu one-of 256 1024 4096\nretry number 0 7\nengine one-of kernel user\npcap text\nretry text\n";

    fn said(file: &str, text: &str) -> Vec<String> {
        let parsed = parse(text.as_bytes(), Path::new(file));
        assert_eq!(parsed.errors, []);
        let declared = Declared::parse(DECLARED);
        let errors = declared.check(&parsed.entries[0]);
        errors.iter().map(ToString::to_string).collect()
    }

    fn line(params: &str) -> Vec<String> {
        said(
            "c",
            &format!("a u2.0 threadsafe default l v.1.0 \"{params}\" \"\""),
        )
    }

    #[test]
    fn words_of_a_line_are_checked_at_their_columns() {
        assert_eq!(line("lo 0 mtu=1024 retry=0x7 pcap=/x engine=user"), [""; 0]);
        for (params, wants) in [
            (
                "lo 0 mtu=1500",
                "c:1:41: mtu = \"1500\" is not possible: one of 256, 1024, 4096",
            ),
            (
                "retry=8",
                "c:1:36: retry = \"8\" is not possible: an integer from 0 to 7",
            ),
            ("retry=1 retry=2", "c:1:44: retry is set twice; remove one"),
            (
                "retrry=1",
                "has no setting \"retrry\"; did you mean \"retry\"?; known ones: mtu",
            ),
            ("engine=usr", "did you mean \"user\"?"),
            ("pcap=", "it is empty"),
            (
                "lo one",
                "c:1:35: ia_params \"lo one\": port \"one\" is not a number",
            ),
        ] {
            let said = line(params);
            assert!(
                said.len() == 1 && said[0].contains(wants),
                "{said:?} lacks {wants}"
            );
        }
    }

    #[test]
    fn settings_that_exclude_each_other_are_named_at_their_columns() {
        let relations = "lanes number 1 16\nlanes only engine user auto\nlanes idle pcap\n";
        let declared = Declared::parse(&(DECLARED.to_owned() + relations));
        let said = |params: &str| {
            let line = format!("a u2.0 threadsafe default l v.1.0 \"{params}\" \"\"");
            let parsed = parse(line.as_bytes(), Path::new("c"));
            let entry = &parsed.entries[0];
            let all = [declared.check(entry), declared.warnings(entry)].concat();
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for params in ["lanes=2", "lanes=2 engine=user", "pcap=/x engine=kernel"] {
            assert_eq!(said(params), [""; 0], "{params}");
        }
        for (params, wants) in [
            (
                "lo 0 lanes=2 engine=kernel",
                "c:1:41: lanes is not possible with engine=kernel, only with engine=user or engine=auto; this IA does not open",
            ),
            (
                "lo 0 pcap=/x lanes=2",
                "c:1:49: warning: lanes has no effect beside pcap",
            ),
        ] {
            assert_eq!(said(params), [wants]);
        }
    }

    #[test]
    fn settings_that_the_provider_needs_are_named() {
        let declared = Declared::parse(
            "kind one-of a b\nscript text\nseed number\nkind needed a\nscript only kind b\nscript needed /x seed\n",
        );
        let said = |params: &str| {
            let line = format!("i u2.0 threadsafe default l v.1.0 \"{params}\" \"\"");
            let parsed = parse(line.as_bytes(), Path::new("c"));
            let all = declared.check(&parsed.entries[0]);
            all.iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        for params in ["kind=a", "kind=b script=/y", "kind=b seed=1"] {
            assert_eq!(said(params), [""; 0], "{params}");
        }
        let missing = |setting: &str, example: &str| {
            format!(
                "c:1:35: the setting {setting} is missing: add {setting}={example} to the entry's ia_params; this IA does not open"
            )
        };
        assert_eq!(said("kind=b"), [missing("script", "/x")]);
        assert_eq!(said(""), [missing("kind", "a")]);
        // What is wrong comes first.
        assert_eq!(said("kind=c").len(), 1);
    }

    #[test]
    fn values_of_a_table_have_types() {
        let table = |row: &str| {
            said(
                "c.toml",
                &format!("[[ia]]\nname='a'\nlibrary='l'\n[ia.params]\n{row}\n"),
            )
        };
        assert_eq!(
            table("mtu = 1024\nretry = 7\nengine = 'user'\npcap = '/x'"),
            [""; 0]
        );
        for (row, wants) in [
            (
                "retry = '7'",
                "c.toml:5:1: retry = \"7\" is not possible: an integer from 0 to 7 (invalid type: string \"7\"",
            ),
            ("pcap = 3", "invalid type: integer `3`, expected a string"),
            ("engine = 1", "invalid type: integer `1`, expected a string"),
            ("mtu = 1500", "one of 256"),
        ] {
            let said = table(row);
            assert!(
                said.len() == 1 && said[0].contains(wants),
                "{said:?} lacks {wants}"
            );
        }
    }
}
