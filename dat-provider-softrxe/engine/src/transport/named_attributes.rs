//! The named attributes of a user-space adapter, in DAPL's order (dat_ia_query, `provider_specific_attr`).

use std::net::IpAddr;

use crate::address::local_address::LocalAddress;

/// Formats bytes as groups of four hexadecimal digits.
fn groups(bytes: &[u8]) -> String {
    let groups: Vec<String> = bytes
        .chunks_exact(2)
        .map(|pair| format!("{:02x}{:02x}", pair[0], pair[1]))
        .collect();
    groups.join(":")
}

/// Returns the attributes of the engine with `guid` at `local`, whose packets have a payload of `mtu` bytes. `near`,
/// `ring` and `lanes` are the settings that are in force.
pub(super) fn attributes(
    local: &LocalAddress,
    device: &str,
    mtu: u16,
    guid: u64,
    near: &str,
    ring: &str,
    lanes: usize,
) -> Vec<(String, String)> {
    let gid = match local.address {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    [
        // DAPL's name of the provider for this connection manager protocol.
        ("DAT_IB_PROVIDER_NAME", "CMA".to_owned()),
        ("DAT_IB_DEVICE_NAME", device.to_owned()),
        ("DAT_IB_CONNECTIVITY_MODE", "DIRECT".to_owned()),
        ("DAT_IB_RDMA_READ", "TRUE".to_owned()),
        ("DAT_IB_NODE_GUID", groups(&guid.to_be_bytes())),
        ("DAT_IB_GID", groups(&gid)),
        ("DAT_IB_TRANSPORT_MTU", mtu.to_string()),
        ("DAT_IB_PORT_STATUS", "ACTIVE".to_owned()),
        ("DAT_IB_PORT_NUMBER", "1".to_owned()),
        ("DAT_EXTENSION_INTERFACE", "TRUE".to_owned()),
        ("DAT_IB_FETCH_AND_ADD", "TRUE".to_owned()),
        ("DAT_IB_CMP_AND_SWAP", "TRUE".to_owned()),
        ("DAT_IB_IMMED_DATA", "TRUE".to_owned()),
        ("DAT_IB_UD", "TRUE".to_owned()),
        ("SOFTRXE_NEAR", near.to_owned()),
        ("SOFTRXE_RING", ring.to_owned()),
        ("SOFTRXE_LANES", lanes.to_string()),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gid_is_the_address_and_the_guid_is_the_engines() {
        let local = LocalAddress {
            address: "10.9.0.1".parse().unwrap(),
            netdev: "v0".into(),
            mtu: 1024,
        };
        let named = attributes(
            &local,
            "user-v0",
            1024,
            0x0102_0304_0506_0708,
            "copy",
            "off",
            4,
        );
        let of = |name: &str| {
            let found = named.iter().find(|(of, _)| of == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(of("DAT_IB_NODE_GUID"), Some("0102:0304:0506:0708"));
        let gid = "0000:0000:0000:0000:0000:ffff:0a09:0001";
        assert_eq!(of("DAT_IB_GID"), Some(gid));
        assert_eq!(of("DAT_IB_DEVICE_NAME"), Some("user-v0"));
        assert_eq!(of("DAT_IB_TRANSPORT_MTU"), Some("1024"));
        assert_eq!(of("SOFTRXE_NEAR"), Some("copy"));
        assert_eq!(of("SOFTRXE_RING"), Some("off"));
        assert_eq!(of("SOFTRXE_LANES"), Some("4"));
    }
}
