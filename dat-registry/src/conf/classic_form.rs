//! Parses the classic form of dat.conf: one entry or one alias a line.

use std::path::Path;

use super::alias::Alias;
use super::decode::Decoded;
use super::entry::{Entry, Places, Setting, Value};
use super::error::{ConfError, ConfErrorKind};
use super::fields;
use super::lexer::{Split, Word, words};
use super::mistakes;
use super::parsed::Parsed;
use super::place::{Origin, Place};

const FIELDS: [&str; 8] = [
    fields::NAME,
    "API version",
    "thread safety",
    "default or nondefault",
    fields::LIBRARY,
    "provider version",
    fields::PARAMS,
    fields::PLATFORM,
];

/// A fault, at a column of the line.
type Fault = (usize, ConfErrorKind);

/// Parses a classic dat.conf. A faulty line is left out; the others are returned.
pub(super) fn parse(decoded: &Decoded<'_>, path: &Path, parsed: &mut Parsed) {
    let (mut has_toml, mut is_continued) = (false, false);
    for (index, line) in decoded.text.lines().enumerate() {
        let origin = Origin {
            path: path.to_owned(),
            line: index + 1,
        };
        let split = words(line);
        let comment = split.as_ref().ok().and_then(|split| split.comment);
        parsed.comments += usize::from(comment.is_some());
        if let Some((column, ConfErrorKind::Encoding(byte))) =
            comment.and_then(|from| decoded.wrong_between(origin.line, from, usize::MAX))
        {
            parsed.errors.push(ConfError {
                origin: origin.clone(),
                column,
                kind: ConfErrorKind::EncodingOfComment(byte),
            });
        }
        let end = comment.unwrap_or(usize::MAX);
        let code: String = line.chars().take(end - 1).collect();
        let outcome = match decoded.wrong_between(origin.line, 1, end) {
            Some(fault) => Err(fault),
            None => self::line(split, &code, line, &origin, parsed),
        };
        let Err((column, kind)) = outcome else {
            is_continued = false;
            continue;
        };
        // The rest of an entry that was left out. A whole entry behind such a line counts, as in DAPL.
        if is_continued {
            is_continued = mistakes::continuation(&code).is_some();
            continue;
        }
        is_continued = kind == ConfErrorKind::Continued;
        let is_toml = kind == ConfErrorKind::TomlLine;
        // One message for all lines of TOML.
        if !(is_toml && has_toml) {
            parsed.errors.push(ConfError {
                origin,
                column,
                kind,
            });
        }
        has_toml |= is_toml;
    }
}

/// Adds what one line says. A fault that a usual mistake explains is replaced by the mistake.
fn line(
    split: Result<Split, Fault>,
    code: &str,
    line: &str,
    origin: &Origin,
    parsed: &mut Parsed,
) -> Result<(), Fault> {
    if let Some((column, quote)) = mistakes::typographic_quote(code, &split) {
        return Err((column, ConfErrorKind::WrongQuote(quote)));
    }
    let single = mistakes::single_quote(&split);
    let added = split.and_then(|split| add(split.words, line, origin, parsed));
    added.map_err(|fault| {
        if mistakes::is_toml_line(code) {
            let column = 1 + code.chars().take_while(|c| c.is_whitespace()).count();
            return (column, ConfErrorKind::TomlLine);
        }
        if let Some(column) = mistakes::continuation(code) {
            return (column, ConfErrorKind::Continued);
        }
        match single {
            Some(column) if is_about_words(&fault.1) => (column, ConfErrorKind::WrongQuote('\'')),
            _ => fault,
        }
    })
}

/// Returns true if a fault may come from a field that was split where it should not be.
fn is_about_words(kind: &ConfErrorKind) -> bool {
    use ConfErrorKind::{AfterQuote, Missing, OpenQuote, TooMany};
    matches!(kind, AfterQuote(_) | Missing(_) | OpenQuote | TooMany(_))
}

/// Adds the entry or alias of a line.
fn add(words: Vec<Word>, line: &str, origin: &Origin, parsed: &mut Parsed) -> Result<(), Fault> {
    match words.as_slice() {
        [] => {}
        [keyword, name, target] if keyword.text == "alias" && name.text != "=" => {
            check(name, fields::name)?;
            check(target, fields::name)?;
            parsed.aliases.push(Alias {
                name: name.text.clone(),
                target: target.text.clone(),
                origin: origin.clone(),
                place: place(origin, target),
            });
        }
        _ => parsed.entries.push(entry(words, line, origin)?),
    }
    Ok(())
}

fn entry(words: Vec<Word>, line: &str, origin: &Origin) -> Result<Entry, Fault> {
    if let Some(extra) = words.get(FIELDS.len()) {
        return Err((extra.column, ConfErrorKind::TooMany(extra.text.clone())));
    }
    let count = words.len();
    let Ok([name, api, safety, default, library, version, ia, platform]) =
        <[Word; 8]>::try_from(words)
    else {
        let kind = ConfErrorKind::Missing(FIELDS[count]);
        return Err((line.chars().count() + 1, kind));
    };
    check(&name, fields::name)?;
    let api = check(&api, fields::api)?;
    let thread_safe = one_of(&safety, "threadsafe", "nonthreadsafe")?;
    let default = one_of(&default, "default", "nondefault")?;
    check(&library, |text| fields::filled(text, fields::LIBRARY))?;
    let provider_version = check(&version, fields::provider_version)?;
    check(&ia, |text| fields::printable(text, fields::PARAMS))?;
    check(&platform, |text| fields::printable(text, fields::PLATFORM))?;
    Ok(Entry {
        places: Places {
            name: place(origin, &name),
            library: place(origin, &library),
            params: place(origin, &ia),
            settings: settings(origin, &ia),
        },
        api,
        thread_safe,
        default,
        provider_version,
        name: name.text,
        library: library.text,
        ia_params: ia.text,
        platform_params: platform.text,
        origin: origin.clone(),
    })
}

fn place(origin: &Origin, word: &Word) -> Place {
    Place {
        line: origin.line,
        column: word.column,
    }
}

/// Applies a rule to a word; a fault gets the word's column.
fn check<T>(word: &Word, rule: impl Fn(&str) -> Result<T, ConfErrorKind>) -> Result<T, Fault> {
    rule(&word.text).map_err(|kind| (word.column, kind))
}

fn one_of(word: &Word, yes: &'static str, no: &'static str) -> Result<bool, Fault> {
    match word.text.as_str() {
        text if text == yes => Ok(true),
        text if text == no => Ok(false),
        other => Err((
            word.column,
            ConfErrorKind::Choice {
                given: other.to_owned(),
                yes,
                no,
            },
        )),
    }
}

/// Returns the settings of a parameter field with their places. Escapes before a setting shift its column.
fn settings(origin: &Origin, field: &Word) -> Vec<Setting> {
    let start = field.column + usize::from(field.quoted);
    let mut settings = Vec::new();
    let mut rest = field.text.as_str();
    let mut column = start;
    while !rest.is_empty() {
        let blanks = rest.len() - rest.trim_start().len();
        column += rest[..blanks].chars().count();
        rest = &rest[blanks..];
        let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
        let (word, after) = rest.split_at(end);
        if let Some((key, value)) = word.split_once('=') {
            settings.push(Setting {
                key: key.to_owned(),
                value: Value::Word(value.to_owned()),
                place: Place {
                    line: origin.line,
                    column,
                },
            });
        }
        column += word.chars().count();
        rest = after;
    }
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Entry, String> {
        let mut parsed = crate::conf::parse(line.as_bytes(), Path::new("/etc/dat.conf"));
        match parsed.errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(parsed.entries.remove(0)),
        }
    }

    #[test]
    fn classic_lines_of_linux_and_solaris() {
        let e = one(r#"ofa-v2-ib0 u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "ib0 0" """#)
            .unwrap();
        assert_eq!(
            (e.name.as_str(), e.api.to_string().as_str()),
            ("ofa-v2-ib0", "u2.0")
        );
        assert_eq!(
            (e.thread_safe, e.default, e.ia_params.as_str()),
            (false, true, "ib0 0")
        );
        let e = one(r#"tavor0 u1.2 threadsafe nondefault udapl_tavor.so.1 SUNW.1.0 " " "driver_name=tavor""#).unwrap();
        assert_eq!(
            (e.api.major, e.api.minor, e.platform_params.as_str()),
            (1, 2, "driver_name=tavor")
        );
        assert_eq!(e.provider_version.to_string(), "SUNW.1.0");
    }

    #[test]
    fn each_fault_says_where_and_what() {
        let good = [
            "a",
            "u2.0",
            "threadsafe",
            "default",
            "lib.so",
            "v.1.0",
            "\"\"",
            "\"\"",
        ];
        let with = |at: usize, word: &str| {
            let mut words = good;
            words[at] = word;
            one(&words.join(" ")).unwrap_err()
        };
        assert!(one(&good.join(" ")).is_ok());
        for (at, word, wants) in [
            (0, "\"\"", "1:1: the IA name is empty"),
            (1, "2.0", "1:3: API version \"2.0\""),
            (1, "u2", "1:3:"),
            (1, "uü.0", "1:3:"),
            (
                2,
                "safe",
                "1:8: \"safe\" is neither threadsafe nor nonthreadsafe",
            ),
            (3, "yes", "1:19: \"yes\" is neither default nor nondefault"),
            (4, "\"\"", "the library is empty"),
            (5, "1.0", "provider version \"1.0\""),
            (6, "\"x", "quote"),
            (7, "\"\" extra", "\"extra\""),
        ] {
            let text = with(at, word);
            assert!(text.contains(wants), "{word}: {text}");
        }
        let text = one(&good[..3].join(" ")).unwrap_err();
        assert!(
            text.contains("1:18: the field \"default or nondefault\" is missing"),
            "{text}"
        );
    }

    #[test]
    fn a_faulty_line_is_left_out() {
        let text = "# names\na u2.0 threadsafe default l v.1.0 \"\" \"\"\nnonsense\n\nb u1.2 nonthreadsafe default l v.1.0 \"\" \"\"\n";
        let Parsed {
            entries, errors, ..
        } = crate::conf::parse(text.as_bytes(), Path::new("x"));
        assert_eq!(
            entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].origin.line, 3);
    }

    #[test]
    fn a_setting_has_its_place_and_a_name_its_limits() {
        let e = one(r#"a u2.0 threadsafe default l v.1.0 "lo 0  mtu=1024 retry=3" """#).unwrap();
        let places: Vec<_> = e
            .places
            .settings
            .iter()
            .map(|s| (&*s.key, s.place.column))
            .collect();
        assert_eq!(places, [("mtu", 42), ("retry", 51)]);
        assert_eq!(e.places.params.column, 35);
        let named = |name: &str| one(&format!("{name} u2.0 threadsafe default l v.1.0 \"\" \"\""));
        let text = named(&"n".repeat(300)).unwrap_err();
        assert!(
            text.contains(":1:1: the IA name has 300 bytes; at most 255"),
            "{text}"
        );
        assert!(named(&"n".repeat(255)).is_ok());
        assert!(named("a*b*").unwrap_err().contains("more than one *"));
        assert!(named("\"a\0\"").unwrap_err().contains("'\\0'"));
    }
}
