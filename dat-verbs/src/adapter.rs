//! An open adapter: device, connection manager, event thread, and the table that maps the key of an event to its
//! target.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Once, Weak};
use std::thread::JoinHandle;

use dat_core::attr::AdapterAttr;
use dat_core::error::{Result, Subtype};
use dat_core::ia_params::IaParams;
use dat_core::transport::Token;
use dat_core::upcall::Upcalls;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;

use crate::attributes;
use crate::cm;
use crate::cm::rdma::conn::Conn;
use crate::cm::rdma::id::Channel;
use crate::cm::rdma::resolution::Resolution;
use crate::cm::rdma::stage::Input;
use crate::find::{self, OpenError};
use crate::map;
use crate::park::EventFd;
use crate::settings::{HONOURED, KEYS, Manager, Settings};
use crate::sys;
use crate::thread::{self, Deferred, Epoll, FIRST_KEY};
use crate::transport::Verbs;
use crate::verbs::cq::Notifier;
use crate::verbs::device::Device;

/// Implements [`Transport::Adapter`](dat_core::transport::Transport::Adapter). Dropping it ends the event thread.
pub struct Adapter {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the event thread and the objects of an adapter.
pub(crate) struct Shared {
    // The channel is dropped before the device. Every id holds an `Arc` of the channel, so no id is left by then.
    pub(crate) channel: Arc<Channel>,
    pub(crate) device: Device,
    pub(crate) port: u8,
    /// True if the port's link layer is not InfiniBand.
    pub(crate) roce: bool,
    /// LID of the port; 0 on RoCE.
    pub(crate) lid: u16,
    pub(crate) attr: AdapterAttr,
    pub(crate) settings: Settings,
    /// The socket connection manager; set with `cm=socket`.
    pub(crate) socket: Option<cm::socket::Manager>,
    pub(crate) upcalls: Upcalls<Verbs>,
    pub(crate) epoll: Epoll,
    pub(crate) wake: EventFd,
    pub(crate) stopping: AtomicBool,
    /// True once core has been notified that the device is gone.
    pub(crate) removed: AtomicBool,
    pub(crate) deferred: Mutex<Vec<Deferred>>,
    table: Mutex<FxHashMap<u64, EventTarget>>,
    last_key: AtomicU64,
}

/// The object that an event concerns.
#[derive(Clone)]
pub(crate) enum EventTarget {
    /// A service point.
    Listener(Token),
    /// A request that is not answered yet. `withdrawn`: the peer has given up.
    Pending { withdrawn: bool },
    /// A connection.
    Conn(Weak<Conn>),
    /// A socket of the socket connection manager.
    Socket(cm::socket::Watched),
    /// A service id resolution of a datagram queue pair.
    Resolution(Weak<Resolution>),
    /// A watched completion queue.
    Cq(Weak<Notifier>),
}

/// Protects registered memory from fork(2) where the kernel does not.
///
/// Kernels since 5.12 copy pinned pages at fork, and then this does nothing. On older kernels libibverbs keeps
/// registered pages out of the child, so a program that calls system(3) or popen(3) continues to receive into its own
/// pages. The call must precede the first registration of the process.
///
/// libibverbs asks the kernel whether it copies pinned pages. If it gets no answer, it keeps the pages out of the
/// child anyway; the child then lacks the other heap data on those pages and crashes. So the kernel's version decides
/// here.
fn protect_from_fork() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease");
        if release.is_ok_and(|text| copies_pinned_pages(&text)) {
            return;
        }
        // SAFETY: no arguments; it changes libibverbs' own state only.
        let result = unsafe { sys::ibv_fork_init() };
        if result != 0 {
            tracing::info!(
                "ibv_fork_init: {}; registered memory is not safe in a forked child",
                map::text(result)
            );
        }
    });
}

/// Returns true if a kernel of this release copies pinned pages at fork(2).
fn copies_pinned_pages(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 12)
}

impl Adapter {
    /// Opens the device that `params` name.
    pub(crate) fn open(ia_name: &str, params: &IaParams, upcalls: Upcalls<Verbs>) -> Result<Self> {
        Self::try_open(params, upcalls).map_err(|error| {
            tracing::error!("{ia_name}: {error}");
            error.code()
        })
    }

    fn try_open(
        params: &IaParams,
        upcalls: Upcalls<Verbs>,
    ) -> std::result::Result<Self, OpenError> {
        params.known(KEYS)?;
        let environment = |name: &str| std::env::var(name).ok();
        let settings = Settings::new(params, environment)?;
        dat_core::environment::report(HONOURED, environment);
        find::require_device()?;
        protect_from_fork();
        let channel = Arc::new(Channel::open().map_err(OpenError::no_cm)?);
        let device_port = find::find(&channel, &params.device, params.port)?;
        let device = Device::open(&device_port.device)
            .ok_or_else(|| OpenError::gone(&device_port.device))?
            .map_err(|errno| OpenError::Device {
                device: device_port.device.clone(),
                reason: find::device_text(errno),
            })?;
        let facts =
            attributes::Facts::read(&device, &device_port).map_err(|errno| OpenError::Device {
                device: device_port.device.clone(),
                reason: map::text(errno),
            })?;
        if !facts.active() {
            tracing::warn!(
                "{} port {} is not active: connections fail until the link is up (`ip link set {} up`)",
                device_port.device,
                device_port.port,
                device_port.netdev.as_deref().unwrap_or("NETDEV"),
            );
        }
        let resources = |errno| OpenError::Resources(map::text(errno));
        crate::park::set_nonblocking(device.async_fd());
        let epoll = Epoll::new().map_err(resources)?;
        let wake = EventFd::new().map_err(|e| OpenError::Resources(e.to_string()))?;
        epoll
            .add_fixed(wake.fd(), channel.fd(), device.async_fd())
            .map_err(resources)?;
        let socket = match settings.cm {
            Manager::Rdmacm => None,
            Manager::Socket => {
                let manager = facts.socket_manager(&device, &settings)?;
                epoll.add_timer(manager.timers.fd()).map_err(resources)?;
                cm::socket::stream::reserve_descriptors(wake.fd(), cm::socket::DESCRIPTORS);
                Some(manager)
            }
        };
        let shared = Arc::new(Shared {
            channel,
            port: device_port.port,
            roce: facts.roce(),
            lid: facts.lid(),
            attr: facts.attr(settings.cm, settings.wr_max),
            device,
            settings,
            socket,
            upcalls,
            epoll,
            wake,
            stopping: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            deferred: Mutex::new(Vec::new()),
            table: Mutex::default(),
            last_key: AtomicU64::new(FIRST_KEY),
        });
        if !dat_core::reserve::has_thread_room() {
            return Err(OpenError::Resources("no memory for a thread".into()));
        }
        let running = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("dat {}", device_port.device))
            .spawn(move || {
                // The consumer's signals are not delivered to this thread.
                dat_os::signals::block_asynchronous();
                thread::run(&running);
            })
            .map_err(|e| OpenError::Resources(e.to_string()))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Release);
        self.shared.wake.signal();
        // An upcall may drop the last object of the adapter. The thread then ends after that upcall.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
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

    pub(crate) fn get(&self, key: u64) -> Option<EventTarget> {
        self.table.lock().get(&key).cloned()
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

    /// Records that the peer of a pending request has closed.
    pub(crate) fn withdraw(&self, key: u64) {
        if let Some(EventTarget::Pending { withdrawn }) = self.table.lock().get_mut(&key) {
            *withdrawn = true;
        }
    }

    /// Returns the connection with `key`. For a request that is not answered yet, `input` can only be the peer's
    /// withdrawal.
    pub(crate) fn conn(&self, key: u64, input: Input) -> Option<Arc<Conn>> {
        match self.table.lock().get_mut(&key)? {
            EventTarget::Conn(conn) => conn.upgrade(),
            EventTarget::Pending { withdrawn } => {
                tracing::debug!(key, ?input, "the peer withdraws its request");
                *withdrawn = true;
                None
            }
            EventTarget::Listener(_)
            | EventTarget::Cq(_)
            | EventTarget::Socket(_)
            | EventTarget::Resolution(_) => None,
        }
    }

    /// Returns the resolution with `key`.
    pub(crate) fn resolution(&self, key: u64) -> Option<Arc<Resolution>> {
        match self.get(key) {
            Some(EventTarget::Resolution(resolution)) => resolution.upgrade(),
            _ => None,
        }
    }

    /// Returns the token of the service point with `key`.
    pub(crate) fn listener(&self, key: u64) -> Option<Token> {
        match self.get(key) {
            Some(EventTarget::Listener(token)) => Some(token),
            _ => None,
        }
    }

    /// Queues work for the event thread and wakes it.
    pub(crate) fn defer(&self, work: Deferred) {
        self.deferred.lock().push(work);
        self.wake.signal();
    }

    /// Requests an upcall for the next completion of `notifier`'s queue.
    pub(crate) fn watch_cq(&self, notifier: &Arc<Notifier>) -> Result<()> {
        let mut watching = notifier.watching.lock();
        if !*watching {
            self.put(notifier.key, EventTarget::Cq(Arc::downgrade(notifier)));
        }
        self.epoll
            .once(notifier.fd(), notifier.key, *watching)
            .map_err(|e| map::failed("epoll_ctl", e, Subtype::ResourceTevd))?;
        *watching = true;
        drop(watching);
        notifier.arm()
    }

    /// Stops upcalls for `notifier`'s queue.
    pub(crate) fn forget_cq(&self, notifier: &Notifier) {
        self.epoll.remove(notifier.fd());
        self.remove(notifier.key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_since_5_12_copy_pinned_pages() {
        for (release, copies) in [
            ("6.1.0-56-amd64\n", true),
            ("5.12.0", true),
            ("5.11.22", false),
            ("5.4.0-42-generic", false),
            ("10.0", true),
            ("nonsense", false),
        ] {
            assert_eq!(copies_pinned_pages(release), copies, "{release}");
        }
    }
}
