//! State of an open adapter: device, connection manager, event thread, and the table that maps the key of an event to
//! its target.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use dat_arena::Mutex;
use dat_core::attributes::AdapterAttr;
use dat_core::transport::Token;
use dat_core::upcall::Upcalls;
use rustc_hash::FxHashMap;

use crate::Verbs;
use crate::cm::rdma::event::ResolvedQp;
use crate::cm::rdma::id::{Channel, CmId};
use crate::cm::rdma::retire::Retired;
use crate::cm::rdma::stage::Input;
use crate::cm::socket::manager::SocketManager;
use crate::epoll::Epoll;
use crate::settings::Settings;
use crate::verbs::device::{Device, Transport};
use crate::verbs::placeholder::Placeholder;
use dat_os::eventfd::EventFd;

/// Implements [`Transport::Adapter`](dat_core::transport::Transport::Adapter). Dropping it ends the event thread.
pub struct Adapter {
    pub(crate) shared: Arc<Shared>,
    pub(crate) thread: Option<JoinHandle<()>>,
}

/// State shared by the event thread and the objects of an adapter.
pub(crate) struct Shared {
    /// Id that is told of the device's removal, also where the IA has no connection or service point of librdmacm.
    pub(crate) _removal_watch: Option<CmId>,
    // The channel is dropped before the device. Every id holds an `Arc` of the channel, so no id is left by then.
    pub(crate) channel: Arc<Channel>,
    /// Dropped before the device, too.
    pub(crate) _placeholder: Option<Placeholder>,
    pub(crate) device: Device,
    pub(crate) port: u8,
    pub(crate) transport: Transport,
    /// True if completion queues can grow.
    pub(crate) resizes_queues: bool,
    /// True if the port's link layer is not InfiniBand.
    pub(crate) roce: bool,
    /// LID of the port; 0 on RoCE.
    pub(crate) lid: u16,
    pub(crate) attr: AdapterAttr,
    pub(crate) settings: Settings,
    /// The socket connection manager; set with `cm=socket`.
    pub(crate) socket: Option<SocketManager>,
    pub(crate) upcalls: Upcalls<Verbs>,
    pub(crate) epoll: Epoll,
    pub(crate) wake: EventFd,
    pub(crate) stopping: AtomicBool,
    /// True once core has been notified that the device is gone.
    pub(crate) removed: AtomicBool,
    pub(crate) deferred: Mutex<Vec<Deferred>>,
    pub(crate) table: Mutex<FxHashMap<u64, EventTarget>>,
    pub(crate) last_key: AtomicU64,
    /// Ids that a thread of their own releases.
    pub(crate) retired: Retired,
}

/// Work that a consumer's call defers to the event thread, since only that thread makes upcalls.
pub(crate) type Deferred = Box<dyn FnOnce(&Arc<Shared>) + Send>;

/// The object that an event concerns.
pub(crate) enum EventTarget {
    /// A service point.
    Listener(Token),
    /// A request that is not answered yet. `withdrawn`: the peer has given up.
    Pending { withdrawn: bool },
    /// A connection, a resolution, a listening socket or a completion queue.
    Object(Weak<dyn EventHandler>),
    /// An object that only the table owns.
    Owned(Arc<dyn EventHandler>),
}

/// An object that the event thread notifies. Each method is called without locks.
pub(crate) trait EventHandler: Send + Sync {
    /// Processes events of the object's descriptor; `ended` is true if they include a hang-up or an error.
    fn ready(&self, _shared: &Arc<Shared>, _key: u64, _ended: bool) {}

    /// Processes the passed deadline of `key`.
    fn expired(&self, _shared: &Arc<Shared>, _key: u64) {}

    /// Processes an event of librdmacm, with the queue pair and the private data that came with it.
    fn cm_event(&self, _input: Input, _found: Option<&ResolvedQp>, _private_data: &[u8]) {}
}

impl EventTarget {
    /// Makes the target of an object that its owner drops.
    pub(crate) fn object<T: EventHandler + 'static>(object: &Arc<T>) -> Self {
        let weak: Weak<T> = Arc::downgrade(object);
        Self::Object(weak)
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // No connection is left to add another one. The event thread still runs, although it is not needed: it acknowledges
        // an event before it handles it.
        self.shared.retired.join();
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.signal();
        // An upcall may drop the last object of the adapter. The thread then ends after that upcall.
        if let Some(thread) = self.thread.take()
            && !dat_os::schedule::is_caller(&thread)
        {
            thread.join().ok();
            self.shared.deferred.lock().clear();
        }
    }
}

impl Shared {
    /// Returns a key that was never used before.
    pub(crate) fn new_key(&self) -> u64 {
        self.last_key.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn put(&self, key: u64, slot: EventTarget) {
        self.table.lock().insert(key, slot);
    }

    pub(crate) fn remove(&self, key: u64) {
        let slot = self.table.lock().remove(&key);
        // Dropped after the table is unlocked, since the drop may run arbitrary code.
        drop(slot);
    }

    /// Replaces a pending request with its connection; returns true if the peer had given up.
    pub(crate) fn replace_pending(&self, key: u64, slot: EventTarget) -> bool {
        let old = self.table.lock().insert(key, slot);
        matches!(old, Some(EventTarget::Pending { withdrawn: true }))
    }

    /// Returns the object with `key` for an event. If the event `ends` a pending request, records that its peer has
    /// given up; both under one lock, since the consumer's answer replaces the request by a connection.
    pub(crate) fn handler_of_event(&self, key: u64, ends: bool) -> Option<Arc<dyn EventHandler>> {
        match self.table.lock().get_mut(&key)? {
            EventTarget::Object(object) => object.upgrade(),
            EventTarget::Owned(object) => Some(Arc::clone(object)),
            EventTarget::Pending { withdrawn } => {
                if ends {
                    tracing::debug!(key, "the peer withdraws its request");
                    *withdrawn = true;
                }
                None
            }
            EventTarget::Listener(_) => None,
        }
    }

    /// Returns the token of the service point with `key`.
    pub(crate) fn listener(&self, key: u64) -> Option<Token> {
        match self.table.lock().get(&key) {
            Some(EventTarget::Listener(token)) => Some(*token),
            _ => None,
        }
    }

    /// Queues work for the event thread and wakes it.
    pub(crate) fn defer(&self, work: Deferred) {
        self.deferred.lock().push(work);
        self.wake.signal();
    }
}
