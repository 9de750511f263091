//! Limits of adapters, in place of the number of a C argument.

use crate::error::{Code, Error, Kind};

/// What a call asked for: a name, the number, and the most that the adapter allows.
pub(crate) type Wish = (&'static str, u32, u32);

/// Returns the error that names the number that the adapter refuses; `error` itself if it is not about a number.
#[cold]
pub(crate) fn explained(error: Error, wishes: &[Wish]) -> Error {
    if error.code().and_then(Code::kind) != Some(Kind::InvalidParameter) {
        return error;
    }
    let is_large = |wish: &&Wish| wish.1 > wish.2;
    let is_none = |wish: &&Wish| wish.1 == 0;
    let wish = wishes.iter().find(is_large);
    match wish.or_else(|| wishes.iter().find(is_none)) {
        Some(&(what, given, most)) => Error::Limit { what, given, most },
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_that_is_refused_is_named() {
        let refused = || Error::of("call", Code::of(Kind::InvalidParameter));
        let named = explained(refused(), &[("events", 0, 9), ("segments", 7, 6)]);
        assert!(
            matches!(
                named,
                Error::Limit {
                    what: "segments",
                    given: 7,
                    most: 6,
                    ..
                }
            ),
            "{named}"
        );
        let named = explained(refused(), &[("events", 0, 9)]);
        assert!(
            matches!(named, Error::Limit { what: "events", .. }),
            "{named}"
        );
        let other = explained(refused(), &[("events", 5, 9)]);
        assert!(matches!(other, Error::Call { .. }), "{other}");
    }
}
