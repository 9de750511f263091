//! Settings from `ia_params` and DAPL's environment variables. The `key=value` of the IA overrides the environment.

use std::time::Duration;

use dat_core::environment::number as number_of;
use dat_core::ia_params::{IaParams, IaParamsError};

/// Keys of `ia_params` that a verbs IA accepts, see `docs/ia_params.md`.
pub const KEYS: &[&str] = &[
    "cm",
    "gid_index",
    "inline",
    "mtu",
    "retry",
    "rnr_retry",
    "rnr_timer",
    "ack_timer",
    "tos",
    "resolve_timeout",
    "resolve_retry",
    "wr_max",
];

/// The values of [`KEYS`], for `dat_abi::export_provider!`.
pub const SETTINGS: &str = "\
cm one-of rdmacm socket
gid_index number 0 255
inline number 0 4096
mtu one-of 256 512 1024 2048 4096
retry number 0 7
rnr_retry number 0 7
rnr_timer number 0 31
ack_timer number 0 31
tos number 0 255
resolve_timeout number 0 600000
resolve_retry number 0 1000
wr_max number 0 1048576
";

/// DAPL's environment variables for the same settings.
pub(crate) const READ_VARIABLES: &[&str] = &[
    "DAPL_MAX_INLINE",
    "DAPL_IB_MTU",
    "DAPL_ACK_RETRY",
    "DAPL_RNR_RETRY",
    "DAPL_RNR_TIMER",
    "DAPL_ACK_TIMER",
    "DAPL_CM_TOS",
    "DAPL_CM_ARP_TIMEOUT_MS",
    "DAPL_CM_ROUTE_TIMEOUT_MS",
    "DAPL_CM_ARP_RETRY_COUNT",
    "DAPL_CM_ROUTE_RETRY_COUNT",
    "DAPL_WR_MAX",
];

/// Maximum of `wr_max`.
const WR_MAX: u64 = 1 << 20;

/// The connection manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manager {
    /// librdmacm, compatible with DAPL's cma provider.
    Rdmacm,
    /// Queue pair data over TCP, compatible with DAPL's scm provider.
    Socket,
}

/// Parsed settings of a verbs IA.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    pub(crate) cm: Manager,
    /// With [`Manager::Socket`]: the entry of the port's GID table to send from.
    pub(crate) gid_index: Option<u8>,
    /// Maximum inline data of a send or write, in bytes.
    pub(crate) inline: u32,
    /// Upper bound of the path MTU, as `ibv_mtu` code (1 is 256 ... 5 is 4096).
    pub(crate) mtu: Option<u32>,
    /// Retries when no acknowledgement arrives.
    pub(crate) retry: u8,
    /// Retries when the peer has no receive posted; 7 is unlimited.
    pub(crate) rnr_retry: u8,
    /// RNR timer code: the pause of a sender when no receive is posted here; 12 is 0.64 ms.
    pub(crate) rnr_timer: u8,
    /// ACK timeout code: 4.096 us * 2^n. `None`: the connection manager's value.
    pub(crate) ack_timer: Option<u8>,
    /// IP type of service of connections.
    pub(crate) tos: Option<u8>,
    /// Timeouts of one try to resolve the address and of one to resolve the route, in ms.
    pub(crate) resolve_timeout: [i32; 2],
    /// Retries after the first try, for address and route.
    pub(crate) resolve_retry: [u32; 2],
    /// Upper bound of the requests, and of the receives, of an endpoint.
    pub(crate) wr_max: Option<u32>,
}

impl Settings {
    /// Reads `params`, else the environment through `env`, else the defaults.
    pub(crate) fn new(
        params: &IaParams,
        env: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, IaParamsError> {
        let number = |key: &str, variables: &[&str], most: u64, default: u64| {
            Ok(match params.number(key, 0..=most)? {
                Some(n) => n,
                None => variables
                    .iter()
                    .find_map(|name| number_of(name, most, &env))
                    .unwrap_or(default),
            })
        };
        let optional =
            |key: &str, variable: &str, most: u64| -> Result<Option<u64>, IaParamsError> {
                Ok(params
                    .number(key, 0..=most)?
                    .or_else(|| number_of(variable, most, &env)))
            };
        let each = |key: &str,
                    variables: [&str; 2],
                    most: u64,
                    default: u64|
         -> Result<[u64; 2], IaParamsError> {
            Ok([
                number(key, &variables[..1], most, default)?,
                number(key, &variables[1..], most, default)?,
            ])
        };
        let timeouts = each(
            "resolve_timeout",
            ["DAPL_CM_ARP_TIMEOUT_MS", "DAPL_CM_ROUTE_TIMEOUT_MS"],
            600_000,
            4000,
        )?;
        let retries = each(
            "resolve_retry",
            ["DAPL_CM_ARP_RETRY_COUNT", "DAPL_CM_ROUTE_RETRY_COUNT"],
            1000,
            15,
        )?;
        let mtu = match params.number("mtu", 256..=4096)? {
            None => number_of("DAPL_IB_MTU", 4096, &env).and_then(mtu_code),
            Some(bytes) => Some(mtu_code(bytes).ok_or_else(|| IaParamsError::Value {
                key: "mtu".into(),
                value: bytes.to_string(),
                expected: "one of 256, 512, 1024, 2048, 4096".into(),
            })?),
        };
        let cm = match params.word("cm", &["rdmacm", "socket"])? {
            Some("socket") => Manager::Socket,
            _ => Manager::Rdmacm,
        };
        let gid_index = params.number("gid_index", 0..=255)?.map(|n| n as u8);
        if let (Some(index), Manager::Rdmacm) = (gid_index, cm) {
            return Err(IaParamsError::Value {
                key: "gid_index".into(),
                value: index.to_string(),
                expected: "with cm=socket only; rdma_cm chooses by the address".into(),
            });
        }
        Ok(Self {
            cm,
            gid_index,
            inline: number("inline", &["DAPL_MAX_INLINE"], 4096, 64)? as u32,
            mtu,
            retry: number("retry", &["DAPL_ACK_RETRY"], 7, 7)? as u8,
            rnr_retry: number("rnr_retry", &["DAPL_RNR_RETRY"], 7, 7)? as u8,
            rnr_timer: number("rnr_timer", &["DAPL_RNR_TIMER"], 31, 12)? as u8,
            ack_timer: optional("ack_timer", "DAPL_ACK_TIMER", 31)?.map(|n| n as u8),
            tos: optional("tos", "DAPL_CM_TOS", 255)?.map(|n| n as u8),
            resolve_timeout: timeouts.map(|n| n.max(1) as i32),
            resolve_retry: retries.map(|n| n as u32),
            wr_max: optional("wr_max", "DAPL_WR_MAX", WR_MAX)?.map(|n| n.max(1) as u32),
        })
    }

    /// Time limit of a handshake step over sockets that only the peer's provider has to complete.
    pub(crate) fn handshake_time(&self) -> Duration {
        let time = Duration::from_millis(self.resolve_timeout[0].max(1) as u64);
        time.saturating_mul(self.resolve_retry[0].saturating_add(1))
    }
}

/// Returns the `ibv_mtu` code of a number of bytes.
fn mtu_code(bytes: u64) -> Option<u32> {
    [256, 512, 1024, 2048, 4096]
        .iter()
        .zip(1..)
        .find_map(|(b, code)| (*b == bytes).then_some(code))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str, env: &[(&str, &str)]) -> Result<Settings, IaParamsError> {
        let params = IaParams::parse(text).unwrap();
        params.known(KEYS)?;
        Settings::new(&params, |name| {
            env.iter()
                .find(|(n, _)| *n == name)
                .map(|(_, v)| (*v).to_owned())
        })
    }

    #[test]
    fn usual_values_are_dapls() {
        let s = parse("v0 0", &[]).unwrap();
        assert_eq!(
            (s.inline, s.retry, s.rnr_retry, s.rnr_timer),
            (64, 7, 7, 12)
        );
        assert_eq!((s.mtu, s.ack_timer, s.tos), (None, None, None));
        assert_eq!((s.resolve_timeout, s.resolve_retry), ([4000; 2], [15; 2]));
        assert_eq!((s.cm, s.gid_index), (Manager::Rdmacm, None));
        assert_eq!(s.handshake_time(), Duration::from_secs(64));
    }

    #[test]
    fn the_connection_manager_is_chosen_by_name() {
        let s = parse(
            "v0 0 cm=socket gid_index=3 resolve_timeout=100 resolve_retry=0",
            &[],
        );
        let s = s.unwrap();
        assert_eq!((s.cm, s.gid_index), (Manager::Socket, Some(3)));
        assert_eq!(s.handshake_time(), Duration::from_millis(100));
        assert_eq!(parse("v0 0 cm=rdmacm", &[]).unwrap().cm, Manager::Rdmacm);
    }

    #[test]
    fn the_entry_wins_over_the_environment() {
        let env = [
            ("DAPL_MAX_INLINE", "0x80"),
            ("DAPL_IB_MTU", "2048"),
            ("DAPL_CM_ROUTE_RETRY_COUNT", "010"),
            ("DAPL_RNR_TIMER", "many"),
            ("DAPL_WR_MAX", "500"),
        ];
        let s = parse("v0 0", &env).unwrap();
        assert_eq!((s.inline, s.mtu, s.rnr_timer), (128, Some(4), 12));
        assert_eq!((s.resolve_retry, s.wr_max), ([15, 8], Some(500)));
        let s = parse("v0 0 inline=0 mtu=4096 resolve_retry=2", &env).unwrap();
        assert_eq!((s.inline, s.mtu, s.resolve_retry), (0, Some(5), [2, 2]));
    }

    #[test]
    fn what_is_honoured_is_read() {
        use dat_core::environment::{VARIABLES, ignored};
        use std::cell::RefCell;
        let read = RefCell::new(Vec::new());
        Settings::new(&IaParams::default(), |name| {
            read.borrow_mut().push(name.to_owned());
            None
        })
        .unwrap();
        let mut read = read.into_inner();
        read.sort_unstable();
        let mut honoured = READ_VARIABLES.to_vec();
        honoured.sort_unstable();
        assert_eq!(read, honoured);
        // Every honoured variable is one of DAPL's; the report of the ignored ones omits them.
        let others = ignored(READ_VARIABLES, |_| Some("1".into()));
        assert_eq!(others.len() + READ_VARIABLES.len() + 1, VARIABLES.len());
    }

    #[test]
    fn declared_values_are_those_that_are_accepted() {
        let mut keys = Vec::new();
        for line in SETTINGS.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let (key, values) = (words[0], &words[2..]);
            keys.push(key);
            let one = |value: &str| parse(&format!("v0 0 cm=socket {key}={value}"), &[]);
            let one = |value: &str| {
                if key == "cm" {
                    parse(&format!("cm={value}"), &[])
                } else {
                    one(value)
                }
            };
            for value in values {
                assert!(one(value).is_ok(), "{line}: {value}");
            }
            let beyond = values[values.len() - 1]
                .parse()
                .map_or("other".into(), |n: u64| (n + 1).to_string());
            assert!(one(&beyond).is_err(), "{line}: {beyond}");
        }
        assert_eq!(keys, KEYS);
    }

    #[test]
    fn wrong_values_name_the_right_ones() {
        for (text, word) in [
            ("v0 0 mtu=1500", "256, 512"),
            ("v0 0 mtu=9000", "256 to 4096"),
            ("v0 0 retry=8", "0 to 7"),
            ("v0 0 colour=red", "resolve_timeout"),
            ("v0 0 cm=tcp", "rdmacm, socket"),
            ("v0 0 gid_index=1", "cm=socket only"),
        ] {
            let error = parse(text, &[]).unwrap_err().to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
