//! Splits a line of dat.conf into words.

use super::error::ConfErrorKind;

/// A field and the column (from 1, in characters) where it begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// Text without quotes, with escapes resolved.
    pub(super) text: String,
    /// Column of the first character, or of the quote before it.
    pub(super) column: usize,
    /// Whether it is in quotes.
    pub(super) quoted: bool,
}

/// The words of a line, and the column of its comment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Split {
    /// Words in the order of the line.
    pub(super) words: Vec<Word>,
    /// Column of the `#`.
    pub(super) comment: Option<usize>,
}

/// Splits a line at blanks. `#` where a word could begin starts a comment. A word in double quotes may contain blanks and `#`;
/// a backslash in it escapes the next character. Right behind a closing quote a comment or another word in quotes may begin, as DAPL
/// allows.
///
/// # Errors
/// The column and kind of a fault: a quote that is not closed, or other text right behind a closing quote.
pub(super) fn words(line: &str) -> Result<Split, (usize, ConfErrorKind)> {
    let mut words = Vec::new();
    let mut comment = None;
    let mut chars = line.chars().enumerate().peekable();
    while let Some(&(at, c)) = chars.peek() {
        let column = at + 1;
        match c {
            c if c.is_whitespace() => {
                chars.next();
            }
            '#' => {
                comment = Some(column);
                break;
            }
            '"' => {
                chars.next();
                words.push(Word {
                    text: quoted(&mut chars, column)?,
                    column,
                    quoted: true,
                });
                if let Some((next, c)) = chars.peek()
                    && !c.is_whitespace()
                    && !matches!(c, '"' | '#')
                {
                    return Err((next + 1, ConfErrorKind::AfterQuote(*c)));
                }
            }
            _ => {
                let mut text = String::new();
                while let Some((_, c)) = chars.next_if(|(_, c)| !c.is_whitespace()) {
                    text.push(c);
                }
                words.push(Word {
                    text,
                    column,
                    quoted: false,
                });
            }
        }
    }
    Ok(Split { words, comment })
}

fn quoted(
    chars: &mut impl Iterator<Item = (usize, char)>,
    opened: usize,
) -> Result<String, (usize, ConfErrorKind)> {
    let mut text = String::new();
    while let Some((_, c)) = chars.next() {
        match c {
            '"' => return Ok(text),
            '\\' => match chars.next() {
                Some((_, escaped)) => text.push(escaped),
                None => break,
            },
            c => text.push(c),
        }
    }
    Err((opened, ConfErrorKind::OpenQuote))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(line: &str) -> Vec<String> {
        let split = words(line).unwrap();
        split.words.into_iter().map(|w| w.text).collect()
    }

    #[test]
    fn blanks_quotes_escapes_and_comments() {
        assert_eq!(texts("  a\tb  c "), ["a", "b", "c"]);
        assert_eq!(texts(r#"a "b c" "" d#e # f"#), ["a", "b c", "", "d#e"]);
        assert_eq!(texts(r#""say \"hi\" \\ \#" x"#), [r#"say "hi" \ #"#, "x"]);
        assert_eq!(texts("# only a comment"), [""; 0]);
        assert_eq!(words("a # b").unwrap().comment, Some(3));
        assert_eq!(words("ab \"c\"").unwrap().words[1].column, 4);
        // As in DAPL, a quote ends its word: what follows may be a comment or another field in quotes.
        assert_eq!(texts(r##""a"# b"##), ["a"]);
        assert_eq!(words(r##""a"# b"##).unwrap().comment, Some(4));
        assert_eq!(texts(r#""a""" "b""#), ["a", "", "b"]);
    }

    #[test]
    fn faults_have_columns() {
        assert_eq!(words("a \"b c"), Err((3, ConfErrorKind::OpenQuote)));
        assert_eq!(words("\"a\\"), Err((1, ConfErrorKind::OpenQuote)));
        assert_eq!(words("\"a\"b"), Err((4, ConfErrorKind::AfterQuote('b'))));
    }
}
