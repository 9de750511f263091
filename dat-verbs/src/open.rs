//! Opens an adapter.

use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Once};
use std::thread::JoinHandle;

use dat_arena::Mutex;
use dat_core::error::Result;
use dat_core::ia_params::IaParams;
use dat_core::upcall::Upcalls;

use crate::Verbs;
use crate::adapter::{Adapter, Shared};
use crate::attributes;
use crate::cm::rdma::id::{Channel, CmId};
use crate::cm::rdma::retire::Retired;
use crate::cm::socket::{self, manager::SocketManager};
use crate::convert;
use crate::epoll::{Epoll, FIRST_KEY};
use crate::event_thread;
use crate::find::{self, DevicePort, OpenError};
use crate::settings::{KEYS, Manager, READ_VARIABLES, Settings};
use crate::sys;
use crate::verbs::device::{Device, Transport};
use crate::verbs::placeholder::Placeholder;
use dat_os::descriptor::set_nonblocking;
use dat_os::eventfd::EventFd;

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
                convert::text(result)
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
        dat_core::environment::report(READ_VARIABLES, environment);
        sys::load()?;
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
                reason: convert::text(errno),
            })?;
        if !facts.active() {
            warn_inactive(&device_port);
        }
        let placeholder = facts.is_siw().then(|| Placeholder::new(&device)).flatten();
        let resources = |errno| OpenError::Resources(convert::text(errno));
        set_nonblocking(device.async_fd());
        let epoll = Epoll::new().map_err(resources)?;
        let wake = EventFd::new().map_err(|e| OpenError::Resources(e.to_string()))?;
        epoll
            .add_fixed(wake.as_raw_fd(), channel.fd(), device.async_fd())
            .map_err(resources)?;
        let socket = open_manager(&facts, &settings, &device, &epoll, &wake)?;
        let removal_watch = CmId::watch_removal(&channel, device_port.ip, device_port.scope)
            .inspect_err(|e| {
                tracing::info!(
                    "the removal of {} will not be noticed: {}",
                    device_port.device,
                    convert::text(*e)
                );
            });
        let shared = Arc::new(Shared {
            _removal_watch: removal_watch.ok(),
            channel,
            port: device_port.port,
            transport: facts.transport(),
            _placeholder: placeholder,
            resizes_queues: device.resizes_queues(),
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
            retired: Retired::default(),
        });
        let thread = start_thread(&shared, &device_port.device)?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }
}

fn warn_inactive(found: &DevicePort) {
    tracing::warn!(
        "{} port {} is not active: connections fail until the link is up (`ip link set {} up`)",
        found.device,
        found.port,
        found.netdev.as_deref().unwrap_or("NETDEV"),
    );
}

/// Opens the connection manager of `cm=socket`, if that is set.
fn open_manager(
    facts: &attributes::Facts<'_>,
    settings: &Settings,
    device: &Device,
    epoll: &Epoll,
    wake: &EventFd,
) -> std::result::Result<Option<SocketManager>, OpenError> {
    if settings.cm != Manager::Socket {
        return Ok(None);
    }
    if facts.transport() == Transport::Iwarp {
        return Err(OpenError::Device {
            device: facts.device_name().to_owned(),
            reason:
                "cm=socket connects InfiniBand and RoCE only; iWARP needs cm=rdmacm, the default"
                    .into(),
        });
    }
    let manager = facts.socket_manager(device, settings)?;
    epoll
        .add_timer(manager.timers.fd())
        .map_err(|errno| OpenError::Resources(convert::text(errno)))?;
    socket::stream::reserve_descriptors(wake.as_raw_fd(), socket::DESCRIPTORS);
    Ok(Some(manager))
}

/// Starts the event thread.
fn start_thread(
    shared: &Arc<Shared>,
    device: &str,
) -> std::result::Result<JoinHandle<()>, OpenError> {
    if !dat_core::reserve::has_thread_room() {
        return Err(OpenError::Resources("no memory for a thread".into()));
    }
    let running = Arc::clone(shared);
    let builder = std::thread::Builder::new().name(format!("dat {device}"));
    dat_os::signals::spawn(builder, move || event_thread::run(&running))
        .map_err(|e| OpenError::Resources(e.to_string()))
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
