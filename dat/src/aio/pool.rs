//! Pools of registered buffers, and what else an operation can take.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context as TaskContext, Poll, Waker};

use super::watchers::wake;
use crate::error::{Error, Result};
use crate::{Access, Pz, Region, Slice};

/// Registered buffers of one size, which are used again and again. Clones are the same pool.
///
/// ```
/// use udapl::aio::Context;
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// let context = Context::open("softrxe-lo")?;
/// let pool = context.pool(2, 4096)?;
/// let (first, second) = (pool.take().await, pool.take().await);
/// assert!(pool.try_take().is_none());
/// drop(first); // it goes back to the pool
/// assert_eq!(pool.take().await.len(), pool.buffer_size());
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Pool {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    region: Region,
    size: usize,
    free: Mutex<Free>,
}

#[derive(Debug)]
struct Free {
    buffers: Vec<usize>,
    /// Tasks that wait, each with its ticket.
    waiting: VecDeque<(u64, Waker)>,
    /// Tickets that were given out.
    tickets: u64,
}

impl Inner {
    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// Returns the place of a ticket among those that wait. A task that was woken has none.
    fn place(&self, ticket: u64) -> Option<usize> {
        self.waiting.iter().position(|(other, _)| *other == ticket)
    }
}

/// A task's wait for a buffer. Each buffer that comes back wakes one task, so one that gives up leaves its turn to the next.
#[derive(Debug)]
struct Turn<'a> {
    pool: &'a Pool,
    ticket: Option<u64>,
}

impl Turn<'_> {
    fn poll(&mut self, context: &TaskContext<'_>) -> Poll<Buffer> {
        let waker = context.waker();
        let mut free = self.pool.inner.free();
        let place = self.ticket.and_then(|ticket| free.place(ticket));
        let former = place.and_then(|place| free.waiting.remove(place));
        let found = free.buffers.pop();
        match (found, self.ticket, place) {
            (Some(_), ..) => self.ticket = None,
            (None, Some(ticket), Some(place)) => {
                free.waiting.insert(place, (ticket, waker.clone()));
            }
            // It was woken, and another task was faster.
            (None, Some(ticket), None) => free.waiting.push_front((ticket, waker.clone())),
            (None, None, _) => {
                let ticket = free.tickets;
                free.tickets += 1;
                self.ticket = Some(ticket);
                free.waiting.push_back((ticket, waker.clone()));
            }
        }
        // A waker's drop may be a task's.
        drop(free);
        drop(former);
        found.map_or(Poll::Pending, |at| Poll::Ready(self.pool.buffer(at)))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else {
            return;
        };
        let mut free = self.pool.inner.free();
        let own = free
            .place(ticket)
            .and_then(|place| free.waiting.remove(place));
        // It was woken for a buffer, which is still there.
        let next = match own {
            None if !free.buffers.is_empty() => free.waiting.pop_front(),
            _ => None,
        };
        drop(free);
        if let Some((_, next)) = next {
            wake(next);
        }
    }
}

impl Pool {
    /// Registers `count` buffers of `size` bytes. Peers have no access to them.
    ///
    /// # Errors
    /// As [`Pz::allocate`].
    pub fn new(pz: &Pz, count: usize, size: usize) -> Result<Self> {
        if size > u32::MAX as usize {
            return Err(Error::Length {
                what: "a buffer",
                length: size,
                most: u32::MAX as usize,
            });
        }
        // Each begins at a cache line.
        let stride = size.max(1).checked_next_multiple_of(64);
        let stride = stride.unwrap_or(usize::MAX);
        let bytes = stride.saturating_mul(count);
        let region = pz.allocate(bytes, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
        Ok(Self {
            inner: Arc::new(Inner {
                region,
                size,
                free: Mutex::new(Free {
                    buffers: (0..count).map(|at| at * stride).collect(),
                    waiting: VecDeque::new(),
                    tickets: 0,
                }),
            }),
        })
    }

    /// Returns a buffer, or `None` if all are in use.
    #[must_use]
    pub fn try_take(&self) -> Option<Buffer> {
        let at = self.inner.free().buffers.pop()?;
        Some(self.buffer(at))
    }

    /// Returns a buffer as soon as there is one. Tasks get theirs in the order in which they began to wait.
    pub async fn take(&self) -> Buffer {
        let mut turn = Turn {
            pool: self,
            ticket: None,
        };
        std::future::poll_fn(|context| turn.poll(context)).await
    }

    /// Returns the size of a buffer, in bytes.
    #[must_use]
    pub fn buffer_size(&self) -> usize {
        self.inner.size
    }

    fn buffer(&self, at: usize) -> Buffer {
        Buffer {
            pool: Arc::clone(&self.inner),
            at,
            length: self.inner.size,
        }
    }
}

/// A registered buffer, whose bytes nothing else can access. A buffer that is taken has its full length, and the bytes of its last use.
/// It goes back to its pool when it is dropped.
///
/// ```
/// use udapl::aio::Context;
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// let pool = Context::open("softrxe-lo")?.pool(1, 64)?;
/// let mut buffer = pool.take().await; // of 64 bytes; they are those of its last use
/// buffer[..2].copy_from_slice(b"hi");
/// buffer.set_len(2); // an operation sends, writes or reads as many
/// assert_eq!(&buffer[..], b"hi");
/// let buffer = buffer.filled(b"hello"); // both in one step
/// assert_eq!((buffer.len(), buffer.capacity()), (5, 64));
/// # Ok(())
/// # })
/// # }
/// ```
pub struct Buffer {
    pool: Arc<Inner>,
    at: usize,
    length: usize,
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} of {} bytes)", self.length, self.pool.size)
    }
}

impl Buffer {
    /// Sets the number of bytes that are sent, read or written.
    ///
    /// # Panics
    /// If it is larger than the buffer.
    pub fn set_len(&mut self, length: usize) {
        assert!(
            length <= self.pool.size,
            "{length} bytes do not fit into a buffer of {}",
            self.pool.size
        );
        self.length = length;
    }

    /// Returns the buffer with a copy of `bytes` and their length.
    ///
    /// # Panics
    /// If they do not fit.
    #[must_use]
    pub fn filled(mut self, bytes: &[u8]) -> Self {
        self.set_len(bytes.len());
        self.copy_from_slice(bytes);
        self
    }

    /// Returns the size of the buffer, in bytes.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.pool.size
    }

    fn start(&self) -> *mut u8 {
        self.pool.region.at(self.at, self.length)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: this part of the region belongs to this value alone. Peers have no access, the pool gives no segment away, and a
        // post of the buffer owns it until it is complete.
        unsafe { std::slice::from_raw_parts(self.start(), self.length) }
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.length) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let mut free = self.pool.free();
        free.buffers.push(self.at);
        let next = free.waiting.pop_front();
        drop(free);
        if let Some((_, next)) = next {
            wake(next);
        }
    }
}

/// A part of a [`Region`], whose bytes peers and other threads may access while it is used.
///
/// ```
/// use udapl::Access;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # udapl::aio::block_on(async {
/// # let (client, server) = connection().await?;
/// // A part of a region is sent without a copy. Peers with the key may read the region meanwhile.
/// let table = client.context().pz().register(b"a large table".to_vec(), Access::ALL)?;
/// let (part, sent) = client.send(table.part(2..7)).await;
/// assert_eq!((sent?, part.range()), (5, 2..7));
/// assert_eq!(&server.recv().await?[..], b"large");
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Part {
    region: Region,
    range: Range<usize>,
}

impl Part {
    /// Returns the region.
    #[must_use]
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// Returns the range of the region.
    #[must_use]
    pub fn range(&self) -> Range<usize> {
        self.range.clone()
    }
}

impl Region {
    /// Returns a part that an operation of [`aio`](crate::aio) can take.
    ///
    /// # Panics
    /// If the range leaves the region, or has 4 GiB and more: the length of a segment has 32 bits.
    #[must_use]
    pub fn part(&self, range: Range<usize>) -> Part {
        self.at(range.start, range.len());
        let length = u32::try_from(range.len());
        assert!(
            length.is_ok(),
            "a part of {} bytes: 4 GiB and more",
            range.len()
        );
        Part {
            region: self.clone(),
            range,
        }
    }
}

pub(super) mod sealed {
    /// Memory of an operation.
    pub trait Segment: Send + 'static {
        /// Returns the segment for the post.
        fn segment(&self) -> crate::Slice<'_>;

        /// Returns the number of bytes.
        fn length(&self) -> usize;
    }
}

/// Memory that an operation takes and gives back: a [`Buffer`] or a [`Part`].
///
/// ```
/// use udapl::aio::{Connection, IoBuffer};
///
/// /// Sends memory of either kind.
/// async fn send(to: &Connection, memory: impl IoBuffer) -> Result<(), udapl::Error> {
///     to.send(memory).await.1.map(drop)
/// }
/// ```
pub trait IoBuffer: sealed::Segment {}

impl sealed::Segment for Buffer {
    fn segment(&self) -> Slice<'_> {
        self.pool.region.slice(self.at..self.at + self.length)
    }

    fn length(&self) -> usize {
        self.length
    }
}

impl sealed::Segment for Part {
    fn segment(&self) -> Slice<'_> {
        self.region.slice(self.range.clone())
    }

    fn length(&self) -> usize {
        self.range.len()
    }
}

impl IoBuffer for Buffer {}
impl IoBuffer for Part {}
