//! Seeds of the bodies: packets that the kernel's rdma_rxe sent, from the captures in `tests/vectors`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// Bytes of an Ethernet and of a UDP header.
const ETHERNET: usize = 14;
const UDP: usize = 8;
/// Fields that are corrected in a replayed packet: queue pair, PSN and key.
const FIX_ALL: u8 = 7;

/// Returns the folder of the captures.
#[must_use]
pub fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vectors")
}

/// Returns the RoCEv2 datagrams of a capture, BTH to ICRC, with the last byte of the sender's address.
///
/// # Errors
/// Errors of reading the file; `InvalidData` if it is not a little-endian pcap of Ethernet frames or bare IP packets.
pub fn read(path: &Path) -> io::Result<Vec<(u8, Vec<u8>)>> {
    let data = fs::read(path)?;
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, path.display().to_string());
    let word = |at: usize| {
        let bytes = data.get(at..at + 4)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?) as usize)
    };
    let link = match word(20).ok_or_else(invalid)? {
        1 => ETHERNET,
        101 => 0,
        _ => return Err(invalid()),
    };
    let mut out = Vec::new();
    let mut at = 24;
    while let Some(length) = word(at + 8) {
        let frame = data.get(at + 16..at + 16 + length).ok_or_else(invalid)?;
        out.extend(frame.get(link..).and_then(datagram));
        at += 16 + length;
    }
    Ok(out)
}

/// Returns sender and payload of an IP packet to UDP port 4791.
fn datagram(packet: &[u8]) -> Option<(u8, Vec<u8>)> {
    let (length, protocol, sender) = match packet.first()? >> 4 {
        4 => (usize::from(packet[0] & 15) * 4, 9, 15),
        6 => (40, 6, 23),
        _ => return None,
    };
    if *packet.get(protocol)? != 17 || packet.get(length + 2..length + 4)? != [0x12, 0xb7] {
        return None;
    }
    let payload = packet.get(length + UDP..)?;
    Some((packet[sender], payload.to_vec()))
}

/// Returns inputs for the body called `body`.
///
/// # Errors
/// See [`read`].
pub fn seeds(body: &str) -> io::Result<Vec<Vec<u8>>> {
    match body {
        "conf" => return Ok(crate::conf::seeds()),
        "scm" => return Ok(crate::scm::seeds()),
        "port" => return Ok(crate::port::seeds()),
        "ring" => return Ok(crate::ring::seeds()),
        "private" => return Ok(crate::private::seeds()),
        _ => {}
    }
    let mut files: Vec<PathBuf> = fs::read_dir(folder())?
        .filter_map(|entry| Some(entry.ok()?.path()))
        .filter(|path| path.extension().is_some_and(|e| e == "pcap"))
        .collect();
    files.sort();
    let mut out = Vec::new();
    for file in files {
        let datagrams = read(&file)?;
        match body {
            "wire" => out.extend(datagrams.into_iter().take(40).map(|(_, bytes)| bytes)),
            "responder" | "requester" | "near" => {
                for sender in [1, 2] {
                    let packets = datagrams.iter().filter(|d| d.0 == sender && !managed(&d.1));
                    let packets = packets.map(|d| &d.1[..]).take(40);
                    out.push(conversation(packets, body == "near"));
                }
            }
            "cm" => {
                let messages = datagrams.iter().filter(|d| managed(&d.1));
                out.push(messages.flat_map(|d| mad_step(&d.1)).collect());
            }
            _ => {}
        }
    }
    if body == "near" {
        out.push(crate::rc::lent_seed());
    }
    out.retain(|seed| seed.len() > 8);
    Ok(out)
}

/// Returns true if the datagram is for the general services queue pair.
fn managed(datagram: &[u8]) -> bool {
    datagram.get(5..8) == Some(&[0, 0, 1])
}

/// Returns consecutive packets of one side, as decisions of the reliable connection's bodies.
///
/// A step over a channel begins with a decision more: whether it is a record that no correct peer sends.
fn conversation<'a>(packets: impl Iterator<Item = &'a [u8]>, near: bool) -> Vec<u8> {
    // Seed, path MTU 1024, all rights; PSNs, depths, retries, agreement.
    let mut out = vec![1, 1, 7, 0, 0, 0, 0, 0, 0];
    out.extend(vec![0; if near { 14 } else { 20 }]);
    for packet in packets {
        if near {
            out.push(0);
        }
        let transport = &packet[..packet.len().saturating_sub(4)];
        out.extend([crate::rc::RAW_STEP, FIX_ALL]);
        out.extend((transport.len() as u16).to_le_bytes());
        out.extend(transport);
        // A receive is posted after each, for SENDs.
        out.extend([7, 0, 0, 6]);
    }
    out
}

/// Returns a management datagram as a decision of the connection manager's body.
fn mad_step(datagram: &[u8]) -> Vec<u8> {
    let mut out = vec![9, 3, 2, 0, 0];
    let mad = datagram.get(20..276).unwrap_or_default();
    out.extend(mad);
    // The consumer accepts.
    out.extend([12, 0]);
    out
}
