//! The kernel engine: makes sure that the netdev of an IA has an rdma_rxe device. `find` searches sysfs,
//! `netlink` creates a device. `dat_verbs` then treats it like any other device.

pub mod find;
pub mod netlink;

use std::net::{IpAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

use dat_core::error::{Error, Kind, Subtype};
use dat_verbs::LoadError;

use find::RxeDevice;
use netlink::NewLinkError;

/// How long the node of a new device may take to appear below /dev.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// The loopback netdev.
const LOOPBACK: &str = "lo";

/// Error of a netdev without rxe device.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// libibverbs or librdmacm is not installed.
    #[error(transparent)]
    Library(#[from] LoadError),
    /// The entry names no netdev.
    #[error("ia_params name no netdev; write \"NETDEV 0\"; netdevs: {found}")]
    NoName {
        /// Netdevs that exist.
        found: String,
    },
    /// The entry names a netdev that does not exist.
    #[error(
        "{wanted:?} is no netdev, rxe device, address or host name of this machine; netdevs: {found}"
    )]
    NoSuch {
        /// The device field of the entry.
        wanted: String,
        /// Netdevs that exist.
        found: String,
    },
    /// The entry names a loopback netdev.
    #[error(
        "ia_params: engine=kernel has no use for {wanted:?}: rdma_rxe takes no loopback netdev; write engine=user, or one of {found}"
    )]
    Loopback {
        /// The device field of the entry.
        wanted: String,
        /// Other netdevs.
        found: String,
    },
    /// The kernel did not create a device.
    #[error("netdev {netdev} has no rxe device, and none can be created: {reason}")]
    NotMade {
        /// The netdev.
        netdev: String,
        /// Error of the kernel, and what to type.
        #[source]
        reason: NewLinkError,
    },
}

impl KernelError {
    /// Returns the return code of dat_ia_open.
    #[must_use]
    pub fn code(&self) -> Error {
        match self {
            Self::Library(_) => Error::of(Kind::ProviderNotFound),
            Self::NoName { .. } | Self::NoSuch { .. } | Self::Loopback { .. } => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressMalformed)
            }
            Self::NotMade { reason, .. } if reason.is_permission() => {
                Error::of(Kind::PrivilegesViolation)
            }
            Self::NotMade { .. } => Error::resource(Subtype::ResourceDevice),
        }
    }
}

/// Loads libibverbs and librdmacm, and makes sure that `wanted` (a netdev, an address of one, a host name of one, or
/// an rxe device) has an rxe device.
///
/// # Errors
/// See [`KernelError`]; its text says what to do.
// Its buffers are off the stack when the adapter is opened.
#[inline(never)]
pub fn prepare(wanted: &str) -> Result<(), KernelError> {
    dat_verbs::load()?;
    let (sys, dev) = (Path::new("/sys/class"), Path::new("/dev"));
    prepare_in(sys, dev, wanted, netlink::new_link)
}

/// Makes sure that there is a device, and waits for its node: another process may have created the device a moment ago.
fn prepare_in(
    sys: &Path,
    dev: &Path,
    wanted: &str,
    new_link: impl FnMut(&str, &str) -> Result<(), NewLinkError>,
) -> Result<(), KernelError> {
    let find = |fits: &dyn Fn(&RxeDevice) -> bool| {
        let devices = find::rxe_devices(sys);
        devices.into_iter().find(fits).map(|device| device.name)
    };
    let mut name = find(&|device| device.name == wanted);
    if name.is_none() {
        let netdev = netdev_of(sys, wanted)?;
        let on_netdev = |device: &RxeDevice| device.netdev == netdev;
        name = find(&on_netdev);
        if name.is_none() {
            name = match create(sys, &netdev, new_link) {
                Ok(name) => {
                    tracing::info!("created rxe device {name} on netdev {netdev}");
                    Some(name)
                }
                // Another process created one meanwhile.
                Err(NewLinkError::Exists) => find(&on_netdev),
                Err(reason) => return Err(KernelError::NotMade { netdev, reason }),
            };
        }
    }
    if let Some(name) = name {
        await_device(sys, dev, &name);
    }
    Ok(())
}

/// Number of names that [`create`] tries.
const NAMES: usize = 64;

/// Creates an rxe device on `netdev` with `new_link`; returns its name. Another process may take a free name for another
/// netdev meanwhile, as when several ranks of a job open their IAs at once.
fn create(
    sys: &Path,
    netdev: &str,
    mut new_link: impl FnMut(&str, &str) -> Result<(), NewLinkError>,
) -> Result<String, NewLinkError> {
    let mut tried = Vec::new();
    loop {
        let name = find::free_name(sys, &tried);
        match new_link(&name, netdev) {
            Err(NewLinkError::NameTaken) if tried.len() < NAMES => tried.push(name),
            done => return done.map(|()| name),
        }
    }
}

/// Returns the netdev that `wanted` names.
fn netdev_of(sys: &Path, wanted: &str) -> Result<String, KernelError> {
    let netdevs = find::netdevs(sys);
    let found = || netdevs.join(", ");
    if wanted.is_empty() {
        return Err(KernelError::NoName { found: found() });
    }
    if netdevs.iter().any(|n| n == wanted) {
        return Ok(wanted.to_owned());
    }
    let loopback = || KernelError::Loopback {
        wanted: wanted.to_owned(),
        found: found(),
    };
    if wanted == LOOPBACK {
        return Err(loopback());
    }
    let addresses: Vec<IpAddr> = match wanted.parse() {
        Ok(ip) => vec![ip],
        Err(_) => (wanted, 0)
            .to_socket_addrs()
            .map(|list| list.map(|a| a.ip()).collect())
            .unwrap_or_default(),
    };
    if addresses.first().is_some_and(IpAddr::is_loopback) {
        return Err(loopback());
    }
    dat_verbs::local_addresses()
        .into_iter()
        .find(|(_, ip)| addresses.contains(ip))
        .map(|(netdev, _)| netdev)
        .ok_or_else(|| KernelError::NoSuch {
            wanted: wanted.to_owned(),
            found: found(),
        })
}

/// Waits until the device can be opened: udev creates its node below /dev.
fn await_device(sys: &Path, dev: &Path, name: &str) {
    let start = Instant::now();
    while !find::is_open_to_users(sys, dev, name) {
        if start.elapsed() > NODE_TIMEOUT {
            tracing::warn!(
                "rxe device {name} has no node below /dev/infiniband; is ib_uverbs loaded (`modprobe ib_uverbs`)?"
            );
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_node_of_a_device_that_another_process_makes_is_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let (sys, dev) = (root.path().join("sys"), root.path().join("dev"));
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        std::fs::create_dir_all(sys.join("net/v0")).unwrap();
        let node = dev.join("infiniband/uverbs0");
        std::fs::create_dir_all(node.parent().unwrap()).unwrap();
        std::thread::scope(|scope| {
            let other_process = |_: &str, _: &str| {
                write("sys/infiniband/rxe0/parent", "v0\n");
                write("sys/infiniband_verbs/uverbs0/ibdev", "rxe0\n");
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    write("dev/infiniband/uverbs0", "");
                });
                Err(NewLinkError::Exists)
            };
            prepare_in(&sys, &dev, "v0", other_process).unwrap();
            assert!(node.exists());
        });
        let unexpected = |_: &str, _: &str| Err(NewLinkError::NoRdma);
        for wanted in ["v0", "rxe0"] {
            std::fs::remove_file(&node).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    std::thread::sleep(Duration::from_millis(50));
                    write("dev/infiniband/uverbs0", "");
                });
                prepare_in(&sys, &dev, wanted, unexpected).unwrap();
                assert!(node.exists(), "{wanted}");
            });
        }
    }

    #[test]
    fn a_name_that_another_process_took_is_followed_by_the_next_one() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("infiniband/rxe1")).unwrap();
        // sysfs does not show rxe0 yet.
        let made = create(root.path(), "v0", |name, netdev| {
            assert_eq!(netdev, "v0");
            match name {
                "rxe0" => Err(NewLinkError::NameTaken),
                _ => Ok(()),
            }
        });
        assert_eq!(made, Ok("rxe2".to_owned()));
        let taken = || Err(NewLinkError::NameTaken);
        let none = create(root.path(), "v0", |_, _| taken());
        assert_eq!(none, Err(NewLinkError::NameTaken));
    }

    #[test]
    fn a_loopback_netdev_is_there_but_of_no_use() {
        let root = tempfile::tempdir().unwrap();
        for netdev in ["lo", "v0"] {
            std::fs::create_dir_all(root.path().join("net").join(netdev)).unwrap();
        }
        let of = |wanted: &str| netdev_of(root.path(), wanted);
        for wanted in ["lo", "127.0.0.1", "::1"] {
            let text = of(wanted).unwrap_err().to_string();
            assert!(text.starts_with("ia_params: engine=kernel "), "{text}");
            assert!(text.ends_with("or one of v0"), "{text}");
        }
        assert_eq!(of("v0").unwrap(), "v0");
        assert!(matches!(of("v9"), Err(KernelError::NoSuch { .. })));
    }
}
