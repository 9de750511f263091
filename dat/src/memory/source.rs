//! Memory that a region can be made of.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::any::Any;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::error::{Error, Result};

/// Alignment of allocated memory: a page, so that no other heap memory shares a page that a peer may access.
const ALIGN: usize = 4096;
/// Size of a huge page, of which mappings have whole ones.
const HUGE: usize = 2 << 20;
/// Length from which allocated memory has at least one whole huge page, wherever it begins.
const LARGE: usize = 2 * HUGE;

/// Memory for a region ([`Pz::register`](crate::Pz::register)): allocated, mapped, or the program's own. It is given up to the region:
/// adapters and peers may access the bytes while they are registered.
///
/// ```
/// use udapl::{Access, Error, Ia, Memory};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let pz = Ia::open("softrxe-lo")?.create_pz()?;
/// // Huge pages where the administrator has reserved some, else usual pages.
/// let memory = match Memory::huge(1 << 21) {
///     Ok(huge) => huge,
///     Err(Error::OutOfMemory { .. }) => Memory::mapped(1 << 21)?,
///     Err(error) => return Err(error),
/// };
/// let region = pz.register(memory, Access::ALL)?;
/// assert_eq!(region.len(), 1 << 21);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Memory(Kind);

#[derive(Debug)]
enum Kind {
    Allocated(NonNull<u8>, Layout),
    Mapped(NonNull<u8>, usize),
    /// Other processes may map the file.
    File(NonNull<u8>, usize),
    Owned(NonNull<u8>, usize),
    /// The owner promised that the memory outlives the region.
    Borrowed(NonNull<u8>, usize),
    /// A range of another region.
    Of(
        NonNull<u8>,
        usize,
        #[expect(dead_code, reason = "keeps the registration")] Arc<dyn Any + Send + Sync>,
    ),
}

// SAFETY: the value owns its memory, and gives out no reference to it.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Allocates zeroed memory, at the beginning of a page.
    ///
    /// For 4 MiB and more the kernel is asked for huge pages (`MADV_HUGEPAGE`), with which two processes of one host copy a quarter more in a second.
    /// It takes usual pages where it has no huge ones.
    ///
    /// # Errors
    /// [`Error::Length`] for no bytes; [`Error::OutOfMemory`].
    pub fn zeroed(bytes: usize) -> Result<Self> {
        if bytes >= LARGE {
            let memory = Self::mapped(bytes)?;
            prefer_huge_pages(&memory);
            return Ok(memory);
        }
        let layout = Layout::from_size_align(checked(bytes)?, ALIGN)
            .map_err(|_| Error::OutOfMemory { bytes })?;
        // SAFETY: the layout has a size.
        let at = NonNull::new(unsafe { alloc_zeroed(layout) });
        at.map(|at| Self(Kind::Allocated(at, layout)))
            .ok_or(Error::OutOfMemory { bytes })
    }

    /// Maps zeroed memory of whole pages (mmap).
    ///
    /// # Errors
    /// As [`Memory::zeroed`].
    pub fn mapped(bytes: usize) -> Result<Self> {
        let at = map(bytes, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1)?;
        Ok(Self(Kind::Mapped(at, bytes)))
    }

    /// Maps zeroed huge pages, which need fewer entries of the adapter's and the processor's tables. The administrator reserves them
    /// (`/proc/sys/vm/nr_hugepages`).
    ///
    /// # Errors
    /// As [`Memory::zeroed`]; [`Error::OutOfMemory`] also if no huge pages are reserved.
    pub fn huge(bytes: usize) -> Result<Self> {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_HUGETLB;
        let whole = checked(bytes)?.checked_next_multiple_of(HUGE);
        let whole = whole.ok_or(Error::OutOfMemory { bytes })?;
        Ok(Self(Kind::Mapped(map(whole, flags, -1)?, whole)))
    }

    /// Maps the first `bytes` of a file that other processes may map too. The file must keep that size: an access beyond its end
    /// ends the process.
    ///
    /// ```
    /// use udapl::{Access, Ia, Memory};
    /// # use std::os::unix::fs::FileExt;
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// let file = tempfile::tempfile().expect("a file"); // or one of /dev/shm that other processes map too
    /// file.set_len(4096).expect("it has room");
    /// let region = pz.register(Memory::file(&file, 4096)?, Access::ALL)?;
    /// region.write(0, b"hello");
    /// # let mut bytes = [0; 5];
    /// # file.read_exact_at(&mut bytes, 0).expect("read");
    /// # assert_eq!(&bytes, b"hello");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Memory::zeroed`]; [`Error::System`] if the file cannot be mapped, as one that is not open for reading and writing.
    pub fn file(file: &File, bytes: usize) -> Result<Self> {
        let at = map(bytes, libc::MAP_SHARED, file.as_raw_fd())?;
        Ok(Self(Kind::File(at, bytes)))
    }

    /// Uses memory of the caller, for instance of a device or of another library.
    ///
    /// ```
    /// use std::ptr::NonNull;
    /// use udapl::{Access, Ia, Memory};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// let bytes: &'static mut [u8] = Box::leak(vec![7; 4096].into_boxed_slice());
    /// let at = NonNull::from(bytes).cast();
    /// // SAFETY: the memory is never freed, and the program accesses it through the region only.
    /// let memory = unsafe { Memory::borrowed(at, 4096)? };
    /// assert_eq!(pz.register(memory, Access::ALL)?.load(4095), 7);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Length`] for no bytes.
    ///
    /// # Safety
    /// The memory stays mapped until the region and its clones are dropped and their posts are complete. Until then no Rust reference
    /// to it is used, and other code accesses it by atomics only.
    pub unsafe fn borrowed(at: NonNull<u8>, bytes: usize) -> Result<Self> {
        Ok(Self(Kind::Borrowed(at, checked(bytes)?)))
    }

    /// The memory of another registration, which lives as long as `owner`.
    pub(crate) fn of((at, bytes): (NonNull<u8>, usize), owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self(Kind::Of(at, bytes, owner))
    }

    /// Returns whether something else than the region may access the bytes.
    pub(crate) fn is_shared(&self) -> bool {
        matches!(self.0, Kind::File(..) | Kind::Borrowed(..) | Kind::Of(..))
    }

    /// Returns the first byte and the number of bytes.
    pub(crate) fn range(&self) -> (NonNull<u8>, usize) {
        match &self.0 {
            Kind::Allocated(at, layout) => (*at, layout.size()),
            Kind::Mapped(at, bytes)
            | Kind::File(at, bytes)
            | Kind::Owned(at, bytes)
            | Kind::Borrowed(at, bytes)
            | Kind::Of(at, bytes, _) => (*at, *bytes),
        }
    }
}

fn checked(bytes: usize) -> Result<usize> {
    match bytes {
        0 => Err(Error::Length {
            what: "memory",
            length: bytes,
            most: isize::MAX as usize,
        }),
        _ => Ok(bytes),
    }
}

fn map(bytes: usize, flags: i32, file: i32) -> Result<NonNull<u8>> {
    let rights = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let at = unsafe { libc::mmap(ptr::null_mut(), checked(bytes)?, rights, flags, file, 0) };
    match NonNull::new(at.cast::<u8>()) {
        Some(start) if at != libc::MAP_FAILED => Ok(start),
        _ => Err(match io::Error::last_os_error() {
            source if file != -1 && source.kind() != io::ErrorKind::OutOfMemory => Error::System {
                what: "map a file, which has to be open for reading and writing",
                source,
            },
            _ => Error::OutOfMemory { bytes },
        }),
    }
}

/// Asks the kernel for huge pages. They are present once the memory is registered, so this makes it no larger.
fn prefer_huge_pages(memory: &Memory) {
    let (at, bytes) = memory.range();
    // SAFETY: a mapping of this value, whose contents do not change. A kernel without huge pages refuses, which changes nothing.
    let _ = unsafe { libc::madvise(at.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
}

/// The bytes of the vector, which keep their contents. An empty one cannot be registered.
impl From<Vec<u8>> for Memory {
    fn from(bytes: Vec<u8>) -> Self {
        bytes.into_boxed_slice().into()
    }
}

/// The bytes of the box, which keep their contents. An empty one cannot be registered.
impl From<Box<[u8]>> for Memory {
    fn from(bytes: Box<[u8]>) -> Self {
        let length = bytes.len();
        let at = Box::into_raw(bytes).cast::<u8>();
        Self(Kind::Owned(
            NonNull::new(at).unwrap_or(NonNull::dangling()),
            length,
        ))
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match &self.0 {
            // SAFETY: allocated with this layout, and registered no more.
            Kind::Allocated(at, layout) => unsafe { dealloc(at.as_ptr(), *layout) },
            Kind::Mapped(at, bytes) | Kind::File(at, bytes) => {
                // SAFETY: a mapping of this value.
                unsafe { libc::munmap(at.as_ptr().cast(), *bytes) };
            }
            Kind::Owned(at, bytes) => {
                let bytes = ptr::slice_from_raw_parts_mut(at.as_ptr(), *bytes);
                // SAFETY: the parts of a box.
                drop(unsafe { Box::from_raw(bytes) });
            }
            Kind::Borrowed(..) | Kind::Of(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the flags of the mapping that contains `at`.
    fn flags(at: usize) -> String {
        let maps = std::fs::read_to_string("/proc/self/smaps").expect("the mappings");
        let mut inside = false;
        for line in maps.lines() {
            let range = line
                .split_once(' ')
                .and_then(|(range, _)| range.split_once('-'));
            let bound = |text: &str| usize::from_str_radix(text, 16).ok();
            if let Some((Some(from), Some(to))) = range.map(|(a, b)| (bound(a), bound(b))) {
                inside = (from..to).contains(&at);
            }
            if inside && let Some(flags) = line.strip_prefix("VmFlags:") {
                return flags.to_owned();
            }
        }
        panic!("{at:#x} is not mapped");
    }

    #[test]
    #[cfg_attr(miri, ignore = "miri has no madvise")]
    fn large_memory_is_zero_and_asks_for_huge_pages() {
        let huge_pages = "/sys/kernel/mm/transparent_hugepage/enabled";
        let supported = std::path::Path::new(huge_pages).exists();
        for (bytes, wanted) in [(LARGE - 1, false), (LARGE, true), (LARGE + 5, true)] {
            let memory = Memory::zeroed(bytes).expect("memory");
            let (at, length) = memory.range();
            assert_eq!(length, bytes);
            assert_eq!(at.as_ptr() as usize % ALIGN, 0);
            // SAFETY: the memory is this test's, and initialised.
            let all = unsafe { std::slice::from_raw_parts(at.as_ptr(), length) };
            assert!(all.iter().all(|byte| *byte == 0));
            let asked = flags(at.as_ptr() as usize)
                .split(' ')
                .any(|flag| flag == "hg");
            if supported {
                assert_eq!(asked, wanted, "{bytes} bytes");
            }
        }
    }
}
