//! Memory of a channel: a sealed memfd, and its mapping.
//!
//! The file has a part for each ring: a page of indices, then the data. The mapping has the data of each part twice in a
//! row, so a record that begins near the end goes on in the second copy. The creator of the memory chooses each ring's secret.

use std::ffi::CStr;
use std::io;
use std::mem::zeroed;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::{NonNull, null_mut};

use dat_os::signals::while_growing;

use crate::layout::CONTROL;
use crate::random::random;
use crate::ring::Lines;
use crate::sync::Ordering;

const NAME: &CStr = c"dat-rs-near";
/// The length can never change, so no access beyond the end (SIGBUS) is possible.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
/// Smallest and largest ring.
const SIZES: std::ops::RangeInclusive<usize> = 4096..=16 << 20;

/// Why memory cannot be a channel's.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    /// The ring's size is not one that both ends can map.
    #[error("a ring of {0} bytes: its size must be a power of two from 4096 to 16777216")]
    Size(usize),
    /// The memory has another length than the agreed ring needs.
    #[error("the peer's memory has {found} bytes where its ring needs {wanted}")]
    Length {
        /// Length of the memory.
        found: u64,
        /// Length for the agreed size.
        wanted: u64,
    },
    /// The peer could still shorten the memory, which would end this process by SIGBUS.
    #[error(
        "the peer's memory has the seals {found:#x} without {SEALS:#x} (F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_SEAL)"
    )]
    Seals {
        /// Seals of the memory.
        found: i32,
    },
    /// A system call failed.
    #[error(
        "{call} for a channel's memory: {error}; see `ulimit -n`, `ulimit -v` and vm.max_map_count"
    )]
    Call {
        /// Name of the system call.
        call: &'static str,
        /// Its error.
        error: io::Error,
    },
}

/// Returns the error of the system call that failed last in this thread.
fn failed(call: &'static str) -> MapError {
    let error = io::Error::last_os_error();
    MapError::Call { call, error }
}

/// Returns the length of the file for `rings` rings of `size` bytes.
const fn file_length(rings: usize, size: usize) -> usize {
    rings * (CONTROL + size)
}

/// Returns the length of a ring's mapping.
const fn part_length(size: usize) -> usize {
    CONTROL + 2 * size
}

/// Memory of a channel in this process. It is unmapped when dropped.
#[derive(Debug)]
pub(crate) struct Map {
    start: NonNull<u8>,
    rings: usize,
    size: usize,
}

// SAFETY: a range of mapped memory, which may be used and unmapped in any thread. All accesses are through atomics, or through the raw
// pointers that a Sender or Receiver returns, neither of which is Sync.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    /// Creates sealed memory for `rings` rings of `size` bytes, and maps it.
    ///
    /// # Errors
    /// [`MapError::Size`], [`MapError::Call`].
    pub(crate) fn create(rings: usize, size: usize) -> Result<(Self, OwnedFd), MapError> {
        check_size(size)?;
        let memory = memfd(file_length(rings, size))?;
        let map = Self::new(&memory, rings, size)?;
        for ring in 0..rings {
            let [secret] = random().map_err(|error| MapError::Call {
                call: "getrandom",
                error,
            })?;
            // SAFETY: the control page is mapped, and has only atomics.
            let lines = unsafe { map.ring(ring).0.as_ref() };
            lines.secret.store(secret, Ordering::Relaxed);
        }
        Ok((map, memory))
    }

    /// Maps `memory`, which a peer created, after it has checked its seals and length.
    ///
    /// # Errors
    /// [`MapError`].
    pub(crate) fn adopt(memory: &OwnedFd, rings: usize, size: usize) -> Result<Self, MapError> {
        check_size(size)?;
        check_sealed(memory, file_length(rings, size) as u64)?;
        Self::new(memory, rings, size)
    }

    fn new(memory: &OwnedFd, rings: usize, size: usize) -> Result<Self, MapError> {
        let length = rings * part_length(size);
        let (rights, kind) = if cfg!(miri) {
            (libc::PROT_READ | libc::PROT_WRITE, 0)
        } else {
            (libc::PROT_NONE, libc::MAP_NORESERVE)
        };
        let kind = kind | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: reserves addresses that nothing uses.
        let start = unsafe { libc::mmap(null_mut(), length, rights, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        let Some(start) = NonNull::new(start.cast::<u8>()) else {
            return Err(MapError::Size(size));
        };
        // Dropping it unmaps the range if a step below fails.
        let map = Self { start, rings, size };
        // Miri maps no file. There both ends of a looped channel use this memory. A record that goes on in the second copy is read there too.
        if cfg!(miri) {
            return Ok(map);
        }
        for ring in 0..rings {
            let (at, offset) = (ring * part_length(size), ring * (CONTROL + size));
            map.place(memory, at, offset, CONTROL + size)?;
            map.place(memory, at + CONTROL + size, offset + CONTROL, size)?;
        }
        // A forked child has no use for the memory. A core file need not have the data that was on its way.
        for advice in [libc::MADV_DONTFORK, libc::MADV_DONTDUMP] {
            // SAFETY: the range is this map's.
            if unsafe { libc::madvise(start.as_ptr().cast(), length, advice) } != 0 {
                return Err(failed("madvise"));
            }
        }
        Ok(map)
    }

    /// Maps `length` bytes of the file from `offset` on at `at` of the reserved range.
    fn place(
        &self,
        memory: &OwnedFd,
        at: usize,
        offset: usize,
        length: usize,
    ) -> Result<(), MapError> {
        debug_assert!(at + length <= self.rings * part_length(self.size));
        // SAFETY: replaces a part of the range that `new` reserved; nothing points there yet.
        let placed = unsafe {
            libc::mmap(
                self.start.as_ptr().add(at).cast(),
                length,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                memory.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if placed == libc::MAP_FAILED {
            return Err(failed("mmap"));
        }
        Ok(())
    }

    /// Returns where indices and data of ring number `ring` are.
    ///
    /// # Panics
    /// If there is no such ring.
    pub(crate) fn ring(&self, ring: usize) -> (NonNull<Lines>, NonNull<u8>) {
        assert!(ring < self.rings);
        // SAFETY: the parts of all rings are within the mapping.
        unsafe {
            let part = self.start.add(ring * part_length(self.size));
            (part.cast(), part.add(CONTROL))
        }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        let length = self.rings * part_length(self.size);
        // SAFETY: the range is this map's, and senders and receivers keep the map alive.
        unsafe { libc::munmap(self.start.as_ptr().cast(), length) };
    }
}

/// Checks that a ring can have `size` bytes.
fn check_size(size: usize) -> Result<(), MapError> {
    if size.is_power_of_two() && SIZES.contains(&size) {
        Ok(())
    } else {
        Err(MapError::Size(size))
    }
}

/// Creates a memfd of `length` bytes whose length is sealed.
fn memfd(length: usize) -> Result<OwnedFd, MapError> {
    if cfg!(miri) {
        let nothing = std::fs::File::open("/dev/null").map_err(|_| failed("open"))?;
        return Ok(nothing.into());
    }
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: plain system calls; the name lives long enough. Kernels before 6.3 do not know MFD_NOEXEC_SEAL.
    let fd = unsafe {
        match libc::memfd_create(NAME.as_ptr(), flags | libc::MFD_NOEXEC_SEAL) {
            ..0 => libc::memfd_create(NAME.as_ptr(), flags),
            fd => fd,
        }
    };
    if fd < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: a new descriptor without another owner.
    let memory = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: a plain system call.
    if while_growing(|| unsafe { libc::ftruncate(fd, length as libc::off_t) }) != 0 {
        return Err(failed("ftruncate"));
    }
    // SAFETY: a plain system call.
    if unsafe { libc::fcntl(fd, libc::F_ADD_SEALS, SEALS) } != 0 {
        return Err(failed("fcntl F_ADD_SEALS"));
    }
    Ok(memory)
}

/// Checks that `memory` has `wanted` bytes for ever.
fn check_sealed(memory: &OwnedFd, wanted: u64) -> Result<(), MapError> {
    let fd = memory.as_raw_fd();
    // SAFETY: a plain system call, which fails for a descriptor of anything but memory.
    let found = unsafe { libc::fcntl(fd, libc::F_GET_SEALS) };
    if found < 0 {
        return Err(failed("fcntl F_GET_SEALS"));
    }
    if found & SEALS != SEALS {
        return Err(MapError::Seals { found });
    }
    // SAFETY: all-zero is a valid stat.
    let mut status: libc::stat = unsafe { zeroed() };
    // SAFETY: writes to `status` only.
    if unsafe { libc::fstat(fd, &raw mut status) } != 0 {
        return Err(failed("fstat"));
    }
    let found = status.st_size.cast_unsigned();
    if found != wanted {
        return Err(MapError::Length { found, wanted });
    }
    Ok(())
}
