//! The rules of single fields, which both forms have.

use super::entry::{Api, ProviderVersion};
use super::error::ConfErrorKind;

/// Longest name that a C program can pass, without the 0 byte (`DAT_NAME_MAX_LENGTH`).
const LONGEST_NAME: usize = 255;

pub(super) const NAME: &str = "IA name";
pub(super) const LIBRARY: &str = "library";
pub(super) const PARAMS: &str = "IA parameters";
pub(super) const PLATFORM: &str = "platform parameters";

/// Checks a name of an IA or of an alias. It may have one `*`.
pub(super) fn name(text: &str) -> Result<(), ConfErrorKind> {
    filled(text, NAME)?;
    if text.len() > LONGEST_NAME {
        return Err(ConfErrorKind::LongName(text.len()));
    }
    if text.matches('*').count() > 1 {
        return Err(ConfErrorKind::Stars(text.to_owned()));
    }
    Ok(())
}

/// Checks a field that must not be empty.
pub(super) fn filled(text: &str, field: &'static str) -> Result<(), ConfErrorKind> {
    if text.is_empty() {
        return Err(ConfErrorKind::Empty(field));
    }
    printable(text, field)
}

/// Refuses control characters: a 0 byte would end the C string, and a line break the entry.
pub(super) fn printable(text: &str, field: &'static str) -> Result<(), ConfErrorKind> {
    match text.chars().find(|c| c.is_control() && *c != '\t') {
        Some(character) => Err(ConfErrorKind::Character { field, character }),
        None => Ok(()),
    }
}

/// Parses an API version.
pub(super) fn api(text: &str) -> Result<Api, ConfErrorKind> {
    let parsed = text.split_at_checked(1).and_then(|(level, numbers)| {
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
    parsed.ok_or_else(|| ConfErrorKind::Api(text.to_owned()))
}

/// Parses a provider version.
pub(super) fn provider_version(text: &str) -> Result<ProviderVersion, ConfErrorKind> {
    let mut parts = text.rsplitn(3, '.');
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
    parsed.ok_or_else(|| ConfErrorKind::ProviderVersion(text.to_owned()))
}
