//! The settings of an adapter: the device field is an address or `lo`, then `mtu=`.

use std::net::{IpAddr, Ipv4Addr};

use dat_core::ia_params::{IaParams, IaParamsError};

/// How an adapter is set up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Settings {
    /// A local address.
    pub(crate) address: IpAddr,
    /// Largest path MTU.
    pub(crate) mtu: u16,
}

impl Settings {
    /// Reads `ia_params`; an unknown word is an error that lists the known ones.
    pub(crate) fn parse(params: &IaParams) -> Result<Self, IaParamsError> {
        params.known(&["engine", "mtu"])?;
        let address = match params.device.as_str() {
            "" | "lo" => Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            text => text.parse().ok(),
        };
        let mtu = params.word("mtu", &["256", "512", "1024", "2048", "4096"])?;
        Ok(Self {
            address: address.ok_or_else(|| IaParamsError::Value {
                key: "device".into(),
                value: params.device.clone(),
                expected: "an address of this host like 127.0.0.1, or lo".into(),
            })?,
            mtu: mtu.and_then(|word| word.parse().ok()).unwrap_or(4096),
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
    fn addresses_and_mtu_are_read_and_others_refused() {
        assert_eq!(
            parse("lo 0 engine=user").unwrap().address.to_string(),
            "127.0.0.1"
        );
        let s = parse("127.0.0.9 0 mtu=1024").unwrap();
        assert_eq!((s.address.to_string().as_str(), s.mtu), ("127.0.0.9", 1024));
        for wrong in ["nowhere", "lo 0 mtu=1500", "lo 0 colour=red"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
