//! The data that the IB extension adds to an event (`DAT_IB_EXTENSION_EVENT_DATA`).

use std::net::SocketAddr;

use dat_core::ah::Ah;
use dat_core::event::{DatagramEvent, Dto, DtoOp, DtoStatus, RawHandle};
use dat_core::transport::Transport;

use super::types::{DatEventData, DatIbAddrHandle, DatIbExtensionEventData, ib_ext_type};
use crate::intern;
use crate::sockaddr;
use crate::types::DatConnectionEventData;

/// `DAT_IB_OP_ERR`.
const OP_ERR: u32 = 1;

/// Returns the `DAT_IB_EXT_TYPE` of an extended operation; `None` for an operation of the core API.
pub(crate) fn type_of(op: DtoOp) -> Option<u32> {
    Some(match op {
        DtoOp::FetchAdd => ib_ext_type::FETCH_AND_ADD,
        DtoOp::CompareSwap => ib_ext_type::CMP_AND_SWAP,
        DtoOp::RdmaWriteImmediate => ib_ext_type::RDMA_WRITE_IMMED,
        DtoOp::ReceiveRdmaImmediate => ib_ext_type::RDMA_WRITE_IMMED_DATA,
        DtoOp::ReceiveMessageImmediate => ib_ext_type::RECV_IMMED_DATA,
        DtoOp::SendUd => ib_ext_type::UD_SEND,
        DtoOp::ReceiveUd => ib_ext_type::UD_RECV,
        _ => return None,
    })
}

const NONE: DatIbExtensionEventData = DatIbExtensionEventData {
    r#type: 0,
    status: 0,
    val: 0,
    remote_ah: DatIbAddrHandle {
        ah: std::ptr::null_mut(),
        qpn: 0,
        ia_addr: [0; 28],
    },
    context: 0,
};

/// Returns `data` as words, with zeros for padding.
pub(crate) fn words(data: &DatIbExtensionEventData) -> [u64; 8] {
    let mut words = [0; 8];
    words[0] = pair(data.r#type, data.status);
    words[1] = pair(data.val, 0);
    words[2] = data.remote_ah.ah as u64;
    // The queue pair number and 28 bytes of address.
    let mut bytes = [0; 32];
    bytes[..4].copy_from_slice(&data.remote_ah.qpn.to_ne_bytes());
    bytes[4..].copy_from_slice(&data.remote_ah.ia_addr);
    for (word, eight) in words[3..7].iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_ne_bytes(eight.try_into().unwrap_or_default());
    }
    words[7] = data.context;
    words
}

/// Returns two members of 32 bits, one after the other, as a word.
fn pair(first: u32, second: u32) -> u64 {
    let [first, second] = [first, second].map(u64::from);
    if cfg!(target_endian = "big") {
        first << 32 | second
    } else {
        first | second << 32
    }
}

/// Returns the data of a completion of type `extension`.
pub(crate) fn completion(extension: u32, dto: &Dto) -> DatIbExtensionEventData {
    DatIbExtensionEventData {
        r#type: extension,
        status: u32::from(dto.status != DtoStatus::Success) * OP_ERR,
        val: dto.immediate,
        ..NONE
    }
}

/// Returns the data of a connection request to a datagram endpoint.
pub(crate) fn request() -> DatIbExtensionEventData {
    DatIbExtensionEventData {
        r#type: ib_ext_type::UD_CONNECT_REQUEST,
        ..NONE
    }
}

/// Returns the peer's socket address for `remote_ah.ia_addr`.
fn ia_addr(remote: SocketAddr, scope: u32) -> [u8; 28] {
    let ip = Some(remote.ip());
    sockaddr::bytes(ip, sockaddr::link_scope(ip, scope), remote.port())
}

/// Returns the extension data and the event data of a datagram endpoint's connection event.
pub(crate) fn datagram<T: Transport>(
    number: DatagramEvent,
    ep: RawHandle,
    ah: RawHandle,
) -> (DatIbExtensionEventData, DatEventData) {
    let object = T::arenas().ah.from_addr(ah);
    let info = object.and_then(Ah::info);
    let mut data = DatIbExtensionEventData {
        r#type: match number {
            DatagramEvent::Established if info.is_some_and(|info| info.passive) => {
                ib_ext_type::UD_PASSIVE_REMOTE_AH
            }
            DatagramEvent::Established => ib_ext_type::UD_REMOTE_AH,
            DatagramEvent::Rejected => ib_ext_type::UD_CONNECT_REJECT,
            DatagramEvent::Failed => ib_ext_type::UD_CONNECT_ERROR,
        },
        status: u32::from(number != DatagramEvent::Established) * OP_ERR,
        context: ah as u64,
        ..NONE
    };
    if let Some((qpn, remote)) = info.and_then(|info| info.peer) {
        let scope = T::arenas().ep.from_addr(ep);
        let scope = scope.map_or(0, |ep| intern::scope_of(ep.ia()));
        data.remote_ah = DatIbAddrHandle {
            ah: ah as *mut _,
            qpn,
            ia_addr: ia_addr(remote, scope),
        };
    }
    let private_data = object.map(Ah::private_data);
    let connect_event_data = DatConnectionEventData {
        ep_handle: ep,
        private_data_size: private_data.map_or(0, |d| d.len() as i32),
        private_data: private_data.map_or(std::ptr::null_mut(), |d| d.address().cast()),
    };
    (data, DatEventData { connect_event_data })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_have_the_layout_of_the_c_structure() {
        let data = DatIbExtensionEventData {
            r#type: 6,
            status: 1,
            val: 0x1122_3344,
            remote_ah: DatIbAddrHandle {
                ah: 0x5566 as *mut _,
                qpn: 0x77,
                ia_addr: ia_addr("10.9.0.1:513".parse().unwrap(), 7),
            },
            context: 0x99,
        };
        let words = words(&data);
        // SAFETY: 64 aligned bytes, any of which make the structure.
        let seen = unsafe { &*words.as_ptr().cast::<DatIbExtensionEventData>() };
        assert_eq!((seen.r#type, seen.status, seen.val), (6, 1, 0x1122_3344));
        assert_eq!(
            (seen.remote_ah.ah as usize, seen.remote_ah.qpn),
            (0x5566, 0x77)
        );
        let (family, rest) = seen.remote_ah.ia_addr.split_at(2);
        assert_eq!(family, (libc::AF_INET as u16).to_ne_bytes());
        assert_eq!(rest[..6], [2, 1, 10, 9, 0, 1]);
        assert_eq!(seen.context, 0x99);
    }
}
