//! The settings of an adapter: `ia_params` of its dat.conf entry, e.g. `"127.0.0.2 0 fail=register delay_ms=5"`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use dat_core::ia_params::{IaParams, IaParamsError};

/// What an adapter fails at, always and on purpose (`fail=`).
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
    /// Completion queues: dat_evd_create for DTO or bind streams.
    Cq,
    /// dat_srq_create.
    Srq,
    /// dat_ep_create, or where the queue pair is made.
    Qp,
    /// dat_psp_create, dat_rsp_create.
    Listen,
    /// dat_ep_connect, at once.
    Connect,
    /// A connection attempt ends as unreachable.
    Route,
    /// A connection attempt is never answered.
    Answer,
    /// dat_cr_accept ends in an accept completion error.
    Accept,
    /// Posting a request.
    Post,
    /// Every request is lost on the way, which breaks the connection.
    Wire,
}

/// The words of `fail=`.
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

/// How an adapter is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Where peers find it: 127.0.0.1 unless the device field says otherwise. Several adapters may share one.
    pub address: IpAddr,
    /// `fail=`: see [`Fail`].
    pub fail: Option<Fail>,
    /// `delay_ms=`: how long connection requests and events stay on the way.
    pub delay: Duration,
    /// `rnr=fail`: a message that finds no receive fails; else (`rnr=wait`) it waits for one.
    pub receiver_not_ready_fails: bool,
}

impl Settings {
    /// Reads `ia_params`.
    ///
    /// # Errors
    /// [`IaParamsError`]: says which word cannot be used, and what would be.
    pub fn parse(params: &IaParams) -> Result<Self, IaParamsError> {
        params.known(&["fail", "delay_ms", "rnr"])?;
        let address = match params.device.as_str() {
            "" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            text => text.parse().ok().filter(IpAddr::is_loopback),
        };
        let words = FAILS.map(|(word, _)| word);
        let fail = params.word("fail", &words)?;
        Ok(Self {
            address: address.ok_or_else(|| IaParamsError::Value {
                key: "device".into(),
                value: params.device.clone(),
                expected: "an address like 127.0.0.2, or nothing for 127.0.0.1".into(),
            })?,
            fail: fail.and_then(|word| FAILS.iter().find(|(w, _)| *w == word).map(|(_, f)| *f)),
            delay: Duration::from_millis(params.number("delay_ms", 0..=60_000)?.unwrap_or(0)),
            receiver_not_ready_fails: params.word("rnr", &["wait", "fail"])? == Some("fail"),
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
    fn every_word_is_known_and_others_are_refused() {
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
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
