//! The `ia_params` field of a dat.conf entry: `"device port key=value ..."`.

use std::collections::BTreeMap;

/// Device, port and settings. Which settings exist is the transport's business, see [`IaParams::known`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IaParams {
    /// Netdev, IP address, host name or verbs device; may be empty.
    pub device: String,
    /// Port number, 0 for the first.
    pub port: u32,
    /// The `key=value` settings.
    pub settings: BTreeMap<String, String>,
}

/// Why `ia_params` cannot be used.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum IaParamsError {
    /// The second field is no number.
    #[error(
        "ia_params {text:?}: port {port:?} is not a number; write \"device port key=value ...\""
    )]
    Port {
        /// The whole field.
        text: String,
        /// The offending word.
        port: String,
    },
    /// A later field has no `=`, or a key comes twice.
    #[error("ia_params {text:?}: {word:?} is not a setting of the form key=value given once")]
    Setting {
        /// The whole field.
        text: String,
        /// The offending word.
        word: String,
    },
    /// The transport knows no such setting.
    #[error("ia_params: unknown setting {key:?}; known ones: {known}")]
    UnknownKey {
        /// The key.
        key: String,
        /// The known ones.
        known: String,
    },
    /// The transport knows the setting but not this value.
    #[error("ia_params: {key}={value} is not possible: {expected}")]
    Value {
        /// The key.
        key: String,
        /// The value.
        value: String,
        /// What would be.
        expected: String,
    },
}

/// Settings of core, which the entry of any transport may have.
const CORE: &[&str] = &["strict"];

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

    /// Refuses settings that are neither in `known` nor core's own.
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

    /// Returns true with `strict=lengths`: an RDMA request that is longer than the remote segment which its consumer names is
    /// `DAT_LENGTH_ERROR`, as dat_ep_post_rdma_write(3) says. Without it the peer's key alone decides, as with DAPL.
    ///
    /// # Errors
    /// [`IaParamsError::Value`] for anything but `lengths`.
    pub fn strict_lengths(&self) -> Result<bool, IaParamsError> {
        Ok(self.word("strict", &["lengths"])?.is_some())
    }

    /// The setting `key` as a number (decimal or 0x...), if it is given.
    ///
    /// # Errors
    /// [`IaParamsError::Value`] if it is no number within `range`.
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

    /// The setting `key` as one of `words`, if it is given.
    ///
    /// # Errors
    /// [`IaParamsError::Value`] if it is none of them.
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
