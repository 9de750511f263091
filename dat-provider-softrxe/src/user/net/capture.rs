//! Writes what an engine sends and receives to a file that Wireshark reads: classic pcap with nanoseconds, bare IP
//! packets. The headers below the datagram are made up here as they stood on the wire; the IPv4 identification of
//! what came in, which a socket does not show, is found from the ICRC.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use softrxe_proto::wire::icrc::{self, Flow, Verdict};

/// Nanoseconds, version 2.4, whole packets, LINKTYPE_RAW.
const FILE_HEADER: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 101];
const UDP: u8 = 17;
const HOPS: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;

/// A capture in progress. Records reach the file by [`Capture::flush`].
#[derive(Debug)]
pub struct Capture {
    file: File,
    path: PathBuf,
    records: Vec<u8>,
}

impl Capture {
    /// Begins the file anew; `%p` in its name stands for this process's number.
    ///
    /// # Errors
    /// As `open`; `WouldBlock` when another process is writing it.
    pub fn create(path: &Path) -> io::Result<Self> {
        let name = path
            .to_string_lossy()
            .replace("%p", &std::process::id().to_string());
        let path = PathBuf::from(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)?;
        file.try_lock().map_err(|error| match error {
            TryLockError::WouldBlock => io::Error::from(ErrorKind::WouldBlock),
            TryLockError::Error(error) => error,
        })?;
        file.set_len(0)?;
        let records = FILE_HEADER
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .collect();
        let mut capture = Self {
            file,
            path,
            records,
        };
        capture
            .file
            .write_all(&std::mem::take(&mut capture.records))?;
        Ok(capture)
    }

    /// A run of datagrams of `segment` bytes (the last may be shorter) that goes out.
    pub fn sent(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        segment: usize,
        run: &[u8],
    ) {
        for (index, datagram) in (0u16..).zip(run.chunks(segment.max(1))) {
            self.record(source, destination, index, datagram);
        }
    }

    /// A datagram that came in; `index` is its place in a coalesced run.
    pub fn received(
        &mut self,
        source: SocketAddr,
        destination: SocketAddr,
        index: u16,
        datagram: &[u8],
    ) {
        let flow = Flow {
            source,
            destination,
        };
        let id = match icrc::verify(&flow, index, datagram) {
            Verdict::Identification(id) => id,
            _ => index,
        };
        self.record(source, destination, id, datagram);
    }

    fn record(&mut self, source: SocketAddr, destination: SocketAddr, id: u16, datagram: &[u8]) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let udp = 8 + datagram.len() as u16;
        let ip = match source.ip() {
            IpAddr::V4(_) => 20,
            IpAddr::V6(_) => 40,
        };
        let length = u32::from(udp) + ip;
        for word in [now.as_secs() as u32, now.subsec_nanos(), length, length] {
            self.records.extend(word.to_le_bytes());
        }
        match (source.ip(), destination.ip()) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let begin = self.records.len();
                self.records.extend([0x45, 0]);
                for half in [length as u16, id, DONT_FRAGMENT] {
                    self.records.extend(half.to_be_bytes());
                }
                self.records.extend([HOPS, UDP, 0, 0]);
                self.records.extend(from.octets());
                self.records.extend(to.octets());
                let sum = checksum(&self.records[begin..]).to_be_bytes();
                self.records[begin + 10..begin + 12].copy_from_slice(&sum);
            }
            (from, to) => {
                self.records.extend([0x60, 0, 0, 0]);
                self.records.extend(udp.to_be_bytes());
                self.records.extend([UDP, HOPS]);
                for ip in [from, to] {
                    let ip = match ip {
                        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
                        IpAddr::V6(v6) => v6,
                    };
                    self.records.extend(ip.octets());
                }
            }
        }
        // As rdma_rxe sends it: no UDP checksum.
        for half in [source.port(), destination.port(), udp, 0] {
            self.records.extend(half.to_be_bytes());
        }
        self.records.extend(datagram);
    }

    /// Writes what was recorded. After an error the capture is over.
    ///
    /// # Errors
    /// As `write`.
    pub fn flush(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        // Hot calls come here, with locks: no cancellation point.
        dat_cancel::defer(|| self.file.write_all(&self.records))?;
        self.records.clear();
        Ok(())
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Capture {
    /// A forked child's copy would keep the file locked.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Of an IPv4 header.
fn checksum(header: &[u8]) -> u16 {
    let words = header
        .chunks(2)
        .map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1]));
    let sum: u32 = words.sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_stand_in_the_file_as_on_the_wire() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.%p.pcap");
        let mut capture = Capture::create(&path).unwrap();
        assert!(
            capture
                .path()
                .to_string_lossy()
                .contains(&std::process::id().to_string())
        );
        // roce-wire vector A: an ACK of rdma_rxe with identification 0xde67 and its header checksum.
        let ack = [
            0x11, 0, 0xff, 0xff, 0, 0, 0, 0x1e, 0, 0x2d, 0xb6, 0xca, 0x1f, 0, 0, 1, 0x47, 0x91,
            0x03, 0xd6,
        ];
        let (rxe, us) = (
            "10.9.0.1:58034".parse().unwrap(),
            "10.9.0.2:4791".parse().unwrap(),
        );
        capture.received(rxe, us, 0, &ack);
        capture.sent(
            "[::1]:4791".parse().unwrap(),
            "[::1]:4791".parse().unwrap(),
            20,
            &[ack, ack].concat(),
        );
        capture.flush().unwrap();
        let bytes = std::fs::read(capture.path()).unwrap();
        assert_eq!(bytes.len(), 24 + (16 + 48) + 2 * (16 + 68));
        assert_eq!(bytes[..4], [0x4d, 0x3c, 0xb2, 0xa1]);
        let header = [
            0x45, 0, 0, 0x30, 0xde, 0x67, 0x40, 0, 0x40, 0x11, 0x48, 0x41, 10, 9, 0, 1, 10, 9, 0,
            2, 0xe2, 0xb2, 0x12, 0xb7, 0, 0x1c, 0, 0,
        ];
        assert_eq!(bytes[40..68], header);
        assert_eq!(bytes[68..88], ack);
        assert_eq!(bytes[104..112], [0x60, 0, 0, 0, 0, 28, 17, 64]);
    }

    #[test]
    fn a_file_has_one_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.pcap");
        let first = Capture::create(&path).unwrap();
        assert_eq!(
            Capture::create(&path).unwrap_err().kind(),
            ErrorKind::WouldBlock
        );
        drop(first);
        Capture::create(&path).unwrap();
    }
}
