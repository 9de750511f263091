//! Adapter attributes (dat_ia_query) from the device's, and the named attributes in the order that programs written
//! for DAPL expect.

use std::ffi::CStr;
use std::fmt::Write as _;

use dat_core::attributes::AdapterAttr;
use dat_handshake::{rdma_cm, scm};

use crate::cm::socket::{gid::Gids, manager::SocketManager, timers::Timers};
use crate::find::{DevicePort, OpenError};
use crate::settings::{Manager, Settings};
use crate::sys::{self, device_cap, ibv_atomic_cap, ibv_port_state};
use crate::verbs::ah::gid;
use crate::verbs::device::{Device, SOFT_IWARP, SOFT_ROCE, Transport, VENDOR_RXE, VENDOR_SIW};

/// Optional capabilities of a device, as far as its attributes do not say them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Capabilities {
    atomics: bool,
    immediate_data: bool,
    datagrams: bool,
    zero_based: bool,
}

impl Capabilities {
    /// Returns true if the device has any operation of the IB extension.
    fn extended(self) -> bool {
        self.atomics || self.immediate_data || self.datagrams
    }

    /// Returns the capabilities of a device with this transport and these atomics, whose connections are made by `cm`.
    /// iWARP (RFC 5040 to 5044) has neither immediate data nor datagrams; its atomics (RFC 7306) are those that the
    /// device reports. siw ignores the address that a registration asks for, so its regions never begin at 0.
    fn of(transport: Transport, vendor: u32, atomics: u32, cm: Manager) -> Self {
        let infiniband = transport == Transport::InfiniBand;
        Self {
            atomics: atomics != ibv_atomic_cap::IBV_ATOMIC_NONE,
            immediate_data: infiniband,
            // DAPL's scm protocol has datagrams too, but they never worked on RoCE.
            datagrams: infiniband && cm == Manager::Rdmacm,
            zero_based: vendor != VENDOR_SIW,
        }
    }
}

/// Raw attributes of a device and its port.
pub(crate) struct Facts<'a> {
    device_port: &'a DevicePort,
    transport: Transport,
    device: sys::ibv_device_attr,
    port: sys::ibv_port_attr,
    gid: Option<[u8; 16]>,
    guid: u64,
}

fn positive(n: i32) -> u32 {
    u32::try_from(n).unwrap_or(0)
}

impl<'a> Facts<'a> {
    /// Queries the device; the errno on failure.
    pub(crate) fn read(device: &Device, device_port: &'a DevicePort) -> Result<Self, i32> {
        Ok(Self {
            device_port,
            transport: device.transport(),
            device: device.query()?,
            port: device.query_port(device_port.port)?,
            gid: gid_of(device, device_port),
            guid: device.guid(),
        })
    }

    /// Returns true if the link is up.
    pub(crate) fn active(&self) -> bool {
        self.port.state == ibv_port_state::IBV_PORT_ACTIVE
    }

    /// Returns the device's transport.
    pub(crate) fn transport(&self) -> Transport {
        self.transport
    }

    /// Returns true if the device is siw.
    pub(crate) fn is_siw(&self) -> bool {
        self.device.vendor_id == VENDOR_SIW
    }

    /// Returns true if the port's link layer is RoCE or iWARP, not InfiniBand.
    pub(crate) fn roce(&self) -> bool {
        self.port.link_layer != sys::LINK_LAYER_INFINIBAND
    }

    /// Returns the port's LID; 0 on RoCE, which has none.
    pub(crate) fn lid(&self) -> u16 {
        self.port.lid
    }

    fn mtu(&self) -> u32 {
        128 << self.port.active_mtu.clamp(1, 5)
    }

    fn firmware(&self) -> String {
        CStr::from_bytes_until_nul(&self.device.fw_ver)
            .map_or_else(|_| String::new(), |s| s.to_string_lossy().into_owned())
    }

    fn vendor(&self) -> String {
        match self.device.vendor_id {
            VENDOR_RXE => SOFT_ROCE.to_owned(),
            VENDOR_SIW => SOFT_IWARP.to_owned(),
            id => format!("vendor {id:#06x} part {}", self.device.vendor_part_id),
        }
    }

    /// Returns the named attributes.
    fn named(&self, can: Capabilities, protocol: &str) -> Vec<(String, String)> {
        let truth = |b: bool| if b { "TRUE" } else { "FALSE" }.to_owned();
        let state = if self.active() { "ACTIVE" } else { "DOWN" };
        [
            // The name of the connection manager protocol: that of DAPL's provider for it.
            ("DAT_IB_PROVIDER_NAME", protocol.to_owned()),
            ("DAT_IB_DEVICE_NAME", self.device_port.device.clone()),
            ("DAT_IB_CONNECTIVITY_MODE", "DIRECT".to_owned()),
            ("DAT_IB_RDMA_READ", truth(self.device.max_qp_rd_atom > 0)),
            ("DAT_IB_NODE_GUID", groups(&self.guid.to_be_bytes())),
            ("DAT_IB_GID", groups(&self.gid.unwrap_or_default())),
            ("DAT_IB_TRANSPORT_MTU", self.mtu().to_string()),
            ("DAT_IB_PORT_STATUS", state.to_owned()),
            ("DAT_IB_PORT_NUMBER", self.device_port.port.to_string()),
            ("DAT_EXTENSION_INTERFACE", truth(can.extended())),
            ("DAT_IB_FETCH_AND_ADD", truth(can.atomics)),
            ("DAT_IB_CMP_AND_SWAP", truth(can.atomics)),
            ("DAT_IB_IMMED_DATA", truth(can.immediate_data)),
            ("DAT_IB_UD", truth(can.datagrams)),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    pub(crate) fn device_name(&self) -> &str {
        &self.device_port.device
    }

    /// Makes the socket connection manager from the port's attributes.
    pub(crate) fn socket_manager(
        &self,
        device: &Device,
        settings: &Settings,
    ) -> Result<SocketManager, OpenError> {
        let (port, wanted) = (self.device_port.port, settings.gid_index);
        let gids = Gids::read(device, port, self.device_port.ip, self.roce(), wanted).ok_or_else(|| {
            let index = wanted.unwrap_or(0);
            OpenError::Device {
                device: self.device_port.device.clone(),
                reason: format!(
                    "port {port} has no entry {index} in its GID table; see /sys/class/infiniband/{}/ports/{port}/gids",
                    self.device_port.device
                ),
            }
        })?;
        let active = self.port.active_mtu.clamp(1, 5);
        Ok(SocketManager {
            timers: Timers::new().map_err(|e| OpenError::Resources(e.to_string()))?,
            gids,
            lid: self.port.lid,
            mtu: settings.mtu.map_or(active, |mtu| mtu.min(active)) as u8,
            mtu_is_set: settings.mtu.is_some(),
        })
    }

    /// Returns all adapter attributes. `wr_max` limits the requests and the receives of an endpoint.
    pub(crate) fn attr(&self, cm: Manager, wr_max: Option<u32>) -> AdapterAttr {
        let (protocol, private_data) = match cm {
            Manager::Rdmacm => ("CMA", rdma_cm::REQ_PRIVATE),
            Manager::Socket => ("SCM", scm::MAX_PRIVATE),
        };
        let d = &self.device;
        let can = Capabilities::of(self.transport, d.vendor_id, d.atomic_cap, cm);
        let windows = d.max_mw > 0 && d.device_cap_flags & device_cap::MEM_WINDOW != 0;
        let reads_in = positive(d.max_qp_rd_atom);
        let reads_out = positive(d.max_qp_init_rd_atom);
        let sges = positive(d.max_sge);
        let mut attr = AdapterAttr::default();
        attr.adapter_name = self.device_port.device.clone();
        attr.vendor_name = self.vendor();
        attr.hardware_version = (d.hw_ver, 0);
        attr.firmware_version = version(&self.firmware());
        attr.address = self.device_port.ip;
        attr.scope_id = self.device_port.scope;
        attr.max_eps = positive(d.max_qp);
        attr.max_dto_per_ep = positive(d.max_qp_wr).min(wr_max.unwrap_or(u32::MAX));
        attr.max_rdma_read_per_ep_in = reads_in;
        attr.max_rdma_read_per_ep_out = reads_out;
        attr.max_rdma_read_in = positive(d.max_res_rd_atom).max(reads_in);
        attr.max_rdma_read_out = positive(d.max_res_rd_atom).max(reads_out);
        attr.max_evds = positive(d.max_cq);
        attr.max_evd_qlen = positive(d.max_cqe);
        attr.max_iov = sges;
        attr.max_iov_rdma_read = if d.max_sge_rd > 0 {
            sges.min(positive(d.max_sge_rd))
        } else {
            sges
        };
        attr.max_iov_rdma_write = sges;
        attr.max_lmrs = positive(d.max_mr);
        attr.max_lmr_block_size = d.max_mr_size;
        attr.max_pzs = positive(d.max_pd);
        attr.max_message_size = self.port.max_msg_sz.into();
        attr.max_rdma_size = self.port.max_msg_sz.into();
        attr.max_rmrs = if windows { positive(d.max_mw) } else { 0 };
        attr.max_srqs = positive(d.max_srq);
        attr.max_ep_per_srq = positive(d.max_qp);
        attr.max_recv_per_srq = positive(d.max_srq_wr);
        attr.max_private_data_size = private_data as u32;
        attr.zero_based = can.zero_based;
        attr.named = self.named(can, protocol);
        attr.atomics = can.atomics;
        attr.immediate_data = can.immediate_data;
        attr.max_datagram = if can.datagrams { self.mtu() } else { 0 };
        attr.windows = windows;
        attr
    }
}

/// Returns the GID of the IA's address, else the port's first.
fn gid_of(device: &Device, device_port: &DevicePort) -> Option<[u8; 16]> {
    let wanted = gid(device_port.ip);
    (0..256)
        .filter_map(|index| device.gid(device_port.port, index))
        .find(|gid| *gid == wanted)
        .or_else(|| device.gid(device_port.port, 0))
}

/// Formats bytes as groups of four hexadecimal digits.
fn groups(bytes: &[u8]) -> String {
    let mut text = String::new();
    for pair in bytes.chunks(2) {
        let colon = if text.is_empty() { "" } else { ":" };
        write!(
            text,
            "{colon}{:02x}{:02x}",
            pair[0],
            pair.get(1).copied().unwrap_or(0)
        )
        .ok();
    }
    text
}

/// Returns the first two numbers of a firmware version.
fn version(text: &str) -> (u32, u32) {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .filter(|s| !s.is_empty())
        .map(|s| s.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn iwarp_has_neither_immediate_data_nor_datagrams() {
        use Manager::{Rdmacm, Socket};
        use Transport::{InfiniBand, Iwarp, Other};
        use ibv_atomic_cap::{IBV_ATOMIC_HCA, IBV_ATOMIC_NONE};
        const CHELSIO: u32 = 0x1425;
        for (transport, vendor, cap, cm, expected) in [
            (InfiniBand, VENDOR_RXE, IBV_ATOMIC_HCA, Rdmacm, [true; 4]),
            (
                InfiniBand,
                VENDOR_RXE,
                IBV_ATOMIC_NONE,
                Rdmacm,
                [false, true, true, true],
            ),
            (
                InfiniBand,
                VENDOR_RXE,
                IBV_ATOMIC_HCA,
                Socket,
                [true, true, false, true],
            ),
            (Iwarp, VENDOR_SIW, IBV_ATOMIC_NONE, Rdmacm, [false; 4]),
            (
                Iwarp,
                CHELSIO,
                IBV_ATOMIC_HCA,
                Rdmacm,
                [true, false, false, true],
            ),
            (
                Other,
                CHELSIO,
                IBV_ATOMIC_NONE,
                Rdmacm,
                [false, false, false, true],
            ),
        ] {
            let [atomics, immediate_data, datagrams, zero_based] = expected;
            let can = Capabilities {
                atomics,
                immediate_data,
                datagrams,
                zero_based,
            };
            assert_eq!(can.extended(), atomics || transport == InfiniBand);
            assert_eq!(
                Capabilities::of(transport, vendor, cap, cm),
                can,
                "{transport:?} {vendor:#x}"
            );
        }
    }

    #[test]
    fn words_are_grouped() {
        assert_eq!(
            groups(&[0x50, 0x54, 0, 0xff, 0xfe, 0, 1, 2]),
            "5054:00ff:fe00:0102"
        );
        assert_eq!(groups(&[]), "");
    }

    #[test]
    fn versions_have_two_numbers() {
        assert_eq!(version("16.35.2000"), (16, 35));
        assert_eq!(version("v2"), (2, 0));
        assert_eq!(version(""), (0, 0));
    }
}
