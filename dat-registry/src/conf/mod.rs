//! The grammar of dat.conf: [`parse`] reads a file in either form, `write` writes them. dat.conf(5) describes both.

mod alias;
mod classic_form;
mod decode;
mod entry;
mod error;
mod fields;
mod lexer;
pub(crate) mod mistakes;
mod parsed;
mod place;
pub mod suggest;
mod toml_form;
mod toml_table;
mod write;

use std::path::Path;

pub use alias::Alias;
pub use entry::{Api, Entry, Places, ProviderVersion, Setting, Value};
pub use error::{ConfError, ConfErrorKind, Effect};
pub use parsed::Parsed;
pub use place::{Origin, Place};
pub use write::{classic_alias, classic_line, toml_alias, toml_table};

/// Returns true if the file of this name has the TOML form: its name ends in `.toml`.
#[must_use]
pub fn is_toml(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "toml")
}

/// Parses the file `path`, which contains `bytes`: TOML if the name ends in `.toml`, else the classic form. A faulty entry is left out;
/// the others are returned.
#[must_use]
pub fn parse(bytes: &[u8], path: &Path) -> Parsed {
    let decoded = decode::decode(bytes);
    let mut parsed = Parsed::default();
    for (place, kind) in &decoded.faults {
        parsed.errors.push(ConfError {
            origin: Origin {
                path: path.to_owned(),
                line: place.line,
            },
            column: place.column,
            kind: kind.clone(),
        });
    }
    if is_toml(path) {
        toml_form::parse(&decoded, path, &mut parsed);
    } else {
        classic_form::parse(&decoded, path, &mut parsed);
    }
    warn_of_shell_words(&mut parsed);
    parsed
        .errors
        .sort_by_key(|error| (error.origin.line, error.column));
    parsed
}

/// Adds a warning for each setting that a shell would expand.
fn warn_of_shell_words(parsed: &mut Parsed) {
    for entry in &parsed.entries {
        for setting in &entry.places.settings {
            let text = setting.value.to_string();
            if mistakes::is_for_a_shell(&text) {
                parsed.errors.push(ConfError {
                    origin: Origin {
                        path: entry.origin.path.clone(),
                        line: setting.place.line,
                    },
                    column: setting.place.column,
                    kind: ConfErrorKind::NotExpanded(text),
                });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "x u2.0 threadsafe default l v.1.0 \"\" \"\"";

    fn said(bytes: &[u8], name: &str) -> (usize, Vec<String>) {
        let parsed = parse(bytes, Path::new(name));
        let said = parsed.errors.iter().map(ToString::to_string);
        (parsed.entries.len(), said.collect())
    }

    #[test]
    fn encodings_that_editors_write() {
        let (count, said_) = said(format!("\u{FEFF}{LINE}\r\n# c\r\n").as_bytes(), "t.conf");
        assert_eq!(count, 1);
        assert!(
            said_[0].starts_with("t.conf:1:1: warning: a byte order mark"),
            "{said_:?}"
        );
        assert!(said_[1].contains("CR LF"), "{said_:?}");
        let bom = parse(format!("\u{FEFF}{LINE}").as_bytes(), Path::new("t"));
        assert_eq!(bom.entries[0].name, "x");
        let toml = "\u{FEFF}[[ia]]\r\nname = 'x'\r\nlibrary = 'l'\r\n";
        assert_eq!(said(toml.as_bytes(), "t.toml").0, 1);
        assert!(said(b"\xFF\xFEx\0", "t.conf").1[0].contains("UTF-16"));
        let latin = [b"# Gr\xFC\xDFe\n", LINE.as_bytes(), b"\nx\xE4 u2.0 # y\n"].concat();
        let (count, said_) = said(&latin, "t.conf");
        assert_eq!((count, said_.len()), (1, 2), "{said_:?}");
        assert!(
            said_[0].starts_with("t.conf:1:5: warning: byte 0xfc in this comment"),
            "{said_:?}"
        );
        assert!(
            said_[1].starts_with("t.conf:3:2: byte 0xe4 is not UTF-8"),
            "{said_:?}"
        );
        let toml = [&b"# \xE4\n"[..], b"[[ia]]\nname = 'x'\nlibrary = 'l\xFC'\n"].concat();
        let (count, said_) = said(&toml, "t.toml");
        assert_eq!((count, said_.len()), (0, 2), "{said_:?}");
        assert!(said_[1].starts_with("t.toml:4:"), "{said_:?}");
    }

    #[test]
    fn aliases_and_patterns() {
        let text = "alias a b\nalias ofa-v2-* x # y\nalias only-two\npre-*-1u u2.0 threadsafe default l v.1.0 \"* 1\" \"\"\n";
        let parsed = parse(text.as_bytes(), Path::new("t"));
        assert_eq!(
            (
                parsed.aliases.len(),
                parsed.entries.len(),
                parsed.errors.len()
            ),
            (2, 1, 1)
        );
        assert!(parsed.aliases[1].is_for("ofa-v2-ib0") && !parsed.aliases[1].is_for("ofa"));
        let entry = parsed.entries[0]
            .for_name("pre-mlx5_0-1u")
            .expect("matches");
        assert_eq!(
            (&*entry.name, &*entry.ia_params),
            ("pre-mlx5_0-1u", "mlx5_0 1")
        );
        assert_eq!(parsed.entries[0].for_name("pre-1u"), None);
    }

    #[test]
    fn what_is_written_is_read_again() {
        let text = "a\\#x u1.2 nonthreadsafe nondefault \"/l b\" v.1.0 \"lo 0 mtu=1024 pcap=/tmp/1\" \"p \\\" q\"\n\
                    b u2.0 threadsafe default l v.1.0 \"one two three\" \"\"\n";
        let parsed = parse(text.as_bytes(), Path::new("t"));
        assert_eq!(parsed.entries.len(), 2, "{:?}", parsed.errors);
        for entry in &parsed.entries {
            let line = classic_line(entry);
            let toml = toml_table(entry, |key| key == "mtu");
            for (text, name) in [(line, "t"), (toml, "t.toml")] {
                let again = parse(text.as_bytes(), Path::new(name));
                assert_eq!(again.errors, [], "{text}");
                let mut again = again.entries[0].clone();
                again.origin = entry.origin.clone();
                again.places = entry.places.clone();
                assert_eq!(&again, entry, "{text}");
            }
        }
        let toml = toml_table(&parsed.entries[0], |key| key == "mtu");
        assert!(toml.contains("\nmtu = 1024\npcap = \"/tmp/1\"\n"), "{toml}");
    }

    #[test]
    fn a_file_of_other_bytes_takes_time_in_proportion_to_its_length() {
        // 400 kB, e.g. a library in the place of dat.conf. Each byte was placed by a look at all bytes before it.
        let mut bytes = b"\xff\xfe\xfd\n".repeat(100_000);
        bytes[0] = b'#';
        for name in ["t.conf", "t.toml"] {
            let parsed = parse(&bytes, Path::new(name));
            assert_eq!(parsed.entries, [], "{name}");
            assert!(!parsed.errors.is_empty(), "{name}");
        }
    }

    #[test]
    fn comments_are_told_from_what_is_in_quotes() {
        let classic =
            "# c\n\"#a\" u2.0 threadsafe default l#1 v.1.0 \"a # b\" \"\"\nalias \"#b\" c # d\n";
        assert_eq!(parse(classic.as_bytes(), Path::new("t")).comments, 2);
        let toml = "[[ia]] # c\nname = '#a'\nlibrary = \"l\\\"#\"\n[alias]\n'#b' = \"c\" # d\n";
        let parsed = parse(toml.as_bytes(), Path::new("t.toml"));
        assert_eq!((parsed.comments, parsed.errors), (2, vec![]));
    }
}
