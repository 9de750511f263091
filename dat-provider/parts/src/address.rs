//! The IA's address from the device field of `ia_params`.

use std::net::IpAddr;

use dat_core::ia_params::{IaParams, IaParamsError};

/// Returns the address that the device field names, or `default` if the field is empty.
///
/// # Errors
/// The field is no address, or `allowed` refuses it. The message says that an address like `default` is expected.
pub fn of(
    params: &IaParams,
    default: IpAddr,
    allowed: impl Fn(&IpAddr) -> bool,
) -> Result<IpAddr, IaParamsError> {
    let address = match params.device.as_str() {
        "" => Some(default),
        text => text.parse().ok().filter(allowed),
    };
    address.ok_or_else(|| IaParamsError::Value {
        key: "device".into(),
        value: params.device.clone(),
        expected: format!("an address like {default}, or nothing for that one"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_is_an_allowed_address_or_empty() {
        let of = |text: &str| {
            let default = IpAddr::from([127, 0, 0, 1]);
            of(&IaParams::parse(text)?, default, IpAddr::is_loopback)
        };
        assert_eq!(of("").unwrap().to_string(), "127.0.0.1");
        assert_eq!(of("127.0.0.7 0").unwrap().to_string(), "127.0.0.7");
        let refused = of("10.0.0.1 0").unwrap_err().to_string();
        assert!(
            refused.contains("10.0.0.1") && refused.contains("127.0.0.1"),
            "{refused}"
        );
        assert!(of("lo 0").is_err());
    }
}
