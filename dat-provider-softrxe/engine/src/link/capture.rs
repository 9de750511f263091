//! Writes the packets that an engine sends and receives to a file that Wireshark reads: classic pcap with nanoseconds, bare IP
//! packets. IP and UDP headers are reconstructed. A socket does not show the IPv4 identification of received packets; the ICRC
//! reveals it.

use std::fs::{File, Metadata, OpenOptions, Permissions, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use dat_os::descriptor::above_streams;
use dat_os::signals::while_growing;
use softrxe_proto::wire::icrc::{self, Flow, Verdict};

/// Nanoseconds, version 2.4, whole packets, LINKTYPE_RAW.
const FILE_HEADER: [u32; 6] = [0xa1b2_3c4d, 0x0004_0002, 0, 0, 65_535, 101];
const UDP: u8 = 17;
const HOPS: u8 = 64;
const DONT_FRAGMENT: u16 = 0x4000;

/// A capture in progress. Records reach the file by [`Capture::flush`].
#[derive(Debug)]
pub(crate) struct Capture {
    file: File,
    path: PathBuf,
    records: Vec<u8>,
    /// Length of the file up to the last whole record.
    written: u64,
}

impl Capture {
    /// Creates or truncates the file; `%p` in its name stands for the process id. Only its owner can read it, as it contains the
    /// application's data.
    ///
    /// # Errors
    /// As `open`; `WouldBlock` if another process is writing it; `InvalidInput` unless it is a regular file of this user with one name.
    /// Through a link, or a file that another user made, another user could choose the file or read it.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let name = path
            .to_string_lossy()
            .replace("%p", &std::process::id().to_string());
        let path = PathBuf::from(name);
        let file = open(&path).map_err(|error| match error.raw_os_error() {
            Some(libc::ELOOP) => refused("it is a symbolic link"),
            Some(libc::ENXIO) => refused("it is no regular file"),
            _ => error,
        })?;
        check(&file.metadata()?)?;
        file.set_permissions(Permissions::from_mode(PRIVATE))?;
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
            written: 0,
        };
        capture.flush().inspect_err(|_| capture.remove())?;
        Ok(capture)
    }

    /// Removes the file, which has no content. It is still this capture's.
    fn remove(&self) {
        let _ = std::fs::remove_file(&self.path);
    }

    /// Records a sent run of datagrams of `segment` bytes, of which the last may be shorter.
    pub(crate) fn sent(
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

    /// Records a received datagram; `index` is its index in a coalesced run.
    pub(crate) fn received(
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
        // No UDP checksum, like rdma_rxe.
        for half in [source.port(), destination.port(), udp, 0] {
            self.records.extend(half.to_be_bytes());
        }
        self.records.extend(datagram);
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the records to the file. After an error the capture has ended, and the file has whole records.
    ///
    /// # Errors
    /// As `write`.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if self.records.is_empty() {
            return Ok(());
        }
        // Posts and polls call this with locks held: it must not be a cancellation point.
        dat_os::cancel::defer(|| {
            while_growing(|| self.file.write_all(&self.records)).inspect_err(|_| {
                let _ = self.file.set_len(self.written);
            })
        })?;
        self.written += self.records.len() as u64;
        self.records.clear();
        Ok(())
    }
}

impl Drop for Capture {
    /// Unlocks the file: a forked child's copy of the descriptor would keep it locked.
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

/// Mode of a capture.
const PRIVATE: u32 = 0o600;

/// Opens an existing file, or creates one. One call for both would not do: the kernel may refuse it for files of other users in
/// shared folders, without a reason.
fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).mode(PRIVATE);
    // With O_NONBLOCK a FIFO without a reader is an error instead of a wait.
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY);
    let file = match options.open(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => options.create_new(true).open(path),
        opened => opened,
    }?;
    above_streams(file.into()).map(File::from)
}

fn refused(reason: &str) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, reason.to_owned())
}

/// Checks that an open file may be written.
fn check(file: &Metadata) -> io::Result<()> {
    // SAFETY: a plain system call that cannot fail.
    let own = unsafe { libc::geteuid() };
    if !file.is_file() {
        return Err(refused("it is no regular file"));
    }
    if file.uid() != own {
        let owner = file.uid();
        let reason = format!("it belongs to user {owner}, and this process is user {own}'s");
        return Err(refused(&reason));
    }
    if file.nlink() != 1 {
        return Err(refused("the file has another name (a hard link)"));
    }
    Ok(())
}

/// Returns the checksum of an IPv4 header.
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
    use std::os::fd::{AsRawFd, FromRawFd};

    use super::*;

    #[test]
    fn packets_are_recorded_like_on_the_wire() {
        let folder = tempfile::tempdir().unwrap();
        let name = |process: &str| folder.path().join(format!("x.{process}.pcap"));
        let mut capture = Capture::create(&name("%p")).unwrap();
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
        let bytes = std::fs::read(name(&std::process::id().to_string())).unwrap();
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
    fn a_file_that_cannot_grow_keeps_whole_records() {
        // A file in memory that is sealed at 100 bytes, as a disk that is full.
        // SAFETY: a name that ends with a zero; the descriptor is owned by the file alone.
        let file = unsafe {
            let fd = libc::memfd_create(c"capture".as_ptr(), libc::MFD_ALLOW_SEALING);
            File::from_raw_fd(fd)
        };
        file.set_len(100).unwrap();
        // SAFETY: a plain system call.
        let sealed = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, libc::F_SEAL_GROW) };
        assert_eq!(sealed, 0);
        let mut capture = Capture {
            file: file.try_clone().unwrap(),
            path: PathBuf::new(),
            records: vec![1; 24],
            written: 0,
        };
        capture.flush().unwrap();
        capture.records.extend([2; 200]);
        capture.flush().unwrap_err();
        assert_eq!(file.metadata().unwrap().len(), 24);
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

    #[test]
    fn only_a_private_file_of_this_user_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let refusal = |name: &str| Capture::create(&at(name)).unwrap_err().to_string();
        std::fs::write(at("precious"), b"precious").unwrap();
        std::os::unix::fs::symlink(at("precious"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("new"), at("dangling")).unwrap();
        std::fs::hard_link(at("precious"), at("second")).unwrap();
        let fifo = std::ffi::CString::new(at("fifo").to_str().unwrap()).unwrap();
        // SAFETY: the path ends with a zero.
        assert_eq!(unsafe { libc::mkfifo(fifo.as_ptr(), 0o666) }, 0);
        assert_eq!(refusal("link"), "it is a symbolic link");
        assert_eq!(refusal("dangling"), "it is a symbolic link");
        assert_eq!(refusal("second"), "the file has another name (a hard link)");
        assert_eq!(refusal("fifo"), "it is no regular file");
        let reader = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(at("fifo"))
            .unwrap();
        assert_eq!(refusal("fifo"), "it is no regular file");
        drop(reader);
        let null = Capture::create(Path::new("/dev/null")).unwrap_err();
        assert_eq!(null.kind(), ErrorKind::InvalidInput);
        assert!(!at("new").exists());
        assert_eq!(std::fs::read(at("precious")).unwrap(), b"precious");
        // An existing file of this user that all users may read is private afterwards.
        let mode = |name: &str| std::fs::metadata(at(name)).unwrap().mode() & 0o777;
        std::fs::write(at("old"), [0; 1000]).unwrap();
        std::fs::set_permissions(at("old"), Permissions::from_mode(0o644)).unwrap();
        for name in ["old", "fresh"] {
            Capture::create(&at(name)).unwrap();
            assert_eq!(mode(name), 0o600, "{name}");
            assert_eq!(std::fs::metadata(at(name)).unwrap().len(), 24);
        }
    }
}
