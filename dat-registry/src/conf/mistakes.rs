//! Recognises usual mistakes, so that a message says what to write instead.

use super::fields;
use super::lexer::{Split, words};

/// Returns true if a line looks like TOML: a header, or a key with a value.
pub(super) fn is_toml_line(line: &str) -> bool {
    let line = line.trim_start();
    let key = line.trim_start_matches(|c: char| {
        c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '*' | '"' | '\'')
    });
    let has_key = key.len() < line.len() && key.trim_start().starts_with('=');
    has_key || line.starts_with(['[', ']'])
}

/// Returns the number, from 1, of the first line that has the classic form.
pub(super) fn first_classic_line(text: &str) -> Option<usize> {
    let is_classic = |line: &str| {
        let words = words(line).unwrap_or_default().words;
        let texts: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
        match texts.as_slice() {
            ["alias", name, _] => *name != "=",
            [_, api, _, ..] => fields::api(api).is_ok(),
            _ => false,
        }
    };
    Some(text.lines().position(is_classic)? + 1)
}

/// Returns the first typographic quote at an end of a word, and its column. In a line that has no words, any counts.
pub(super) fn typographic_quote<E>(line: &str, split: &Result<Split, E>) -> Option<(usize, char)> {
    let Ok(split) = split else {
        return quote_in(line);
    };
    let bare = split.words.iter().filter(|word| !word.quoted);
    bare.filter_map(|word| {
        let (at, quote) = quote_in(&word.text)?;
        let is_end = at == 1 || word.text.ends_with(is_quote);
        is_end.then_some((word.column + at - 1, quote))
    })
    .next()
}

/// Returns the column of the first field that begins with a single quote, as shells and TOML have them. Such a field is no fault by itself:
/// DAPL takes it as it stands.
pub(super) fn single_quote<E>(split: &Result<Split, E>) -> Option<usize> {
    let bare = split.iter().flat_map(|split| &split.words);
    let mut bare = bare.filter(|word| !word.quoted && word.text.starts_with('\''));
    bare.next().map(|word| word.column)
}

/// Returns the first typographic quote of a text and its column.
pub(super) fn quote_in(text: &str) -> Option<(usize, char)> {
    let mut columns = (1..).zip(text.chars());
    columns.find(|(_, c)| is_quote(*c))
}

fn is_quote(c: char) -> bool {
    matches!(c, '“' | '”' | '„' | '‟' | '‘' | '’' | '‚' | '«' | '»')
}

/// Returns the column of a backslash at the end of a line, as shells continue lines.
pub(super) fn continuation(code: &str) -> Option<usize> {
    let code = code.trim_end();
    code.ends_with('\\').then(|| code.chars().count())
}

/// Returns true if a shell would replace a part of this path: `~`, `$NAME` or `${NAME}`.
#[must_use]
pub(crate) fn is_for_a_shell(path: &str) -> bool {
    let begins_name = |c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '{');
    let mut after_dollar = path.split('$').skip(1);
    path == "~" || path.starts_with("~/") || after_dollar.any(|rest| rest.starts_with(begins_name))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::conf::parse;

    fn said(text: &str, name: &str) -> (usize, Vec<String>) {
        let parsed = parse(text.as_bytes(), Path::new(name));
        let said = parsed.errors.iter().map(ToString::to_string);
        (parsed.entries.len(), said.collect())
    }

    const LINE: &str = "x u2.0 threadsafe default l v.1.0 \"\" \"\"\n";
    const TABLE: &str = "# c\n[[ia]]\nname = \"a\"\nalias = [\n  \"b\",\n]\nlibrary='l'\n";

    #[test]
    fn toml_in_a_classic_file_is_one_fault() {
        let (count, said_) = said(&format!("{LINE}{TABLE}alias = b\n"), "t.conf");
        assert_eq!(count, 1);
        assert!(
            said_[0].starts_with("t.conf:3:1: this is TOML") && said_[0].contains("`dat convert`"),
            "{said_:?}"
        );
        // A value of an array alone on its line is no TOML by itself.
        assert_eq!(said_.len(), 2, "{said_:?}");
        assert!(said_[1].starts_with("t.conf:6:"), "{said_:?}");
        assert_eq!(
            said("a=b u2.0 threadsafe default l v.1.0 \"\" \"\"\n", "t").0,
            1
        );
    }

    #[test]
    fn classic_lines_in_a_toml_file_are_named() {
        for line in [LINE, "alias a b\n"] {
            let (count, said_) = said(&format!("{TABLE}\n{line}"), "t.toml");
            assert_eq!((count, said_.len()), (0, 1), "{said_:?}");
            assert!(
                said_[0].starts_with("t.toml:9:1: this line has the classic form")
                    && said_[0].contains("`dat convert`"),
                "{said_:?}"
            );
        }
    }

    #[test]
    fn typographic_quotes_are_named_with_their_columns() {
        for (line, column) in [
            ("x u2.0 threadsafe default l v.1.0 “lo 0” \"\"", 35),
            ("x u2.0 threadsafe default l v.1.0 “” ‘’", 35),
            ("x u2.0 threadsafe default l v.1.0 lo” \"", 37),
        ] {
            let (count, said_) = said(line, "t");
            let wants = format!("t:1:{column}: ");
            assert_eq!((count, said_.len()), (0, 1), "{said_:?}");
            assert!(
                said_[0].starts_with(&wants) && said_[0].contains("write \" instead"),
                "{said_:?}"
            );
        }
        let inside = "x u2.0 threadsafe default l v.1.0 \"a“b”\" \"\" # “c”";
        assert_eq!(said(inside, "t"), (1, vec![]));
        let toml = said("[[ia]]\nname = “a”\nlibrary = 'l'\n", "t.toml").1;
        assert!(toml[0].starts_with("t.toml:2:8: “ is no quote"), "{toml:?}");
    }

    #[test]
    fn single_quotes_are_named_where_they_split_a_field() {
        let (count, said_) = said("x u2.0 threadsafe default l v.1.0 'lo 0' ''", "t");
        assert_eq!((count, said_.len()), (0, 1), "{said_:?}");
        assert!(
            said_[0].starts_with("t:1:35: ' is no quote here"),
            "{said_:?}"
        );
        let kept = "x u2.0 threadsafe default l v.1.0 \"lo 0\" ''";
        assert_eq!(said(kept, "t"), (1, vec![]));
        let other = said("x 2.0 threadsafe default l v.1.0 lo ''", "t").1;
        assert!(other[0].starts_with("t:1:3: API version"), "{other:?}");
    }

    #[test]
    fn one_table_ia_beside_an_array_of_them_is_named() {
        for header in ["[ia]", "[ia] # mine", "[ ia ]"] {
            let one = format!("{header}\nname = 'b'\n");
            for (text, line) in [(format!("{TABLE}{one}"), 8), (format!("{one}{TABLE}"), 1)] {
                let (count, said_) = said(&text, "t.toml");
                assert_eq!((count, said_.len()), (0, 1), "{said_:?}");
                let wants = format!("t.toml:{line}:1: ia is not an array of tables: write [[ia]]");
                assert!(said_[0].starts_with(&wants), "{said_:?}");
            }
        }
    }

    #[test]
    fn a_line_that_a_backslash_continues_is_one_fault() {
        let text = format!("a u2.0 threadsafe default l v.1.0 \\\n  \"\" \"\"\n{LINE}");
        let (count, said_) = said(&text, "t");
        assert_eq!((count, said_.len()), (1, 1), "{said_:?}");
        assert!(said_[0].starts_with("t:1:35: a backslash continues no line"));
        let stray = format!("a u2.0 threadsafe default l v.1.0 \"\" \"\" \\\n{LINE}{LINE}");
        let (count, said_) = self::said(&stray, "t");
        assert_eq!((count, said_.len()), (2, 1), "{said_:?}");
        let open = "a u2.0 threadsafe default l v.1.0 \"lo \\\n0\" \"\"\n";
        assert!(said(open, "t").1[0].starts_with("t:1:39: a backslash"));
    }

    #[test]
    fn what_a_shell_would_expand_is_warned_of() {
        let line = |value: &str| {
            said(
                &format!("x u2.0 threadsafe default l v.1.0 \"lo 0 pcap={value}\" \"\""),
                "t",
            )
        };
        for value in ["~/x", "$HOME/x", "/tmp/${USER}.pcap"] {
            let (count, said_) = line(value);
            assert_eq!((count, said_.len()), (1, 1), "{said_:?}");
            assert!(said_[0].starts_with("t:1:41: warning: "), "{said_:?}");
        }
        for value in ["/x~", "a~/x", "$", "/x$1"] {
            assert_eq!(line(value), (1, vec![]), "{value}");
        }
    }
}
