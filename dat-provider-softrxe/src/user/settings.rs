//! The settings of an adapter: what stands behind device and port in `ia_params`.

use std::path::PathBuf;
use std::time::Duration;

use dat_core::ia_params::{IaParams, IaParamsError};

/// The settings that this engine knows.
pub(crate) const KEYS: &[&str] = &[
    "mtu",
    "retry",
    "rnr_retry",
    "rnr_timer",
    "ack_timer",
    "pcap",
];

/// How an adapter is set up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Upper bound of the path MTU.
    pub(crate) mtu: u16,
    /// Timeouts in a row before a connection breaks.
    pub(crate) retry: u8,
    /// Times that a peer may have no receive posted; 7 is for ever.
    pub(crate) rnr_retry: u8,
    /// Code of the pause that a peer makes when no receive is posted here.
    pub(crate) rnr_timer: u8,
    /// First wait for an acknowledgement.
    pub(crate) ack_timeout: Option<Duration>,
    /// File to write every datagram to.
    pub(crate) pcap: Option<PathBuf>,
}

impl Settings {
    /// Reads `ia_params`; an unknown word is an error that lists the known ones.
    pub(crate) fn parse(params: &IaParams) -> Result<Self, IaParamsError> {
        params.known(KEYS)?;
        let number = |key, most| -> Result<Option<u8>, IaParamsError> {
            Ok(params.number(key, 0..=most)?.map(|n| n as u8))
        };
        let mtu = params.word("mtu", &["256", "512", "1024", "2048", "4096"])?;
        let pcap = params.settings.get("pcap");
        if pcap.is_some_and(String::is_empty) {
            return Err(IaParamsError::Value {
                key: "pcap".into(),
                value: String::new(),
                expected: "the file to write".into(),
            });
        }
        Ok(Self {
            mtu: mtu.and_then(|word| word.parse().ok()).unwrap_or(4096),
            retry: number("retry", 7)?.unwrap_or(7),
            rnr_retry: number("rnr_retry", 7)?.unwrap_or(7),
            rnr_timer: number("rnr_timer", 31)?.unwrap_or(12),
            ack_timeout: number("ack_timer", 31)?.map(|n| Duration::from_nanos(4096 << n)),
            pcap: pcap.map(PathBuf::from),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        Settings::parse(&IaParams::parse(text).unwrap()).map_err(|e| e.to_string())
    }

    #[test]
    fn what_is_not_given_has_its_usual_value() {
        let usual = Settings {
            mtu: 4096,
            retry: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            ack_timeout: None,
            pcap: None,
        };
        assert_eq!(parse("lo"), Ok(usual));
        let given = parse("v0 0 mtu=1024 retry=3 rnr_retry=2 rnr_timer=1 ack_timer=14 pcap=/tmp/x");
        let expected = Settings {
            mtu: 1024,
            retry: 3,
            rnr_retry: 2,
            rnr_timer: 1,
            ack_timeout: Some(Duration::from_nanos(67_108_864)),
            pcap: Some("/tmp/x".into()),
        };
        assert_eq!(given, Ok(expected));
    }

    #[test]
    fn a_wrong_setting_is_named_with_what_is_known() {
        for (text, said) in [
            ("lo 0 mtu=1500", "mtu=1500 is not possible: one of 256, 512"),
            (
                "lo 0 retry=8",
                "retry=8 is not possible: a number from 0 to 7",
            ),
            (
                "lo 0 ack_timer=x",
                "ack_timer=x is not possible: a number from 0 to 31",
            ),
            ("lo 0 pcap=", "pcap= is not possible: the file"),
            (
                "lo 0 colour=red",
                "\"colour\"; known ones: mtu, retry, rnr_retry",
            ),
        ] {
            let text = parse(text).unwrap_err();
            assert!(text.contains(said), "{text}");
        }
    }
}
