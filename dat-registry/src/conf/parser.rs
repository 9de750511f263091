//! Parses the classic form of dat.conf: one entry a line.

use std::path::Path;

use super::entry::{Api, Entry, Origin, ProviderVersion};
use super::error::{ConfError, ConfErrorKind};
use super::lexer::{Word, words};

const FIELDS: [&str; 8] = [
    "IA name",
    "API version",
    "thread safety",
    "default or nondefault",
    "library",
    "provider version",
    "IA parameters",
    "platform parameters",
];

/// Parses a classic dat.conf. A faulty line is left out; the others are returned.
#[must_use]
pub(super) fn parse(text: &str, path: &Path) -> (Vec<Entry>, Vec<ConfError>) {
    let mut entries = Vec::new();
    let mut errors = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let origin = Origin {
            path: path.to_owned(),
            line: index + 1,
        };
        match entry(line, &origin) {
            Ok(None) => {}
            Ok(Some(entry)) => entries.push(entry),
            Err((column, kind)) => errors.push(ConfError {
                origin,
                column,
                kind,
            }),
        }
    }
    (entries, errors)
}

/// Parses one line; returns `None` for a line without words. A line break in `line` counts as a blank.
///
/// # Errors
/// The column and kind of a fault.
pub(super) fn entry(line: &str, origin: &Origin) -> Result<Option<Entry>, (usize, ConfErrorKind)> {
    let words = words(line)?;
    if words.is_empty() {
        return Ok(None);
    }
    if let Some(extra) = words.get(FIELDS.len()) {
        return Err((extra.column, ConfErrorKind::TooMany(extra.text.clone())));
    }
    let Ok([name, api, safety, default, library, version, ia, platform]) =
        <[Word; 8]>::try_from(words.clone())
    else {
        let missing = FIELDS[words.len()];
        return Err((line.chars().count() + 1, ConfErrorKind::Missing(missing)));
    };
    Ok(Some(Entry {
        api: api_version(&api)?,
        thread_safe: one_of(&safety, "threadsafe", "nonthreadsafe")?,
        default: one_of(&default, "default", "nondefault")?,
        provider_version: provider_version(&version)?,
        name: not_empty(name, FIELDS[0])?,
        library: not_empty(library, FIELDS[4])?,
        ia_params: ia.text,
        platform_params: platform.text,
        origin: origin.clone(),
    }))
}

fn not_empty(word: Word, field: &'static str) -> Result<String, (usize, ConfErrorKind)> {
    if word.text.is_empty() {
        Err((word.column, ConfErrorKind::Empty(field)))
    } else {
        Ok(word.text)
    }
}

fn one_of(
    word: &Word,
    yes: &'static str,
    no: &'static str,
) -> Result<bool, (usize, ConfErrorKind)> {
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

fn api_version(word: &Word) -> Result<Api, (usize, ConfErrorKind)> {
    let parsed = word.text.split_at_checked(1).and_then(|(level, numbers)| {
        let kernel = match level {
            "u" => false,
            "k" => true,
            _ => return None,
        };
        let (major, minor) = numbers.split_once('.')?;
        Some(Api {
            kernel,
            major: major.parse().ok()?,
            minor: minor.parse().ok()?,
        })
    });
    parsed.ok_or_else(|| (word.column, ConfErrorKind::Api(word.text.clone())))
}

fn provider_version(word: &Word) -> Result<ProviderVersion, (usize, ConfErrorKind)> {
    let mut parts = word.text.rsplitn(3, '.');
    let parsed = (|| {
        let minor = parts.next()?.parse().ok()?;
        let major = parts.next()?.parse().ok()?;
        let vendor = parts.next().filter(|v| !v.is_empty())?.to_owned();
        Some(ProviderVersion {
            vendor,
            major,
            minor,
        })
    })();
    parsed.ok_or_else(|| {
        (
            word.column,
            ConfErrorKind::ProviderVersion(word.text.clone()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Result<Entry, String> {
        let (mut entries, errors) = parse(line, Path::new("/etc/dat.conf"));
        match errors.first() {
            Some(error) => Err(error.to_string()),
            None => Ok(entries.remove(0)),
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
        assert_eq!(
            e.provider_version,
            ProviderVersion {
                vendor: "SUNW".into(),
                major: 1,
                minor: 0
            }
        );
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
            text.contains("1:18: default or nondefault is missing"),
            "{text}"
        );
    }

    #[test]
    fn a_faulty_line_is_left_out() {
        let text = "# names\na u2.0 threadsafe default l v.1.0 \"\" \"\"\nnonsense\n\nb u1.2 nonthreadsafe default l v.1.0 \"\" \"\"\n";
        let (entries, errors) = parse(text, Path::new("x"));
        assert_eq!(
            entries.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(),
            ["a", "b"]
        );
        assert_eq!(errors.len(), 1);
        assert_eq!(errors[0].origin.line, 3);
    }
}
