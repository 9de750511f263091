//! Shared receive queues.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use dat_abi::types::{DAT_HANDLE_NULL, DatSrqAttr, DatSrqParam};

use crate::error::Result;
use crate::ia::Ia;
use crate::ids::{self, Entry, Side};
use crate::limits;
use crate::memory::region::Slice;
use crate::post_error::{PostCall, PostError};
use crate::pz::Pz;
use crate::segments::Segments;
use crate::sys::{Handle, call, count, query};

/// A shared receive queue: endpoints of its protection zone take their receives from it. Clones are the same queue. A region that is
/// dropped while it is posted here stays registered until all receives of the queue are used, or the queue is dropped.
///
/// ```
/// use udapl::{Access, Ia, PostError, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let pz = ia.create_pz()?;
/// let done = ia.create_evd(256, Streams::DTO)?;
/// let srq = ia.create_srq(&pz, 64, 1)?;
/// let room = pz.allocate(64 * 1024, Access::LOCAL_WRITE)?;
/// for number in 0..64 {
///     srq.post_recv(&[room.slice(number * 1024..(number + 1) * 1024)], number as u64)?;
/// }
/// // Any number of endpoints take their receives from there. A completion says which endpoint it was.
/// let first = ia.endpoint(&pz).srq(&srq).recv_evd(&done).request_evd(&done).create()?;
/// let second = ia.endpoint(&pz).srq(&srq).recv_evd(&done).request_evd(&done).create()?;
/// let refused = first.post_recv(&[room.slice(0..1024)], 1);
/// assert!(matches!(refused, Err(PostError::HasSrq { .. })));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Srq {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    handle: Handle,
    entry: &'static Entry,
    zone: usize,
    segments: AtomicUsize,
    pz: Pz,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let ia = self.pz.ia().clone();
        let id = ia.limbo().begin_free(self.entry);
        let limbo = ia.limbo();
        limbo.free_member(self.entry, id, |handle| call!(handle, srq_free()));
        ia.limbo().collect();
    }
}

/// What a provider knows of a shared receive queue (dat_srq_query).
///
/// ```
/// # use udapl::Ia;
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// let srq = ia.create_srq(&pz, 64, 1)?;
/// srq.resize(128)?;
/// assert!(srq.info()?.max_recv >= 128);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SrqInfo {
    /// Maximum of posted receives.
    pub max_recv: u32,
    /// Maximum of segments of a receive.
    pub max_segments: u32,
    /// Low watermark, if one is set.
    pub low_watermark: Option<u32>,
    /// Receives that are posted and not in use; `None` where the provider does not know.
    pub available: Option<u32>,
    /// Receives that are posted or in use; `None` where the provider does not know.
    pub outstanding: Option<u32>,
}

impl Srq {
    pub(crate) fn handle(&self) -> Handle {
        self.inner.handle
    }

    pub(crate) fn entry(&self) -> &'static Entry {
        self.inner.entry
    }

    /// Posts a receive (dat_srq_post_recv); at most 16 slices. Its completion names the endpoint that used it.
    ///
    /// # Errors
    /// [`PostError::QueueFull`](crate::PostError::QueueFull), [`PostError::OtherZone`](crate::PostError::OtherZone),
    /// [`PostError::ReadOnly`](crate::PostError::ReadOnly), [`PostError::TooManySegments`](crate::PostError::TooManySegments),
    /// [`PostError::Refused`](crate::PostError::Refused).
    pub fn post_recv(&self, slices: &[Slice<'_>], cookie: u64) -> Result<(), PostError> {
        const NAME: PostCall = PostCall::SharedReceive;
        let most = self.inner.segments.load(Ordering::Relaxed);
        let other = || PostError::OtherZone { call: NAME };
        let mut s = Segments::receive(slices, self.inner.zone, most, NAME, other)?;
        let (count, iov) = (s.count(), s.as_mut_ptr());
        self.inner.entry.post(Side::Receives);
        call!(post NAME, self.handle(), srq_post_recv(count, iov, cookie))
            .inspect_err(|_| self.inner.entry.unpost(Side::Receives))
    }

    /// Changes the maximum of posted receives (dat_srq_resize).
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State) below the number of posted receives; [`Error::Resources`](crate::Error::Resources);
    /// [`Error::Call`](crate::Error::Call).
    pub fn resize(&self, max_recv: u32) -> Result<()> {
        call!(self.handle(), srq_resize(count(max_recv as usize)))
    }

    /// Asks for one asynchronous event when fewer than `receives` are left (dat_srq_set_lw).
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Access, Event, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let pz = ia.create_pz()?;
    /// # let room = pz.allocate(64, Access::LOCAL_WRITE)?;
    /// let srq = ia.create_srq(&pz, 64, 1)?;
    /// srq.post_recv(&[room.slice(0..64)], 1)?;
    /// srq.set_low_watermark(8)?; // there are fewer already
    /// let event = ia.async_evd().wait(Duration::from_secs(60))?;
    /// assert!(matches!(event, Event::Async { .. })); // time to post more
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Unsupported`](crate::Error::Unsupported), [`Error::Call`](crate::Error::Call).
    pub fn set_low_watermark(&self, receives: u32) -> Result<()> {
        call!(self.handle(), srq_set_lw(count(receives as usize)))
    }

    /// Queries the queue (dat_srq_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn info(&self) -> Result<SrqInfo> {
        let param: DatSrqParam = query!(self.handle(), srq_query(0xff));
        let known = |count: i32| u32::try_from(count).ok();
        Ok(SrqInfo {
            max_recv: known(param.max_recv_dtos).unwrap_or(0),
            max_segments: known(param.max_recv_iov).unwrap_or(0),
            low_watermark: known(param.low_watermark).filter(|mark| *mark > 0),
            available: known(param.available_dto_count),
            outstanding: known(param.outstanding_dto_count),
        })
    }
}

impl Ia {
    /// Creates a shared receive queue for `max_recv` receives of at most `max_segments` segments (dat_srq_create).
    ///
    /// # Errors
    /// [`Error::Limit`](crate::Error::Limit), [`Error::Resources`](crate::Error::Resources),
    /// [`Error::Unsupported`](crate::Error::Unsupported), [`Error::Call`](crate::Error::Call).
    pub fn create_srq(&self, pz: &Pz, max_recv: u32, max_segments: u32) -> Result<Srq> {
        let mut attr = DatSrqAttr {
            max_recv_dtos: count(max_recv as usize),
            max_recv_iov: count(max_segments as usize),
            low_watermark: -1,
        };
        let mut handle = DAT_HANDLE_NULL;
        let zone = pz.handle().0;
        call!(
            self.handle(),
            srq_create(zone, &raw mut attr, &raw mut handle)
        )
        .map_err(|error| match self.attributes() {
            Ok(known) => limits::explained(
                error,
                &[
                    ("receives", max_recv, known.max_srq_recv),
                    ("segments", max_segments, known.max_segments),
                ],
            ),
            Err(_) => error,
        })?;
        let entry = ids::entry(handle);
        entry.begin(None);
        self.limbo().add(entry, zone, true);
        Ok(Srq {
            inner: Arc::new(Inner {
                handle: Handle(handle),
                entry,
                zone,
                segments: AtomicUsize::new(max_segments as usize),
                pz: pz.clone(),
            }),
        })
    }
}
