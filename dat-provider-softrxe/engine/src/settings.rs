//! The settings of an adapter, which follow device and port in `ia_params`.

use std::path::PathBuf;
use std::time::Duration;

use dat_core::environment;
use dat_core::ia_params::{IaParams, IaParamsError};

/// Names of the settings that this engine has.
pub const KEYS: &[&str] = &[
    "mtu",
    "retry",
    "rnr_retry",
    "rnr_timer",
    "ack_timer",
    "wr_max",
    "keepalive",
    "pcap",
    "holder",
    "near",
    "ring",
    "lanes",
];

/// The values of [`KEYS`], for `dat_abi::export_provider!`.
pub const SETTINGS: &str = "\
mtu one-of 256 512 1024 2048 4096
retry number 0 7
rnr_retry number 0 7
rnr_timer number 0 31
ack_timer number 0 31
wr_max number 0 1048576
keepalive number 0 3600
pcap text
holder number 0 4294967295
near one-of auto copy off
ring one-of auto off
lanes number 1 16
";

/// DAPL's environment variables for the same settings.
pub(crate) const READ_VARIABLES: &[&str] = &[
    "DAPL_IB_MTU",
    "DAPL_ACK_RETRY",
    "DAPL_RNR_RETRY",
    "DAPL_RNR_TIMER",
    "DAPL_ACK_TIMER",
    "DAPL_WR_MAX",
];

/// Largest number of requests, and of receives, of an endpoint.
pub(crate) const WR_MAX: u32 = 1 << 20;

/// Largest number of lanes.
const MAX_LANES: u64 = 16;

/// Default of `keepalive`, in seconds.
const KEEPALIVE: u64 = 5;

/// Path MTUs of RoCE.
const MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];

/// Settings of an adapter.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// Upper bound of the path MTU.
    pub(crate) mtu: u16,
    /// Number of timeouts in a row after which a connection breaks.
    pub(crate) retry: u8,
    /// Number of times that a peer may have no receive posted; 7 means unlimited.
    pub(crate) rnr_retry: u8,
    /// RNR timer code: how long a peer waits if no receive is posted here.
    pub(crate) rnr_timer: u8,
    /// First acknowledgement timeout.
    pub(crate) ack_timeout: Option<Duration>,
    /// Upper bound of the requests, and of the receives, of an endpoint.
    pub(crate) wr_max: u32,
    /// Silence after which a peer is probed.
    pub(crate) keepalive: Option<Duration>,
    /// File that every datagram is captured to.
    pub(crate) pcap: Option<PathBuf>,
    /// User whose `dat serve-port` holds UDP port 4791.
    pub(crate) holder: Option<u32>,
    /// Connections to other engines of this user and host use shared memory. Not with a capture, which would lack their packets.
    pub(crate) near: bool,
    /// The receiver of a long message copies it out of the sender's memory, where the kernel allows it.
    pub(crate) near_pull: bool,
    /// Short datagrams arrive in a receive ring, where the kernel allows it.
    pub(crate) ring: bool,
    /// Engines that the endpoints are spread over. 1 with a capture, which has one file.
    pub(crate) lanes: usize,
}

impl Settings {
    /// Reads `ia_params`, and settings that they leave out from the environment, which `env` reads. An unknown word is an error
    /// that lists the known ones.
    pub(crate) fn parse(
        params: &IaParams,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, IaParamsError> {
        params.known(KEYS)?;
        let number = |key, variable, most: u64| -> Result<Option<u64>, IaParamsError> {
            let given = params.number(key, 0..=most)?;
            Ok(given.or_else(|| environment::number(variable, most, &env)))
        };
        let small = |key, variable, most| -> Result<Option<u8>, IaParamsError> {
            Ok(number(key, variable, most)?.map(|n| n as u8))
        };
        let words = MTUS.map(|mtu| mtu.to_string());
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let mtu = match params.word("mtu", &words)? {
            Some(word) => word.parse().ok(),
            None => environment::number("DAPL_IB_MTU", 4096, &env)
                .and_then(|n| MTUS.into_iter().find(|mtu| u64::from(*mtu) == n)),
        };
        let wr_max = number("wr_max", "DAPL_WR_MAX", WR_MAX.into())?;
        let keepalive = params.number("keepalive", 0..=3600)?.unwrap_or(KEEPALIVE);
        let near = params.word("near", &["auto", "copy", "off"])?;
        let ring = params.word("ring", &["auto", "off"])?;
        let lanes = params.number("lanes", 1..=MAX_LANES)?.unwrap_or(1);
        let pcap = params.settings.get("pcap");
        if pcap.is_some_and(String::is_empty) {
            return Err(IaParamsError::Value {
                key: "pcap".into(),
                value: String::new(),
                expected: "the file to write".into(),
            });
        }
        Ok(Self {
            mtu: mtu.unwrap_or(4096),
            retry: small("retry", "DAPL_ACK_RETRY", 7)?.unwrap_or(7),
            rnr_retry: small("rnr_retry", "DAPL_RNR_RETRY", 7)?.unwrap_or(7),
            rnr_timer: small("rnr_timer", "DAPL_RNR_TIMER", 31)?.unwrap_or(12),
            ack_timeout: small("ack_timer", "DAPL_ACK_TIMER", 31)?
                .map(|n| Duration::from_nanos(4096 << n)),
            wr_max: wr_max.map_or(WR_MAX, |n| n.max(1) as u32),
            keepalive: Some(keepalive)
                .filter(|seconds| *seconds > 0)
                .map(Duration::from_secs),
            near: near != Some("off") && pcap.is_none(),
            near_pull: near != Some("copy"),
            ring: ring != Some("off"),
            lanes: if pcap.is_some() { 1 } else { lanes as usize },
            pcap: pcap.map(PathBuf::from),
            holder: params
                .number("holder", 0..=u64::from(u32::MAX))?
                .map(|uid| uid as u32),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, String> {
        with(text, &[])
    }

    fn with(text: &str, env: &[(&str, &str)]) -> Result<Settings, String> {
        let read = |name: &str| {
            let found = env.iter().find(|(n, _)| *n == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::parse(&IaParams::parse(text).unwrap(), read).map_err(|e| e.to_string())
    }

    #[test]
    fn missing_settings_have_their_defaults() {
        let defaults = Settings {
            mtu: 4096,
            retry: 7,
            rnr_retry: 7,
            rnr_timer: 12,
            ack_timeout: None,
            wr_max: 1 << 20,
            keepalive: Some(Duration::from_secs(5)),
            pcap: None,
            holder: None,
            near: true,
            near_pull: true,
            ring: true,
            lanes: 1,
        };
        assert_eq!(parse("lo"), Ok(defaults));
        let given = parse(
            "v0 0 mtu=1024 retry=3 rnr_retry=2 rnr_timer=1 ack_timer=14 wr_max=100 keepalive=60 pcap=/tmp/x holder=1000 ring=off",
        );
        let expected = Settings {
            mtu: 1024,
            retry: 3,
            rnr_retry: 2,
            rnr_timer: 1,
            ack_timeout: Some(Duration::from_nanos(67_108_864)),
            wr_max: 100,
            keepalive: Some(Duration::from_secs(60)),
            pcap: Some("/tmp/x".into()),
            holder: Some(1000),
            near: false,
            near_pull: true,
            ring: false,
            lanes: 1,
        };
        assert_eq!(given, Ok(expected));
    }

    #[test]
    fn a_capture_has_one_lane() {
        for (text, lanes) in [
            ("lo", 1),
            ("lo 0 lanes=4", 4),
            ("lo 0 lanes=4 pcap=/tmp/x", 1),
        ] {
            assert_eq!(parse(text).unwrap().lanes, lanes, "{text}");
        }
    }

    #[test]
    fn shared_memory_is_used_unless_it_is_off_or_there_is_a_capture() {
        for (text, near, pull) in [
            ("lo", true, true),
            ("lo 0 near=auto", true, true),
            ("lo 0 near=copy", true, false),
            ("lo 0 near=off", false, true),
            ("lo 0 near=auto pcap=/tmp/x", false, true),
        ] {
            let settings = parse(text).unwrap();
            assert_eq!((settings.near, settings.near_pull), (near, pull), "{text}");
        }
    }

    #[test]
    fn an_entry_overrides_the_environment() {
        let env = [
            ("DAPL_IB_MTU", "2048"),
            ("DAPL_ACK_RETRY", "3"),
            ("DAPL_RNR_RETRY", "0x2"),
            ("DAPL_RNR_TIMER", "99"),
            ("DAPL_ACK_TIMER", "14"),
            ("DAPL_WR_MAX", "64"),
        ];
        let set = with("lo", &env).unwrap();
        assert_eq!((set.mtu, set.retry, set.rnr_retry), (2048, 3, 2));
        assert_eq!((set.rnr_timer, set.wr_max), (12, 64));
        assert_eq!(set.ack_timeout, Some(Duration::from_nanos(4096 << 14)));
        let given = with("lo 0 mtu=512 retry=1 wr_max=9", &env).unwrap();
        assert_eq!((given.mtu, given.retry, given.wr_max), (512, 1, 9));
        assert_eq!(with("lo", &[("DAPL_IB_MTU", "1500")]).unwrap().mtu, 4096);
        assert!(env.iter().all(|(name, _)| READ_VARIABLES.contains(name)));
        assert_eq!(env.len(), READ_VARIABLES.len());
    }

    #[test]
    fn declared_values_are_those_that_are_accepted() {
        let mut keys = Vec::new();
        for line in SETTINGS.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (key, values) = (words[0], &words[2..]);
            keys.push(key);
            let one = |value: &str| parse(&format!("lo 0 {key}={value}"));
            for value in values {
                assert!(one(value).is_ok(), "{line}: {value}");
            }
            let beyond = values.last().and_then(|last| last.parse().ok());
            let beyond = beyond.map_or(String::new(), |n: u64| (n + 1).to_string());
            assert!(one(&beyond).is_err(), "{line}: {beyond}");
        }
        assert_eq!(keys, KEYS);
    }

    #[test]
    fn a_wrong_setting_is_reported_with_the_valid_ones() {
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
            (
                "lo 0 keepalive=9999",
                "keepalive=9999 is not possible: a number from 0 to 3600",
            ),
            (
                "lo 0 wr_max=1048577",
                "wr_max=1048577 is not possible: a number from 0 to 1048576",
            ),
            ("lo 0 pcap=", "pcap= is not possible: the file"),
            (
                "lo 0 near=on",
                "near=on is not possible: one of auto, copy, off",
            ),
            ("lo 0 ring=on", "ring=on is not possible: one of auto, off"),
            (
                "lo 0 lanes=0",
                "lanes=0 is not possible: a number from 1 to 16",
            ),
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
