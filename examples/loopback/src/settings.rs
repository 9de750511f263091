//! The settings of an adapter: the `ia_params` of its dat.conf entry, such as `"127.0.0.2 0 fail=register delay_ms=5"`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dat_core::ia_params::{IaParams, IaParamsError};
use dat_provider_parts::address;

use crate::faults::{FAULTS, Planted};

/// Operation at which an adapter always fails on request (`fail=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fail {
    /// dat_ia_open.
    Open,
    /// dat_pz_create.
    Pz,
    /// dat_lmr_create.
    Register,
    /// dat_rmr_create.
    Rmr,
    /// The creation of a completion queue: dat_evd_create for DTO or bind streams.
    Cq,
    /// dat_srq_create.
    Srq,
    /// The creation of a queue pair: dat_ep_create, or a later call that completes the endpoint.
    Qp,
    /// dat_psp_create, dat_rsp_create.
    Listen,
    /// dat_ep_connect itself.
    Connect,
    /// The connection attempt: it ends as unreachable.
    Route,
    /// The answer to a connection attempt: it never comes.
    Answer,
    /// The accept: dat_cr_accept ends in an accept completion error.
    Accept,
    /// The post of a request.
    Post,
    /// The transfer: every request is lost, which breaks the connection.
    Wire,
}

/// The values of `fail=`.
const FAILS: [(&str, Fail); 14] = [
    ("open", Fail::Open),
    ("pz", Fail::Pz),
    ("register", Fail::Register),
    ("rmr", Fail::Rmr),
    ("cq", Fail::Cq),
    ("srq", Fail::Srq),
    ("qp", Fail::Qp),
    ("listen", Fail::Listen),
    ("connect", Fail::Connect),
    ("route", Fail::Route),
    ("answer", Fail::Answer),
    ("accept", Fail::Accept),
    ("post", Fail::Post),
    ("wire", Fail::Wire),
];

/// Scope of the adapters' link-local addresses.
pub(crate) const SCOPE: u32 = 7;

/// Returns whether an adapter may have the address.
fn is_possible(ip: &IpAddr) -> bool {
    ip.is_loopback() || is_link_local(ip)
}

/// Returns whether the address is of one link only.
pub(crate) const fn is_link_local(ip: &IpAddr) -> bool {
    matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local())
}

/// Configuration of an adapter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Address of the adapter: 127.0.0.1, or that of the device field, a loopback or link-local one. Several adapters may share one
    /// address.
    pub address: IpAddr,
    /// Operation that fails (`fail=`).
    pub fail: Option<Fail>,
    /// Delay of connection requests and connection events (`delay_ms=`).
    pub delay: Duration,
    /// True if a message without a posted receive fails (`rnr=fail`) and does not wait for one (`rnr=wait`).
    pub receiver_not_ready_fails: bool,
    /// Fault to plant (`fault=`, with the feature `faults`).
    pub fault: Option<Planted>,
}

impl Settings {
    /// Reads `ia_params`.
    ///
    /// # Errors
    /// [`IaParamsError`], which names the wrong word and the allowed values.
    pub fn parse(params: &IaParams) -> Result<Self, IaParamsError> {
        if cfg!(feature = "faults") {
            params.known(&["fail", "delay_ms", "rnr", "fault"])?;
        } else {
            params.known(&["fail", "delay_ms", "rnr"])?;
        }
        let words = FAILS.map(|(word, _)| word);
        let fail = params.word("fail", &words)?;
        let words: Vec<&str> = FAULTS.iter().map(|(word, ..)| *word).collect();
        let fault = params.word("fault", &words)?;
        Ok(Self {
            address: address::of(params, Ipv4Addr::LOCALHOST.into(), is_possible)?,
            fail: fail.and_then(|word| FAILS.iter().find(|(w, _)| *w == word).map(|(_, f)| *f)),
            delay: Duration::from_millis(params.number("delay_ms", 0..=60_000)?.unwrap_or(0)),
            receiver_not_ready_fails: params.word("rnr", &["wait", "fail"])? == Some("fail"),
            fault: fault.and_then(|word| {
                let found = FAULTS.iter().find(|(w, ..)| *w == word);
                found.map(|(_, fault, _)| *fault)
            }),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings, IaParamsError> {
        Settings::parse(&IaParams::parse(text)?)
    }

    #[test]
    fn all_settings_are_read_and_other_words_are_refused() {
        assert_eq!(parse("").unwrap().address, IpAddr::V4(Ipv4Addr::LOCALHOST));
        let s = parse("127.0.0.9 0 fail=qp delay_ms=5 rnr=fail").unwrap();
        assert_eq!(s.address.to_string(), "127.0.0.9");
        assert_eq!(
            (s.fail, s.delay),
            (Some(Fail::Qp), Duration::from_millis(5))
        );
        assert!(s.receiver_not_ready_fails);
        for (word, fail) in FAILS {
            assert_eq!(parse(&format!("fail={word}")).unwrap().fail, Some(fail));
        }
        for wrong in [
            "10.0.0.1",
            "lo",
            "fail=never",
            "rnr=maybe",
            "delay_ms=x",
            "a=b",
            // Only a build for the proof of the conformance suite has faults.
            "fault=short-copy",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
