//! Registered memory.

use std::marker::PhantomData;
use std::ops::{Deref, Range};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use dat_abi::types::DAT_LMR_COOKIE_SIZE;
use dat_abi::v2_0::types::DatLmrParam;
use dat_core::flags::VaType;
use dat_core::iov::LmrTriplet;

use super::copy;
use super::limbo::Dropped;
use super::lmr::{Kind, Lmr};
use super::remote::Remote;
use super::source::Memory;
use crate::Access;
use crate::error::{Error, Result};
use crate::ia::Ia;
use crate::pz::Pz;
use crate::sys::{Handle, call, query};

/// Registered memory. The adapter, and peers that have its key, may read and write it while the program runs, so a program copies
/// bytes in and out. Clones are the same memory. A region that is dropped while it is posted stays registered until the posts are
/// complete.
///
/// ```
/// use udapl::{Access, Ia};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let pz = Ia::open("softrxe-lo")?.create_pz()?;
/// let region = pz.allocate(4096, Access::ALL)?; // peers that have the key may read and write it
/// region.write(100, b"hello");
/// let mut bytes = [0; 5];
/// region.read(100, &mut bytes);
/// assert_eq!(&bytes, b"hello");
/// let key = region.remote(100..105); // to be sent to a peer
/// let segment = region.slice(100..105); // for a post of this side
/// assert_eq!(key.length, 5);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Region {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    /// Taken when the region is dropped.
    lmr: Option<Arc<Lmr>>,
    pub(crate) triplet_context: u32,
    /// Handle of the protection zone, for the checks of posts.
    zone: usize,
    /// The same, or [`READ_ONLY`].
    receive_zone: usize,
    /// A segment of the region was made, to which a post may refer.
    posted: AtomicBool,
    /// Windows that were bound to the region.
    windows: Mutex<Vec<Weak<WindowLife>>>,
}

/// Lives as long as a window. Its weak references are left where the window may still be open.
#[derive(Debug, Default)]
pub(crate) struct WindowLife;

impl Inner {
    /// Marks the region as posted.
    #[inline]
    pub(crate) fn mark_posted(&self) {
        self.posted.store(true, Ordering::Relaxed);
    }

    /// Records that a bind of a window to the region was posted. A later bind elsewhere may be flushed, and then this one lasts.
    pub(crate) fn add_window(&self, window: &Arc<WindowLife>) {
        let mut windows = self.windows.lock().unwrap_or_else(PoisonError::into_inner);
        windows.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(window));
        windows.push(Arc::downgrade(window));
    }

    /// Returns whether a window that was bound to the region lives.
    fn has_window(&mut self) -> bool {
        let windows = self.windows.get_mut();
        let windows = windows.unwrap_or_else(PoisonError::into_inner);
        windows.retain(|window| window.strong_count() > 0);
        !windows.is_empty()
    }
}

impl Deref for Inner {
    type Target = Lmr;

    fn deref(&self) -> &Lmr {
        // Only `drop` takes it.
        self.lmr.as_deref().expect("the region is not dropped")
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        // Another registration of the same memory keeps it; the last one frees it.
        let Some(lmr) = self.lmr.take().and_then(Arc::into_inner) else {
            return;
        };
        let ia = lmr.pz.ia().clone();
        let lmr = Box::new(lmr);
        if *self.posted.get_mut() {
            ia.limbo().keep(lmr);
        } else if let Err(lmr) = lmr.free() {
            ia.limbo().keep(lmr);
        }
    }
}

/// What a provider knows of a region (dat_lmr_query).
///
/// ```
/// # use udapl::{Access, Ia};
/// # fn main() -> Result<(), udapl::Error> {
/// # let pz = Ia::open("softrxe-lo")?.create_pz()?;
/// let region = pz.allocate(100, Access::LOCAL_READ)?;
/// let info = region.info()?;
/// assert_eq!((info.length, info.access), (100, Access::LOCAL_READ));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegionInfo {
    /// Number of bytes.
    pub length: u64,
    /// Rights.
    pub access: Access,
    /// Bytes that the device registered, which may be more.
    pub registered_length: u64,
    /// First address that the device registered.
    pub registered_address: u64,
    /// Key for local segments.
    pub local_key: u32,
    /// Key for peers, or 0.
    pub remote_key: u32,
}

impl Region {
    fn new(lmr: Lmr) -> Self {
        Self {
            inner: Arc::new(Inner {
                triplet_context: lmr.lmr_context,
                zone: lmr.zone(),
                receive_zone: if lmr.access.contains(Access::LOCAL_WRITE) {
                    lmr.zone()
                } else {
                    READ_ONLY
                },
                lmr: Some(Arc::new(lmr)),
                posted: AtomicBool::new(false),
                windows: Mutex::default(),
            }),
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.inner.length
    }

    /// Returns false: a region has at least one byte.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Returns the rights.
    #[must_use]
    pub fn access(&self) -> Access {
        self.inner.access
    }

    /// Queries the region (dat_lmr_query).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn info(&self) -> Result<RegionInfo> {
        let param: DatLmrParam = query!(self.handle(), lmr_query(0x3ff));
        Ok(RegionInfo {
            length: param.length,
            access: Access::from_bits_retain(param.mem_priv),
            registered_length: param.registered_size,
            registered_address: param.registered_address,
            local_key: param.lmr_context,
            remote_key: param.rmr_context,
        })
    }

    #[inline]
    pub(crate) fn at(&self, offset: usize, count: usize) -> *mut u8 {
        let lmr: &Lmr = &self.inner;
        let end = offset.checked_add(count);
        assert!(
            end.is_some_and(|end| end <= lmr.length),
            "{count} bytes at {offset} are not inside a region of {}",
            lmr.length
        );
        // SAFETY: inside the memory.
        unsafe { lmr.at.as_ptr().add(offset) }
    }

    /// Copies `bytes` to `offset`. Peers and other threads that access the same bytes see each byte before or after the copy.
    ///
    /// # Panics
    /// If the range leaves the region.
    #[inline]
    pub fn write(&self, offset: usize, bytes: &[u8]) {
        // SAFETY: `at` checked the destination.
        unsafe { copy::write(self.at(offset, bytes.len()), bytes) }
    }

    /// Copies bytes from `offset`. If peers or other threads write them meanwhile, each byte is an old or a new one.
    ///
    /// # Panics
    /// If the range leaves the region.
    #[inline]
    pub fn read(&self, offset: usize, into: &mut [u8]) {
        // SAFETY: `at` checked the source.
        unsafe { copy::read(self.at(offset, into.len()), into) }
    }

    /// Returns a copy of a range.
    ///
    /// # Panics
    /// If the range leaves the region.
    #[must_use]
    pub fn to_vec(&self, range: Range<usize>) -> Vec<u8> {
        // Checked before memory is allocated.
        self.at(range.start, range.len());
        let mut bytes = vec![0; range.len()];
        self.read(range.start, &mut bytes);
        bytes
    }

    /// Loads one byte with acquire ordering, to wait for the last byte of an RDMA Write.
    ///
    /// # Panics
    /// If the byte is outside the region.
    #[must_use]
    pub fn load(&self, offset: usize) -> u8 {
        // SAFETY: inside the memory.
        unsafe { copy::load(self.at(offset, 1)) }
    }

    /// Returns the bytes themselves if nothing else can access them. Then this is the only clone, peers have no rights, each window that
    /// was ever bound to the region is dropped, and no post of the protection zone is outstanding.
    ///
    /// ```
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// let mut own = pz.allocate(64, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// own.get_mut().expect("nothing else can access it").fill(7);
    /// assert_eq!(own.load(63), 7);
    ///
    /// let mut opened = pz.allocate(64, Access::REMOTE_READ | Access::LOCAL_READ)?;
    /// assert!(opened.get_mut().is_none()); // peers may read it
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        let inner = Arc::get_mut(&mut self.inner)?;
        if inner.access.intersects(Access::REMOTE) || inner.has_window() {
            return None;
        }
        let posted = *inner.posted.get_mut();
        // No other registration of the same memory.
        let lmr = Arc::get_mut(inner.lmr.as_mut()?)?;
        if lmr.memory.is_shared() || posted && lmr.pz.ia().limbo().is_busy(inner.zone) {
            return None;
        }
        // SAFETY: exclusive for the life of the reference: no clone, no peer, no window, no post, and a new post needs a segment of `self`.
        Some(unsafe { std::slice::from_raw_parts_mut(lmr.at.as_ptr(), lmr.length) })
    }

    /// Returns a segment of the region for a post.
    ///
    /// # Panics
    /// If the range leaves the region or is longer than 4 GiB.
    #[must_use]
    #[inline]
    pub fn slice(&self, range: Range<usize>) -> Slice<'_> {
        let inner = &*self.inner;
        inner.mark_posted();
        Slice {
            triplet: self.triplet(range),
            zone: inner.zone,
            receive_zone: inner.receive_zone,
            region: PhantomData,
        }
    }

    #[inline]
    fn triplet(&self, range: Range<usize>) -> LmrTriplet {
        self.at(range.start, range.len());
        LmrTriplet {
            virtual_address: self.inner.base + range.start as u64,
            segment_length: u32::try_from(range.len()).expect("a segment is less than 4 GiB"),
            lmr_context: self.inner.triplet_context,
        }
    }

    /// Returns a segment with the key that a peer needs. The key is 0 if the region has no rights for peers.
    ///
    /// # Panics
    /// If the range leaves the region or is longer than 4 GiB.
    #[must_use]
    pub fn remote(&self, range: Range<usize>) -> Remote {
        let offset = range.start as u64;
        let triplet = self.triplet(range);
        Remote {
            address: self.inner.base + offset,
            length: triplet.segment_length,
            key: self.inner.rmr_context,
        }
    }

    /// Registers the same memory once more, with other rights and a key of its own (dat_lmr_create of an LMR). The memory stays
    /// registered until both regions are dropped.
    ///
    /// ```
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// let region = pz.allocate(4096, Access::ALL)?;
    /// let for_readers = region.register_again(Access::REMOTE_READ | Access::LOCAL_READ)?;
    /// assert_ne!(for_readers.remote(0..8).key, region.remote(0..8).key);
    /// drop(for_readers); // the key of the readers is invalid from now on
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn register_again(&self, access: Access) -> Result<Self> {
        let lmr = self.inner.lmr.clone().expect("the region is not dropped");
        let pz = lmr.pz.clone();
        let kind = Kind::Of(self.handle());
        let again = Lmr::create(
            &pz,
            Memory::of((lmr.at, lmr.length), lmr),
            &kind,
            access,
            VaType::Va,
        )
        .map(Self::new)?;
        // When the memory is freed with this region, posts may refer to the other one.
        again.inner.mark_posted();
        Ok(again)
    }
}

impl Pz {
    /// Allocates and registers `bytes` of zeroed memory (dat_lmr_create). Peers have no access unless `access` grants it.
    ///
    /// # Errors
    /// [`Error::Length`] for no bytes; [`Error::OutOfMemory`]; [`Error::Resources`] beyond the locked-memory limit; [`Error::Call`].
    pub fn allocate(&self, bytes: usize, access: Access) -> Result<Region> {
        self.register(Memory::zeroed(bytes)?, access)
    }

    /// Registers memory (dat_lmr_create): mapped, huge pages, of a file, or of a vector. It keeps its contents.
    ///
    /// ```
    /// use udapl::{Access, Ia, Memory};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// let text = pz.register(b"the bytes stay".to_vec(), Access::LOCAL_READ)?;
    /// assert_eq!(text.to_vec(10..14), b"stay");
    /// let pages = pz.register(Memory::mapped(1 << 20)?, Access::ALL)?;
    /// assert_eq!(pages.len(), 1 << 20);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Pz::allocate`].
    pub fn register(&self, memory: impl Into<Memory>, access: Access) -> Result<Region> {
        self.registered(memory.into(), &Kind::Virtual, access, VaType::Va)
    }

    /// Registers memory whose remote addresses begin at 0.
    ///
    /// ```
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let ia = Ia::open("softrxe-lo")?;
    /// if ia.attributes()?.zero_based {
    ///     let table = ia.create_pz()?.register_zero_based(vec![0; 4096], Access::ALL)?;
    ///     assert_eq!(table.remote(64..128).address, 64); // an offset, the same for every peer
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Pz::allocate`]; [`Error::Unsupported`] where `Attributes::zero_based` is false.
    pub fn register_zero_based(&self, memory: impl Into<Memory>, access: Access) -> Result<Region> {
        self.registered(memory.into(), &Kind::Virtual, access, VaType::ZeroBased)
    }

    /// Registers memory that processes share under `name` (dat_lmr_create with `DAT_MEM_TYPE_SHARED_VIRTUAL`). All of them pass the
    /// same name and map the same memory, for instance of a file.
    ///
    /// ```
    /// use udapl::{Access, Ia, Memory};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// // Each process maps the file, and registers it under the same name.
    /// let file = tempfile::tempfile().expect("a file");
    /// file.set_len(8192).expect("it has room");
    /// let name = b"a name of forty bytes for shared memory!";
    /// let shared = pz.register_shared(Memory::file(&file, 8192)?, name, Access::ALL)?;
    /// assert_eq!(shared.len(), 8192);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Pz::allocate`].
    pub fn register_shared(
        &self,
        memory: impl Into<Memory>,
        name: &[u8; DAT_LMR_COOKIE_SIZE],
        access: Access,
    ) -> Result<Region> {
        self.registered(memory.into(), &Kind::Shared(name), access, VaType::Va)
    }

    fn registered(
        &self,
        memory: Memory,
        kind: &Kind<'_>,
        access: Access,
        va_type: VaType,
    ) -> Result<Region> {
        if memory.range().1 == 0 {
            return Err(Error::Length {
                what: "memory",
                length: 0,
                most: isize::MAX as usize,
            });
        }
        self.ia().limbo().collect();
        Lmr::create(self, memory, kind, access, va_type).map(Region::new)
    }
}

impl Ia {
    /// Makes local writes of the segments visible to peers' RDMA Reads (dat_lmr_sync_rdma_read), where `Attributes::sync_needed` is
    /// true.
    ///
    /// ```
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let ia = Ia::open("softrxe-lo")?;
    /// let table = ia.create_pz()?.allocate(4096, Access::ALL)?;
    /// let is_needed = ia.attributes()?.sync_needed; // false for most adapters
    /// table.write(0, b"new");
    /// if is_needed {
    ///     ia.sync_rdma_read(&[table.slice(0..3)])?; // before a peer reads it
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn sync_rdma_read(&self, segments: &[Slice<'_>]) -> Result<()> {
        let triplets: Vec<_> = segments.iter().map(|slice| slice.triplet).collect();
        call!(
            self.handle(),
            lmr_sync_rdma_read(triplets.as_ptr(), triplets.len() as u64)
        )
    }

    /// Makes peers' RDMA Writes to the segments visible locally (dat_lmr_sync_rdma_write), where `Attributes::sync_needed` is true.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn sync_rdma_write(&self, segments: &[Slice<'_>]) -> Result<()> {
        let triplets: Vec<_> = segments.iter().map(|slice| slice.triplet).collect();
        call!(
            self.handle(),
            lmr_sync_rdma_write(triplets.as_ptr(), triplets.len() as u64)
        )
    }
}

/// A segment of a region.
///
/// Example: [`Ep::post_send`](crate::Ep::post_send).
#[derive(Clone, Copy, Debug)]
pub struct Slice<'a> {
    pub(crate) triplet: LmrTriplet,
    /// Handle of the region's protection zone.
    pub(crate) zone: usize,
    /// The same if a receive may write to the region, else [`READ_ONLY`].
    pub(crate) receive_zone: usize,
    region: PhantomData<&'a Region>,
}

/// The number of no zone, which no endpoint has.
pub(crate) const READ_ONLY: usize = usize::MAX;
