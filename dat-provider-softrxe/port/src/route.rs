//! Demultiplexes datagrams on the shared port, by their first bytes and before any check.

use std::collections::VecDeque;
use std::net::IpAddr;

use crate::message::Destination;
use crate::slot::{slot_of_comm_id, slot_of_qpn};

/// Offsets within the UDP payload: BTH, then for the connection manager DETH and the MAD.
mod field {
    pub(super) const DESTINATION_QPN: usize = 4; // a byte of flags, then 24 bits
    pub(super) const ATTRIBUTE: usize = 20 + 16;
    pub(super) const CM: usize = 20 + 24;
}

const REQ: u16 = 0x10;
const SIDR_REQ: u16 = 0x17;
const SIDR_REP: u16 = 0x18;
const REJ: u16 = 0x12;
/// Number of requests that are remembered.
const MAX_REMEMBERED: usize = 256;

fn word(datagram: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(
        datagram.get(at..at + 4)?.try_into().ok()?,
    ))
}

/// Returns the engine or listener that receives `datagram`; `None` if it is too short.
///
/// Requests are routed by their service id, answers by our communication id (SIDR: request id) in them, everything else
/// by the destination queue pair.
#[must_use]
pub fn destination(datagram: &[u8]) -> Option<Destination> {
    let qpn = word(datagram, field::DESTINATION_QPN)? & 0x00ff_ffff;
    if qpn != 1 {
        return Some(Destination::Slot(slot_of_qpn(qpn)));
    }
    Some(match attribute(datagram)? {
        REQ | SIDR_REQ => {
            let high = word(datagram, field::CM + 8)?;
            let low = word(datagram, field::CM + 12)?;
            Destination::Service(u64::from(high) << 32 | u64::from(low))
        }
        SIDR_REP => Destination::Slot(slot_of_comm_id(word(datagram, field::CM)?)),
        _ => Destination::Slot(slot_of_comm_id(word(datagram, field::CM + 4)?)),
    })
}

fn attribute(datagram: &[u8]) -> Option<u16> {
    Some((word(datagram, field::ATTRIBUTE)? >> 16) as u16)
}

/// Remembers recent requests, to route the REJ of a peer that cancels a request before it learned our communication id:
/// that REJ contains only the peer's own id.
#[derive(Debug, Default)]
pub struct RecentRequests {
    /// Source address, communication id and service; the newest last.
    recent: VecDeque<(IpAddr, u32, u64)>,
}

impl RecentRequests {
    /// Returns the destination of a datagram from `source`, as [`destination`] does.
    #[must_use]
    pub fn destination(&mut self, source: IpAddr, datagram: &[u8]) -> Option<Destination> {
        let to = destination(datagram)?;
        match to {
            Destination::Service(service) if attribute(datagram) == Some(REQ) => {
                let request = (source, word(datagram, field::CM)?, service);
                if !self.recent.contains(&request) {
                    if self.recent.len() == MAX_REMEMBERED {
                        self.recent.pop_front();
                    }
                    self.recent.push_back(request);
                }
                Some(to)
            }
            Destination::Slot(0) if attribute(datagram) == Some(REJ) => {
                let id = word(datagram, field::CM)?;
                let mut newest_first = self.recent.iter().rev();
                let known = newest_first.find(|known| (known.0, known.1) == (source, id));
                Some(known.map_or(to, |known| Destination::Service(known.2)))
            }
            _ => Some(to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mad(attribute: u16, words: [u32; 4]) -> Vec<u8> {
        let mut bytes = vec![0; 280];
        bytes[7] = 1;
        bytes[36..38].copy_from_slice(&attribute.to_be_bytes());
        for (i, word) in words.into_iter().enumerate() {
            bytes[44 + 4 * i..48 + 4 * i].copy_from_slice(&word.to_be_bytes());
        }
        bytes
    }

    #[test]
    fn each_message_is_routed_to_its_engine() {
        let mut data = vec![0; 16];
        data[4..8].copy_from_slice(&(0xff00_0000u32 | 5 << 14 | 3).to_be_bytes());
        assert_eq!(destination(&data), Some(Destination::Slot(5)));
        assert_eq!(destination(&data[..7]), None);
        let words = [9 << 22 | 1, 7 << 22 | 2, 0x0106, 0x1b59 | 1 << 24];
        let service = 0x0000_0106_0100_1b59;
        assert_eq!(
            destination(&mad(0x10, words)),
            Some(Destination::Service(service))
        );
        assert_eq!(
            destination(&mad(0x17, words)),
            Some(Destination::Service(service))
        );
        assert_eq!(destination(&mad(0x18, words)), Some(Destination::Slot(9)));
        for answer in [0x11, 0x12, 0x13, 0x14, 0x15, 0x16] {
            assert_eq!(
                destination(&mad(answer, words)),
                Some(Destination::Slot(7)),
                "{answer:#x}"
            );
        }
        assert_eq!(destination(&mad(0x10, words)[..50]), None);
    }

    #[test]
    fn an_early_rej_reaches_the_service_of_its_request() {
        let (a, b): (IpAddr, IpAddr) = ("10.9.0.2".parse().unwrap(), "10.9.0.3".parse().unwrap());
        let request = |id: u32, service: u32| mad(REQ, [id, 0, 0x0106, service]);
        let early_rej = |id: u32| mad(REJ, [id, 0, 0, 0]);
        let service = |low: u32| Some(Destination::Service(0x0106 << 32 | u64::from(low)));
        let no_engine = Some(Destination::Slot(0));
        let mut requests = RecentRequests::default();
        assert_eq!(requests.destination(a, &early_rej(7)), no_engine);
        assert_eq!(requests.destination(a, &request(7, 1)), service(1));
        assert_eq!(requests.destination(b, &request(7, 2)), service(2));
        assert_eq!(requests.destination(a, &early_rej(7)), service(1));
        assert_eq!(requests.destination(b, &early_rej(7)), service(2));
        assert_eq!(requests.destination(b, &early_rej(8)), no_engine);
        // The same id for another service, later.
        assert_eq!(requests.destination(a, &request(7, 3)), service(3));
        assert_eq!(requests.destination(a, &early_rej(7)), service(3));
        // Repeated requests take no room, many others do.
        for n in 0..2 * MAX_REMEMBERED as u32 {
            let _ = requests.destination(a, &request(100, 4));
            assert_eq!(requests.destination(b, &early_rej(7)), service(2), "{n}");
        }
        for id in 0..2 * MAX_REMEMBERED as u32 {
            let _ = requests.destination(a, &request(1000 + id, 4));
        }
        assert_eq!(requests.recent.len(), MAX_REMEMBERED);
        assert_eq!(requests.destination(b, &early_rej(7)), no_engine);
        // Answers to our messages are routed by our id.
        let known = mad(REJ, [7, 9 << 22, 0, 0]);
        assert_eq!(requests.destination(a, &known), Some(Destination::Slot(9)));
    }
}
