//! An open adapter: device, connection manager, event thread, and the table by which the thread finds who
//! an event is for.

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
use crate::thread::{self, Epoll, FIRST_KEY, Later};
use crate::transport::Verbs;
use crate::verbs::cq::Notifier;
use crate::verbs::device::Device;

/// See [`Transport::Adapter`](dat_core::transport::Transport::Adapter). Dropping it ends the event thread.
pub struct Adapter {
    pub(crate) shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the event thread and the objects share.
pub(crate) struct Shared {
    // Dropped in this order: ids are gone by then, the channel goes before the device.
    pub(crate) channel: Arc<Channel>,
    pub(crate) device: Device,
    pub(crate) port: u8,
    /// The port is no InfiniBand one.
    pub(crate) roce: bool,
    /// Of the port; 0 on RoCE.
    pub(crate) lid: u16,
    pub(crate) attr: AdapterAttr,
    pub(crate) settings: Settings,
    /// With `cm=socket`.
    pub(crate) socket: Option<cm::socket::Manager>,
    pub(crate) upcalls: Upcalls<Verbs>,
    pub(crate) epoll: Epoll,
    pub(crate) wake: EventFd,
    pub(crate) stopping: AtomicBool,
    /// The device is gone, and core knows.
    pub(crate) removed: AtomicBool,
    pub(crate) later: Mutex<Vec<Later>>,
    table: Mutex<FxHashMap<u64, Slot>>,
    last_key: AtomicU64,
}

/// Whom an event is for.
#[derive(Clone)]
pub(crate) enum Slot {
    /// A service point.
    Listener(Token),
    /// A request not yet answered; whether its peer has given up.
    Pending { withdrawn: bool },
    /// A connection.
    Conn(Weak<Conn>),
    /// A socket of the other connection manager.
    Socket(cm::socket::Watched),
    /// A datagram queue pair's question.
    Resolution(Weak<Resolution>),
    /// A watched completion queue.
    Cq(Weak<Notifier>),
}

/// Registered memory and fork(2): kernels since 5.12 copy pinned pages at fork, and then this is free; on
/// older ones libibverbs keeps registered pages out of the child, so that a program that calls system(3) or
/// popen(3) goes on receiving into its own pages. It must come before the first registration of the process.
///
/// libibverbs asks the kernel whether it copies, and where it gets no answer keeps the pages out all the same: a child then
/// lacks whatever else its heap had on them, and dies. So the kernel's version decides here.
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

/// Whether a kernel of this release copies pinned pages at fork(2).
fn copies_pinned_pages(release: &str) -> bool {
    let mut numbers = release.split(['.', '-']).map_while(|n| n.parse().ok());
    let version: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (5, 12)
}

impl Adapter {
    /// Opens what `params` name.
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
        find::any_device()?;
        protect_from_fork();
        let channel = Arc::new(Channel::open().map_err(OpenError::no_cm)?);
        let place = find::find(&channel, &params.device, params.port)?;
        let device = Device::open(&place.device)
            .ok_or_else(|| OpenError::gone(&place.device))?
            .map_err(|errno| OpenError::Device {
                device: place.device.clone(),
                reason: find::device_text(errno),
            })?;
        let facts =
            attributes::Facts::read(&device, &place).map_err(|errno| OpenError::Device {
                device: place.device.clone(),
                reason: map::text(errno),
            })?;
        if !facts.active() {
            tracing::warn!(
                "{} port {} is not active: connections fail until the link is up (`ip link set {} up`)",
                place.device,
                place.port,
                place.netdev.as_deref().unwrap_or("NETDEV"),
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
                cm::socket::stream::make_room(wake.fd(), cm::socket::DESCRIPTORS);
                Some(manager)
            }
        };
        let shared = Arc::new(Shared {
            channel,
            port: place.port,
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
            later: Mutex::new(Vec::new()),
            table: Mutex::default(),
            last_key: AtomicU64::new(FIRST_KEY),
        });
        if !dat_core::reserve::has_thread_room() {
            return Err(OpenError::Resources("no memory for a thread".into()));
        }
        let running = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name(format!("dat {}", place.device))
            .spawn(move || {
                // No signal of the program is for this thread.
                dat_core::signals::leave_to_the_consumer();
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
        // The last object of the adapter may go in an upcall: the thread then ends after it.
        if let Some(thread) = self.thread.take()
            && thread.thread().id() != std::thread::current().id()
        {
            thread.join().ok();
            self.shared.later.lock().clear();
        }
    }
}

impl Shared {
    /// A key that was never used before.
    pub(crate) fn new_key(&self) -> u64 {
        self.last_key.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn put(&self, key: u64, slot: Slot) {
        self.table.lock().insert(key, slot);
    }

    pub(crate) fn get(&self, key: u64) -> Option<Slot> {
        self.table.lock().get(&key).cloned()
    }

    pub(crate) fn remove(&self, key: u64) {
        let slot = self.table.lock().remove(&key);
        // Outside the lock, whatever it holds.
        drop(slot);
    }

    /// Makes a request a connection; whether its peer had given up.
    pub(crate) fn replace_pending(&self, key: u64, slot: Slot) -> bool {
        let old = self.table.lock().insert(key, slot);
        matches!(old, Some(Slot::Pending { withdrawn: true }))
    }

    /// The peer of a request not yet answered has closed.
    pub(crate) fn withdraw(&self, key: u64) {
        if let Some(Slot::Pending { withdrawn }) = self.table.lock().get_mut(&key) {
            *withdrawn = true;
        }
    }

    /// The connection that `input` is for. For a request not yet answered it can only be the peer's withdrawal.
    pub(crate) fn conn(&self, key: u64, input: Input) -> Option<Arc<Conn>> {
        match self.table.lock().get_mut(&key)? {
            Slot::Conn(conn) => conn.upgrade(),
            Slot::Pending { withdrawn } => {
                tracing::debug!(key, ?input, "the peer withdraws its request");
                *withdrawn = true;
                None
            }
            Slot::Listener(_) | Slot::Cq(_) | Slot::Socket(_) | Slot::Resolution(_) => None,
        }
    }

    /// The resolution of `key`.
    pub(crate) fn resolution(&self, key: u64) -> Option<Arc<Resolution>> {
        match self.get(key) {
            Some(Slot::Resolution(resolution)) => resolution.upgrade(),
            _ => None,
        }
    }

    /// The service point of `key`.
    pub(crate) fn listener(&self, key: u64) -> Option<Token> {
        match self.get(key) {
            Some(Slot::Listener(token)) => Some(token),
            _ => None,
        }
    }

    /// Leaves something for the event thread.
    pub(crate) fn later(&self, later: Later) {
        self.later.lock().push(later);
        self.wake.signal();
    }

    /// Announces the next completion of `notifier`'s queue.
    pub(crate) fn watch_cq(&self, notifier: &Arc<Notifier>) -> Result<()> {
        let mut watching = notifier.watching.lock();
        if !*watching {
            self.put(notifier.key, Slot::Cq(Arc::downgrade(notifier)));
        }
        self.epoll
            .once(notifier.fd(), notifier.key, *watching)
            .map_err(|e| map::failed("epoll_ctl", e, Subtype::ResourceTevd))?;
        *watching = true;
        drop(watching);
        notifier.arm()
    }

    /// Announces nothing more of `notifier`'s queue.
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
