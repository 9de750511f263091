//! The `ia_params` field of a dat.conf entry: `"device port key=value ..."`.

use std::collections::BTreeMap;

/// Device, port and settings. Each transport defines its own settings; see [`IaParams::known`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IaParams {
    /// Netdev, IP address, host name or verbs device; may be empty.
    pub device: String,
    /// Port number; 0 is the first port.
    pub port: u32,
    /// The `key=value` settings, by key.
    pub settings: BTreeMap<String, String>,
}

/// The reason why an `ia_params` field cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IaParamsError {
    /// The second word is not a number.
    #[error(
        "ia_params {text:?}: port {port:?} is not a number; write \"device port key=value ...\""
    )]
    Port {
        /// The whole field.
        text: String,
        /// The offending word.
        port: String,
    },
    /// A later word has no `=`, or a key occurs twice.
    #[error("ia_params {text:?}: {word:?} is not a setting of the form key=value given once")]
    Setting {
        /// The whole field.
        text: String,
        /// The offending word.
        word: String,
    },
    /// The transport has no such setting.
    #[error("ia_params: unknown setting {key:?}; known ones: {known}")]
    UnknownKey {
        /// The unknown key.
        key: String,
        /// The known keys.
        known: String,
    },
    /// The transport has the setting, but the value is not allowed.
    #[error("ia_params: {key}={value} is not possible: {expected}")]
    Value {
        /// The unknown key.
        key: String,
        /// The value.
        value: String,
        /// Description of the allowed values.
        expected: String,
    },
}

/// Settings that core handles; the entry of any transport may have them.
const CORE: &[&str] = &["strict"];

/// The same for the text that a provider exports (`dat_abi::export_provider!`).
pub const CORE_SETTINGS: &str = "strict one-of lengths\n";

impl IaParams {
    /// Parses the field.
    ///
    /// # Errors
    /// [`IaParamsError::Port`], [`IaParamsError::Setting`].
    pub fn parse(text: &str) -> Result<Self, IaParamsError> {
        let mut words = text.split_ascii_whitespace().peekable();
        let device = words
            .next_if(|w| !w.contains('='))
            .unwrap_or_default()
            .to_owned();
        let port = match words.next_if(|w| !w.contains('=')) {
            None => 0,
            Some(word) => word.parse().map_err(|_| IaParamsError::Port {
                text: text.to_owned(),
                port: word.to_owned(),
            })?,
        };
        let mut settings = BTreeMap::new();
        for word in words {
            let wrong = || IaParamsError::Setting {
                text: text.to_owned(),
                word: word.to_owned(),
            };
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            if key.is_empty() || settings.insert(key.to_owned(), value.to_owned()).is_some() {
                return Err(wrong());
            }
        }
        Ok(Self {
            device,
            port,
            settings,
        })
    }

    /// Refuses settings that are neither in `known` nor settings of core.
    ///
    /// # Errors
    /// [`IaParamsError::UnknownKey`], which lists both.
    pub fn known(&self, known: &[&str]) -> Result<(), IaParamsError> {
        let known = [known, CORE].concat();
        match self.settings.keys().find(|k| !known.contains(&k.as_str())) {
            None => Ok(()),
            Some(key) => Err(IaParamsError::UnknownKey {
                key: key.clone(),
                known: known.join(", "),
            }),
        }
    }

    /// Returns true for `strict=lengths`: an RDMA request that is longer than its remote segment is refused with `DAT_LENGTH_ERROR`,
    /// as dat_ep_post_rdma_write(3) specifies. Without the setting only the peer's key limits the request, as in DAPL.
    ///
    /// # Errors
    /// [`IaParamsError::Value`] for any value but `lengths`.
    pub fn strict_lengths(&self) -> Result<bool, IaParamsError> {
        Ok(self.word("strict", &["lengths"])?.is_some())
    }

    /// Returns the setting `key` as a number (decimal or 0x...), or `None` if it is not given.
    ///
    /// # Errors
    /// [`IaParamsError::Value`] if it is not a number within `range`.
    pub fn number(
        &self,
        key: &str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, IaParamsError> {
        let Some(value) = self.settings.get(key) else {
            return Ok(None);
        };
        let parsed = match value.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => value.parse().ok(),
        };
        parsed
            .filter(|n| range.contains(n))
            .map(Some)
            .ok_or_else(|| IaParamsError::Value {
                key: key.to_owned(),
                value: value.clone(),
                expected: format!("a number from {} to {}", range.start(), range.end()),
            })
    }

    /// Returns the setting `key` if it is one of `words`, or `None` if it is not given.
    ///
    /// # Errors
    /// [`IaParamsError::Value`] if it is another word.
    pub fn word<'a>(&'a self, key: &str, words: &[&str]) -> Result<Option<&'a str>, IaParamsError> {
        match self.settings.get(key) {
            None => Ok(None),
            Some(value) if words.contains(&value.as_str()) => Ok(Some(value)),
            Some(value) => Err(IaParamsError::Value {
                key: key.to_owned(),
                value: value.clone(),
                expected: format!("one of {}", words.join(", ")),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classic_two_fields_and_settings() {
        let p = IaParams::parse("v0 0 engine=kernel mtu=4096").unwrap();
        assert_eq!((p.device.as_str(), p.port), ("v0", 0));
        assert_eq!(p.word("engine", &["kernel", "user"]), Ok(Some("kernel")));
        assert_eq!(p.number("mtu", 256..=4096), Ok(Some(4096)));
        assert_eq!(p.number("depth", 0..=1), Ok(None));
        assert_eq!(IaParams::parse("").unwrap(), IaParams::default());
        assert_eq!(IaParams::parse("engine=user").unwrap().settings.len(), 1);
    }

    #[test]
    fn each_fault_names_the_word() {
        assert!(
            IaParams::parse("v0 one")
                .unwrap_err()
                .to_string()
                .contains("\"one\"")
        );
        for wrong in ["v0 0 mtu", "v0 0 =3", "v0 0 a=1 a=2"] {
            assert!(
                matches!(IaParams::parse(wrong), Err(IaParamsError::Setting { .. })),
                "{wrong}"
            );
        }
        let p = IaParams::parse("v0 0 mtu=9000 colour=red").unwrap();
        let text = p.known(&["engine", "mtu"]).unwrap_err().to_string();
        assert!(
            text.contains("colour") && text.contains("engine, mtu"),
            "{text}"
        );
        let text = p.number("mtu", 256..=4096).unwrap_err().to_string();
        assert!(
            text.contains("mtu=9000") && text.contains("256 to 4096"),
            "{text}"
        );
        let strict = |text| IaParams::parse(text).unwrap().strict_lengths();
        assert_eq!(strict("v0 0"), Ok(false));
        assert_eq!(strict("v0 0 strict=lengths"), Ok(true));
        assert!(strict("v0 0 strict=1").is_err());
        let core = IaParams::parse("strict=lengths").unwrap();
        assert_eq!(core.known(&[]), Ok(()));
        let text = p.word("colour", &["blue"]).unwrap_err().to_string();
        assert!(text.contains("one of blue"), "{text}");
    }
}
