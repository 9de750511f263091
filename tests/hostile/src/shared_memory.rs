//! The shared memory of a channel of this process, for an attack on its other end.

use std::collections::HashSet;
use std::fs::read_to_string;
use std::os::fd::RawFd;
use std::ptr::null_mut;

/// Name of the memory in `/proc/PID/maps`.
const NAME: &str = "memfd:dat-rs-near";
/// Bytes of indices and flags before the data of each ring.
const CONTROL: usize = 4096;
/// Distance of the indices and flags.
const LINE: usize = 128;

/// Returns how many mappings of shared memory the process `pid` has.
///
/// # Panics
/// When there is no such process.
#[must_use]
pub fn mappings(pid: u32) -> usize {
    let maps = read_to_string(format!("/proc/{pid}/maps")).expect("the process runs");
    maps.lines().filter(|line| line.contains(NAME)).count()
}

/// A part of a file that is mapped here once more, whatever the library does with its own mapping.
#[derive(Debug)]
struct Part {
    /// Position in the file.
    offset: usize,
    base: usize,
    length: usize,
}

/// The memory of both rings of a channel.
#[derive(Debug)]
pub struct SharedMemory {
    parts: Vec<Part>,
    /// Bytes of data of a ring.
    ring: usize,
}

impl SharedMemory {
    /// Maps the memory of a channel that this process uses now. `copies` contains the addresses of such mappings, and gets those of this
    /// one. Returns `None` if there is no channel.
    pub fn find(copies: &mut HashSet<usize>) -> Option<Self> {
        let maps = read_to_string("/proc/self/maps").ok()?;
        let mut found: Option<u64> = None;
        let mut parts = Vec::new();
        for line in maps.lines().filter(|line| line.contains(NAME)) {
            let mut words = line.split_whitespace();
            let (from, to) = words.next()?.split_once('-')?;
            let offset = words.nth(1)?;
            let inode = words.nth(1)?.parse().ok()?;
            let number = |text| usize::from_str_radix(text, 16).ok();
            let (from, to, offset) = (number(from)?, number(to)?, number(offset)?);
            if copies.contains(&from) || found.is_some_and(|found| found != inode) {
                continue;
            }
            found = Some(inode);
            parts.push(Part::copy(offset, from, to - from)?);
        }
        copies.extend(parts.iter().map(|part| part.base));
        let first = parts.iter().find(|part| part.offset == 0)?;
        let ring = first.length - CONTROL;
        Some(Self { parts, ring })
    }

    /// Returns the number of bytes of both rings.
    #[must_use]
    pub const fn length(&self) -> usize {
        2 * (CONTROL + self.ring)
    }

    /// Returns the position of index or flag `line` of ring `ring`.
    #[must_use]
    pub const fn line(&self, ring: usize, line: usize) -> usize {
        ring * (CONTROL + self.ring) + line * LINE
    }

    /// Returns the position of the record that would begin at multiple `slot` of 64, in either ring.
    #[must_use]
    pub const fn record(&self, slot: usize) -> usize {
        let slots = self.ring / 64;
        let ring = slot / slots % 2;
        ring * (CONTROL + self.ring) + CONTROL + slot % slots * 64
    }

    /// Returns the position of the record of ring `ring` that begins when so many bytes have passed through it.
    #[must_use]
    pub const fn record_after(&self, ring: usize, bytes: u64) -> usize {
        let slot = bytes as usize % self.ring / 64;
        self.record(ring * (self.ring / 64) + slot)
    }

    /// Returns the address of the `count` bytes at `position`.
    fn at(&self, position: usize, count: usize) -> *mut u8 {
        let inside =
            |part: &&Part| position >= part.offset && position + count <= part.offset + part.length;
        let part = self.parts.iter().find(inside).expect("within the rings");
        (part.base + position - part.offset) as *mut u8
    }

    /// Returns the word at `position`, a multiple of 8.
    #[must_use]
    pub fn word(&self, position: usize) -> u64 {
        let at = self.at(position, 8);
        // SAFETY: mapped for ever, aligned, and without a reference to it.
        unsafe { at.cast::<u64>().read_volatile() }
    }

    /// Writes `bytes` at `position`.
    pub fn write(&self, position: usize, bytes: &[u8]) {
        let at = self.at(position, bytes.len());
        for (index, byte) in bytes.iter().enumerate() {
            // SAFETY: mapped for ever, and without a reference to it.
            unsafe { at.add(index).write_volatile(*byte) };
        }
    }
}

impl Part {
    /// Maps the pages at `from` once more. They are shared, so the copy shows the same bytes. `None` if they are gone meanwhile.
    fn copy(offset: usize, from: usize, length: usize) -> Option<Self> {
        let old = from as *mut libc::c_void;
        // SAFETY: a length of 0 leaves the old mapping as it is.
        let new = unsafe { libc::mremap(old, 0, length, libc::MREMAP_MAYMOVE, null_mut::<u8>()) };
        let base = new as usize;
        (new != libc::MAP_FAILED).then_some(Self {
            offset,
            base,
            length,
        })
    }
}

/// Sends bytes on every connection of this process to another one of this host, as wake-ups that were not asked for.
pub fn flood_connections(bytes: &[u8]) {
    for fd in local_sockets() {
        let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        // SAFETY: reads `bytes` only.
        unsafe { libc::send(fd, bytes.as_ptr().cast(), bytes.len(), flags) };
    }
}

/// Shuts the connections of packets to other processes of this host down, and leaves those that show the end of this process.
pub fn shut_connections() {
    for fd in local_sockets() {
        if option(fd, libc::SO_TYPE) == Some(libc::SOCK_SEQPACKET) {
            // SAFETY: a plain system call.
            unsafe { libc::shutdown(fd, libc::SHUT_RDWR) };
        }
    }
}

/// Returns the UNIX sockets of this process.
fn local_sockets() -> impl Iterator<Item = RawFd> {
    (3..256).filter(|fd| option(*fd, libc::SO_DOMAIN) == Some(libc::AF_UNIX))
}

fn option(fd: RawFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut value: libc::c_int = 0;
    let mut length = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: writes to `value` and `length` only.
    let got = unsafe {
        let (value, length) = ((&raw mut value).cast(), &raw mut length);
        libc::getsockopt(fd, libc::SOL_SOCKET, name, value, length)
    };
    (got == 0).then_some(value)
}
