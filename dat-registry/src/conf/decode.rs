//! Bytes of a file to text. One wrong byte must not refuse a whole file.

use std::borrow::Cow;

use super::error::ConfErrorKind;
use super::place::Place;

/// The character that stands for a byte that is not UTF-8.
const WRONG: char = char::REPLACEMENT_CHARACTER;

/// Decoded text, with the faults of the encoding.
#[derive(Debug)]
pub(super) struct Decoded<'a> {
    /// Text without byte order mark. [`WRONG`] stands for each wrong byte.
    pub(super) text: Cow<'a, str>,
    /// Faults of the whole file.
    pub(super) faults: Vec<(Place, ConfErrorKind)>,
    /// Wrong bytes in order, by the place of the character that stands for them.
    pub(super) wrong: Vec<(Place, u8)>,
}

impl Decoded<'_> {
    /// Returns the fault of the first wrong byte of `line` from column `from` up to column `to`, if there is one.
    pub(super) fn wrong_between(
        &self,
        line: usize,
        from: usize,
        to: usize,
    ) -> Option<(usize, ConfErrorKind)> {
        let at = |column| Place { line, column };
        let (place, byte) = self.wrong_within(at(from), at(to))?;
        Some((place.column, ConfErrorKind::Encoding(byte)))
    }

    /// Returns the first wrong byte from `from` up to `to`, and its place. They are in order, as a file may have very many.
    pub(super) fn wrong_within(&self, from: Place, to: Place) -> Option<(Place, u8)> {
        let first = self.wrong.partition_point(|(place, _)| *place < from);
        let found = self.wrong.get(first)?;
        (found.0 < to).then_some(*found)
    }
}

/// Decodes the bytes of a file.
pub(super) fn decode(bytes: &[u8]) -> Decoded<'_> {
    let start = Place { line: 1, column: 1 };
    let mut faults = Vec::new();
    if bytes.starts_with(&[0xFF, 0xFE]) || bytes.starts_with(&[0xFE, 0xFF]) {
        faults.push((start, ConfErrorKind::Utf16));
        return Decoded {
            text: Cow::Borrowed(""),
            faults,
            wrong: Vec::new(),
        };
    }
    let bytes = match bytes.strip_prefix("\u{FEFF}".as_bytes()) {
        Some(rest) => {
            faults.push((start, ConfErrorKind::ByteOrderMark));
            rest
        }
        None => bytes,
    };
    if let Some(at) = bytes.windows(2).position(|two| two == b"\r\n") {
        let line = String::from_utf8_lossy(&bytes[..at]);
        faults.push((Place::of(&line, line.len()), ConfErrorKind::CarriageReturns));
    }
    let (text, wrong) = match std::str::from_utf8(bytes) {
        Ok(text) => (Cow::Borrowed(text), Vec::new()),
        Err(_) => {
            let (text, wrong) = lossy(bytes);
            (Cow::Owned(text), wrong)
        }
    };
    Decoded {
        text,
        faults,
        wrong,
    }
}

fn lossy(bytes: &[u8]) -> (String, Vec<(Place, u8)>) {
    let (mut text, mut wrong) = (String::new(), Vec::new());
    let mut here = Place { line: 1, column: 1 };
    for chunk in bytes.utf8_chunks() {
        text.push_str(chunk.valid());
        here = here.after(chunk.valid());
        for byte in chunk.invalid() {
            wrong.push((here, *byte));
            text.push(WRONG);
            here.column += 1;
        }
    }
    (text, wrong)
}
