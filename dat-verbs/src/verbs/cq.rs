//! Completion queues with their completion channels.

use std::collections::HashMap;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use dat_arena::Mutex;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::transport::{Completion, Token};

use crate::adapter::{Adapter, EventHandler, EventTarget, Shared};
use crate::convert;
use crate::sys::{self, Wc};
use crate::verbs::device::SOFT_ROCE;
use dat_os::eventfd::EventFd;

/// Minimum depth of a queue: consumers request small queues and attach endpoints that produce more completions.
const MIN_DEPTH: u32 = 256;
/// Minimum depth on a device whose queues cannot grow when endpoints are attached (siw: 512 KiB).
const FIXED_DEPTH: u32 = 16_384;

/// A completion queue. `Notifier` is the part that the event thread uses.
pub struct Cq {
    cq: NonNull<sys::ibv_cq>,
    calls: sys::Calls,
    pub(crate) notifier: Arc<Notifier>,
    /// True for a device of rdma_rxe.
    soft: bool,
    /// The endpoint of each queue pair on an SRQ, by queue pair number: completions do not carry it.
    shared: Mutex<HashMap<u32, Token>>,
    has_shared: AtomicBool,
}

// SAFETY: providers lock inside a CQ; the pointer is constant.
unsafe impl Send for Cq {}
// SAFETY: as above.
unsafe impl Sync for Cq {}

/// The CQ itself and its notification; lives until neither the `Cq` nor the event thread uses it.
pub(crate) struct Notifier {
    cq: NonNull<sys::ibv_cq>,
    channel: NonNull<sys::ibv_comp_channel>,
    pub(crate) token: Token,
    /// Key of the queue in the adapter's table.
    pub(crate) key: u64,
    pub(crate) adapter: Arc<Adapter>,
    /// True if the next completion will produce an event.
    armed: AtomicBool,
    /// Number of events that were read and not acknowledged. Acknowledging takes a lock, so it is done once, before
    /// the queue is destroyed.
    unacked: AtomicU32,
    /// True once the device is gone: the channel is no descriptor to wait for any more, since its error stays.
    ended: AtomicBool,
    /// True if the event thread watches the channel; the lock serialises changes.
    pub(crate) watching: Mutex<bool>,
    /// The waiter that sleeps in `park` while the event thread watches the channel too.
    pub(crate) sleeper: Mutex<Option<Arc<EventFd>>>,
}

// SAFETY: the pointers are constant and freed once, in drop; libibverbs locks inside.
unsafe impl Send for Notifier {}
// SAFETY: as above.
unsafe impl Sync for Notifier {}

impl Cq {
    /// Converts a raw completion.
    #[inline(always)]
    pub(crate) fn decode(&self, raw: &Wc) -> Completion {
        let raw = if self.soft { raw.of_rxe() } else { *raw };
        convert::completion(&raw, self.ep_of(raw.qp_num))
    }

    pub(crate) fn new(adapter: &Arc<Adapter>, depth: u32, token: Token) -> Result<Self> {
        let limit = adapter.shared.attr.max_evd_qlen;
        if depth > limit {
            tracing::error!("an event queue of {depth} is longer than the device's {limit}");
            return Err(Error::resource(Subtype::ResourceTevd));
        }
        let context = adapter.shared.device.raw();
        let calls = adapter
            .shared
            .device
            .calls()
            .ok_or(Error::of(Kind::NotImplemented))?;
        // SAFETY: the context is open.
        let channel = unsafe { sys::ibv_create_comp_channel(context) };
        let channel = NonNull::new(channel).ok_or_else(|| {
            convert::failed(
                "ibv_create_comp_channel",
                sys::errno(),
                Subtype::ResourceTevd,
            )
        })?;
        // SAFETY: the channel is open.
        dat_os::descriptor::set_nonblocking(unsafe { channel.as_ref() }.fd);
        let least = if adapter.shared.resizes_queues {
            MIN_DEPTH
        } else {
            FIXED_DEPTH
        };
        let cqe = depth.max(least).min(limit).cast_signed();
        let cq_context = std::ptr::without_provenance_mut(token.0 as usize);
        // SAFETY: context and channel are open; vector 0 always exists.
        let cq = unsafe { sys::ibv_create_cq(context, cqe, cq_context, channel.as_ptr(), 0) };
        let Some(cq) = NonNull::new(cq) else {
            let error = convert::failed("ibv_create_cq", sys::errno(), Subtype::ResourceTevd);
            // SAFETY: made above, nothing uses it.
            unsafe { sys::ibv_destroy_comp_channel(channel.as_ptr()) };
            return Err(error);
        };
        Ok(Self {
            cq,
            calls,
            soft: adapter.shared.attr.vendor_name == SOFT_ROCE,
            notifier: Arc::new(Notifier {
                cq,
                channel,
                token,
                key: adapter.shared.new_key(),
                adapter: Arc::clone(adapter),
                armed: AtomicBool::new(false),
                unacked: AtomicU32::new(0),
                ended: AtomicBool::new(false),
                watching: Mutex::new(false),
                sleeper: Mutex::new(None),
            }),
            shared: Mutex::new(HashMap::new()),
            has_shared: AtomicBool::new(false),
        })
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_cq {
        self.cq.as_ptr()
    }

    /// Polls completions in order and returns their number.
    #[inline(always)]
    pub(crate) fn poll(&self, into: &mut [Wc]) -> usize {
        let room = i32::try_from(into.len()).unwrap_or(i32::MAX);
        // SAFETY: the CQ is alive; `into` has room for `room` entries.
        let n = unsafe { (self.calls.poll_cq)(self.cq.as_ptr(), room, into.as_mut_ptr()) };
        usize::try_from(n).unwrap_or(0)
    }

    /// Returns the endpoint of the queue pair `qp_num` on an SRQ.
    #[inline(always)]
    pub(crate) fn ep_of(&self, qp_num: u32) -> Token {
        if self.has_shared.load(Ordering::Relaxed) {
            self.look_up(qp_num)
        } else {
            Token::default()
        }
    }

    #[inline(never)]
    fn look_up(&self, qp_num: u32) -> Token {
        self.shared.lock().get(&qp_num).copied().unwrap_or_default()
    }

    /// Maps completions of `qp_num` to `token` from now on.
    pub(crate) fn attach(&self, qp_num: u32, token: Token) {
        self.shared.lock().insert(qp_num, token);
        self.has_shared.store(true, Ordering::Relaxed);
    }

    /// Removes the mapping of `qp_num`, unless another endpoint has taken the number.
    pub(crate) fn detach(&self, qp_num: u32, token: Token) {
        let mut shared = self.shared.lock();
        if shared.get(&qp_num) == Some(&token) {
            shared.remove(&qp_num);
        }
    }

    pub(crate) fn resize(&self, depth: u32) -> Result<()> {
        let limit = self.notifier.adapter.shared.attr.max_evd_qlen;
        if depth > limit {
            return Err(Error::resource(Subtype::ResourceTevd));
        }
        let cqe = depth.max(MIN_DEPTH).min(limit).cast_signed();
        // SAFETY: the CQ is alive.
        let length = unsafe { self.cq.as_ref() }.cqe;
        if !self.notifier.adapter.shared.resizes_queues {
            if length >= depth.cast_signed() {
                return Ok(());
            }
            return Err(Error::resource(Subtype::ResourceTevd));
        }
        // SAFETY: as above.
        match unsafe { sys::ibv_resize_cq(self.raw(), cqe) } {
            0 => Ok(()),
            // Good enough if there is room already.
            _ if length >= depth.cast_signed() => Ok(()),
            e => Err(convert::failed("ibv_resize_cq", e, Subtype::ResourceTevd)),
        }
    }
}

impl Drop for Cq {
    fn drop(&mut self) {
        self.notifier.unwatch();
    }
}

impl Notifier {
    /// Returns the channel's descriptor.
    fn fd(&self) -> RawFd {
        // SAFETY: the channel is open until drop.
        unsafe { self.channel.as_ref() }.fd
    }

    /// Returns the descriptor to sleep on; `None` once the device is gone.
    pub(crate) fn live_fd(&self) -> Option<RawFd> {
        (!self.ended.load(Ordering::Relaxed)).then(|| self.fd())
    }

    /// Makes sure that the next completion makes the channel readable.
    pub(crate) fn arm(&self) -> Result<()> {
        if self.armed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        // SAFETY: the CQ is alive until drop.
        match unsafe { sys::ibv_req_notify_cq(self.cq.as_ptr(), 0) } {
            0 => Ok(()),
            e => {
                self.armed.store(false, Ordering::Release);
                Err(convert::failed(
                    "ibv_req_notify_cq",
                    e,
                    Subtype::ResourceTevd,
                ))
            }
        }
    }

    /// Reads the channel's event and returns true if there was one. `ended` says that the descriptor has an error: without an event the
    /// device is gone then. It reads once: arming produces one event, and the queue is not armed again before that is read.
    pub(crate) fn drain(&self, ended: bool) -> bool {
        let (mut cq, mut context) = (std::ptr::null_mut(), std::ptr::null_mut());
        // SAFETY: the channel is open and non-blocking; both pointers are valid for the write.
        let result =
            unsafe { sys::ibv_get_cq_event(self.channel.as_ptr(), &raw mut cq, &raw mut context) };
        if result != 0 {
            if ended {
                self.ended.store(true, Ordering::Relaxed);
            }
            return false;
        }
        self.unacked.fetch_add(1, Ordering::Relaxed);
        self.armed.store(false, Ordering::Release);
        true
    }

    /// Has the event thread make an upcall for the next completion.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<()> {
        let shared = &self.adapter.shared;
        let mut watching = self.watching.lock();
        if !*watching {
            shared.put(self.key, EventTarget::object(self));
        }
        if let Some(fd) = self.live_fd() {
            shared
                .epoll
                .once(fd, self.key, *watching)
                .map_err(|e| convert::failed("epoll_ctl", e, Subtype::ResourceTevd))?;
        }
        *watching = true;
        drop(watching);
        self.arm()
    }

    /// Stops the event thread from watching the channel.
    pub(crate) fn unwatch(&self) {
        let mut watching = self.watching.lock();
        if std::mem::take(&mut *watching) {
            self.adapter.shared.epoll.remove(self.fd());
            self.adapter.shared.remove(self.key);
        }
    }
}

impl EventHandler for Notifier {
    fn ready(&self, shared: &Arc<Shared>, key: u64, ended: bool) {
        if !self.drain(ended) {
            // A waiter read the event first. It polls the queue itself, but core requested this upcall too.
            tracing::trace!(key, "completion event already taken");
        }
        if let Some(sleeper) = &*self.sleeper.lock() {
            sleeper.signal();
        }
        shared.upcalls.cq_ready(self.token);
    }
}

impl Drop for Notifier {
    fn drop(&mut self) {
        // SAFETY: made by us and destroyed once: every event read is acknowledged first (else destroying
        // would wait for ever), then the CQ, then its channel.
        unsafe {
            sys::ibv_ack_cq_events(self.cq.as_ptr(), *self.unacked.get_mut());
            let result = sys::ibv_destroy_cq(self.cq.as_ptr());
            if result != 0 {
                tracing::warn!(
                    "ibv_destroy_cq failed, the CQ is leaked: {}",
                    convert::text(result)
                );
            }
            sys::ibv_destroy_comp_channel(self.channel.as_ptr());
        }
    }
}
