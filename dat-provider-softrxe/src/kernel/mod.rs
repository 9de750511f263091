//! The kernel engine: makes sure that the netdev of an IA has an rdma_rxe device. `find` looks in sysfs,
//! `netlink` asks the kernel for a new one. From there on `dat_verbs` treats it as any other device.

pub mod find;
pub mod netlink;

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Subtype};

use netlink::NewLinkError;

/// How long a new device may take to show up below /dev.
const APPEARS: Duration = Duration::from_secs(3);

/// Why there is no rxe device.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// The entry names nothing.
    #[error("ia_params name no netdev; write \"NETDEV 0\"; netdevs: {found}")]
    NoName {
        /// What there is.
        found: String,
    },
    /// The entry names what is not there.
    #[error(
        "{wanted:?} is no netdev, rxe device, address or host name of this machine; netdevs: {found}"
    )]
    NoSuch {
        /// What was asked for.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// The kernel did not make a device.
    #[error("netdev {netdev} has no rxe device, and none can be made: {reason}")]
    NotMade {
        /// The netdev.
        netdev: String,
        /// What the kernel says, and what to type.
        #[source]
        reason: NewLinkError,
    },
}

impl KernelError {
    /// The return code of dat_ia_open.
    #[must_use]
    pub fn code(&self) -> Error {
        match self {
            Self::NoName { .. } | Self::NoSuch { .. } => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressMalformed)
            }
            Self::NotMade { reason, .. } if reason.is_permission() => {
                Error::of(Kind::PrivilegesViolation)
            }
            Self::NotMade { .. } => Error::resource(Subtype::ResourceDevice),
        }
    }
}

/// Makes sure that `wanted` (a netdev, an address of one, a host name of one, or an rxe device) has an rxe
/// device.
///
/// # Errors
/// [`KernelError`], whose text says what to do.
pub fn prepare(wanted: &str) -> Result<(), KernelError> {
    let sys = Path::new("/sys/class");
    let devices = find::rxe_devices(sys);
    if devices.iter().any(|d| d.name == wanted) {
        return Ok(());
    }
    let netdev = netdev_of(sys, wanted)?;
    if devices.iter().any(|d| d.netdev == netdev) {
        return Ok(());
    }
    let name = find::free_name(sys);
    match netlink::new_link(&name, &netdev) {
        Ok(()) => {
            tracing::info!("made rxe device {name} on netdev {netdev}");
            await_device(sys, &name);
            Ok(())
        }
        // Somebody else was quicker.
        Err(NewLinkError::Exists) => Ok(()),
        Err(reason) => Err(KernelError::NotMade { netdev, reason }),
    }
}

/// The netdev that `wanted` means.
fn netdev_of(sys: &Path, wanted: &str) -> Result<String, KernelError> {
    let netdevs = find::netdevs(sys);
    let found = || netdevs.join(", ");
    if wanted.is_empty() {
        return Err(KernelError::NoName { found: found() });
    }
    if netdevs.iter().any(|n| n == wanted) {
        return Ok(wanted.to_owned());
    }
    let addresses: Vec<IpAddr> = match wanted.parse() {
        Ok(ip) => vec![ip],
        Err(_) => (wanted, 0)
            .to_socket_addrs()
            .map(|list| list.map(|a| a.ip()).collect())
            .unwrap_or_default(),
    };
    dat_verbs::local_addresses()
        .into_iter()
        .find(|(_, ip)| addresses.contains(ip))
        .map(|(netdev, _)| netdev)
        .ok_or_else(|| KernelError::NoSuch {
            wanted: wanted.to_owned(),
            found: found(),
        })
}

/// Waits until the device can be opened: its node below /dev is made by another process.
fn await_device(sys: &Path, name: &str) {
    let start = Instant::now();
    while !find::is_open_to_users(sys, Path::new("/dev"), name) {
        if start.elapsed() > APPEARS {
            tracing::warn!(
                "rxe device {name} has no node below /dev/infiniband; is ib_uverbs loaded (`modprobe ib_uverbs`)?"
            );
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}
