//! Opens an adapter: settings, local address, socket, helper thread. The log says what failed and what helps.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU32;

use dat_arena::Mutex;
use dat_core::environment;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::ia_params::{IaParams, IaParamsError};
use dat_core::reserve;
use dat_core::upcall::Upcalls;
use softrxe_port::port_share::PortShareError;

use super::convert::lack_of_descriptors;
use super::objects::{Adapter, Helper};
use super::run_upcall::Core;
use crate::adapter::hub::Hub;
use crate::adapter::lanes::Lanes;
use crate::adapter::own_end;
use crate::address::interface::{default_address, interfaces};
use crate::address::local_address::{self, LocalAddress, LocalAddressError};
use crate::link::capture::Capture;
use crate::secrets::Secrets;
use crate::settings::{READ_VARIABLES, Settings};
use crate::user_engine::UserEngine;

/// Why an adapter does not open.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Params(#[from] IaParamsError),
    #[error(transparent)]
    LocalAddress(#[from] LocalAddressError),
    #[error("cannot list the netdevs of this host: {0}")]
    Netdevs(#[source] io::Error),
    #[error(transparent)]
    Port(PortShareError),
    /// The socket of the adapter, or what it takes beside that.
    #[error(
        "cannot open an adapter on {address}, which takes sockets, epoll_create1(2), eventfd(2) and timerfd_create(2): {error}"
    )]
    System { address: IpAddr, error: io::Error },
    #[error("cannot open an adapter, which takes some 20 descriptors: {0}")]
    Descriptors(&'static str),
    /// The netdev has lost the address since it was found, or has not got it yet.
    #[error(
        "{address} cannot be used now: after it is added, an IPv6 address is checked for duplicates for a second or two \
         (`ip addr show tentative`); try again"
    )]
    NotYet { address: IpAddr },
    #[error("pcap={}: {error}; {}", path.display(), remedy_of_pcap(error))]
    Pcap { path: PathBuf, error: io::Error },
    #[error(
        "the kernel gives no random numbers for keys and connections: {0}; is /dev/urandom there?"
    )]
    Random(#[source] getrandom::Error),
    #[error(
        "cannot start the helper thread of the adapter: {0}; raise `ulimit -u` or the control group's pids.max, or open fewer adapters"
    )]
    Thread(#[source] io::Error),
    #[error("the process has no memory left; raise `ulimit -v`, or open fewer adapters")]
    Memory,
}

/// Says what to do about a capture that cannot be written.
fn remedy_of_pcap(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::WouldBlock => {
            "another adapter writes it: each needs a file of its own, %p in the name stands for the process"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            "make room, raise the limit, or name a file elsewhere"
        }
        _ => {
            "name a regular file of this user in a folder that exists, or one that this user can create"
        }
    }
}

impl OpenError {
    fn code(&self) -> Error {
        match self {
            Self::Params(_) | Self::Pcap { .. } => Error::of(Kind::InvalidParameter),
            Self::LocalAddress(LocalAddressError::NoSuch { .. }) => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressMalformed)
            }
            Self::LocalAddress(_) | Self::NotYet { .. } => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressUnreachable)
            }
            Self::Netdevs(_)
            | Self::Port(_)
            | Self::System { .. }
            | Self::Descriptors(_)
            | Self::Random(_) => Error::resource(Subtype::ResourceDevice),
            Self::Thread(_) | Self::Memory => Error::resource(Subtype::ResourceMemory),
        }
    }
}

/// Opens the adapter that `params` describe.
pub(super) fn open(
    ia_name: &str,
    params: &IaParams,
    upcalls: Upcalls<UserEngine>,
) -> Result<Adapter> {
    attempt(params, upcalls).map_err(|error| {
        tracing::error!(ia = ia_name, "{error}");
        error.code()
    })
}

fn attempt(params: &IaParams, upcalls: Upcalls<UserEngine>) -> Result<Adapter, OpenError> {
    // Before the threads that will use the adapter begin, as the kernel then needs no time for it.
    dat_arena::permit_owners();
    let env = |name: &str| std::env::var(name).ok();
    let settings = Settings::parse(params, env)?;
    environment::report(READ_VARIABLES, env);
    let local_address = locate(&params.device, params.port)?;
    let capture = settings.pcap.as_deref().map(capture).transpose()?;
    let first = open_lane(&settings, &local_address, capture, upcalls)?;
    let mut helpers = vec![first];
    // The first lane answers for the port, if this process holds it.
    for _ in 1..settings.lanes {
        helpers.push(open_lane(&settings, &local_address, None, upcalls)?);
    }
    let hubs = helpers.iter().map(|helper| Arc::clone(&helper.hub));
    Ok(Adapter {
        lanes: Arc::new(Lanes::new(hubs.collect())),
        helpers: helpers.into(),
        last_pd: AtomicU32::new(0),
    })
}

/// Converts the error of the socket or the port of `address`.
fn port_error(address: IpAddr, error: PortShareError) -> OpenError {
    if let PortShareError::Io(error) | PortShareError::Lock(error) = &error
        && let Some(lack) = lack_of_descriptors(error)
    {
        return OpenError::Descriptors(lack);
    }
    match error {
        PortShareError::Io(error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
            OpenError::NotYet { address }
        }
        PortShareError::Io(error) => OpenError::System { address, error },
        other => OpenError::Port(other),
    }
}

/// Opens a lane and starts its helper thread.
fn open_lane(
    settings: &Settings,
    local_address: &LocalAddress,
    capture: Option<Capture>,
    upcalls: Upcalls<UserEngine>,
) -> Result<Helper, OpenError> {
    let address = local_address.address;
    let secrets = Secrets::draw().map_err(OpenError::Random)?;
    let core = Box::new(Core::new(upcalls));
    let hub = Hub::open(
        settings.clone(),
        local_address.clone(),
        capture,
        secrets,
        core,
    );
    let hub = hub.map_err(|error| port_error(address, error))?;
    // The C library allocates what a thread begins with, and ends the process if it cannot.
    if !reserve::has_thread_room() {
        return Err(OpenError::Memory);
    }
    let helper = Arc::clone(&hub);
    let builder = std::thread::Builder::new().name("dat-softrxe".into());
    let thread =
        dat_os::signals::spawn(builder, move || helper.run()).map_err(OpenError::Thread)?;
    own_end::add(&hub);
    Ok(Helper {
        hub,
        thread: Mutex::new(Some(thread)),
    })
}

fn capture(path: &Path) -> Result<Capture, OpenError> {
    Capture::create(path).map_err(|error| OpenError::Pcap {
        path: path.to_owned(),
        error,
    })
}

fn locate(device: &str, port: u32) -> Result<LocalAddress, OpenError> {
    let interfaces = interfaces().map_err(|error| match lack_of_descriptors(&error) {
        Some(lack) => OpenError::Descriptors(lack),
        None => OpenError::Netdevs(error),
    })?;
    let resolve = |name: &str| {
        let found = (name, 0).to_socket_addrs();
        found.map_or_else(|_| Vec::new(), |list| list.map(|a| a.ip()).collect())
    };
    let found = local_address::find(device, port, &interfaces, default_address, resolve)?;
    Ok(found)
}

/// Opens a hub on a loopback address, without a helper thread.
#[cfg(test)]
pub(crate) fn test_hub(address: &str) -> Arc<Hub> {
    use dat_core::transport::Token;

    let settings = Settings::parse(&IaParams::default(), |_| None).unwrap();
    let local_address = LocalAddress {
        address: address.parse().unwrap(),
        netdev: "lo".into(),
        mtu: 4096,
    };
    let core = Box::new(Core::new(Upcalls::new(Token::default())));
    let secrets = Secrets::draw().unwrap();
    Hub::open(settings, local_address, None, secrets, core).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Before its check for duplicates is over, a netdev lists an IPv6 address to which no socket can be bound.
    #[test]
    fn an_address_that_cannot_be_bound_yet_is_no_lack_of_resources() {
        let address = "fd09::1".parse().unwrap();
        let error = io::Error::from_raw_os_error(libc::EADDRNOTAVAIL);
        let error = port_error(address, PortShareError::Io(error));
        let unreachable = Error::new(Kind::InvalidAddress, Subtype::InvalidAddressUnreachable);
        assert_eq!(error.code(), unreachable);
        assert!(error.to_string().contains("tentative"), "{error}");
    }

    /// The message for the lock would send the reader to the seccomp filter.
    #[test]
    fn a_lack_of_descriptors_is_told_wherever_it_happens() {
        let address = "127.0.0.1".parse().unwrap();
        for error in [PortShareError::Io, PortShareError::Lock] {
            for (code, remedy) in [(libc::EMFILE, "ulimit -n"), (libc::ENFILE, "fs.file-max")] {
                let error = port_error(address, error(io::Error::from_raw_os_error(code)));
                assert_eq!(error.code(), Error::resource(Subtype::ResourceDevice));
                assert!(error.to_string().contains(remedy), "{error}");
            }
            let denied = port_error(address, error(io::Error::from_raw_os_error(libc::EPERM)));
            assert!(denied.to_string().contains("_create"), "{denied}");
        }
    }

    /// A daemon may run without standard input. If an engine had its number, a `dup2` of /dev/null would take a socket away from it.
    #[test]
    fn a_program_without_standard_input_gets_no_descriptor_of_an_engine_in_its_place() {
        const ROLE: &str = "DAT_WITHOUT_INPUT";
        if std::env::var_os(ROLE).is_some() {
            // SAFETY: nothing in this process reads standard input.
            assert_eq!(unsafe { libc::close(libc::STDIN_FILENO) }, 0);
            let pcap = std::env::temp_dir().join(format!("dat-input-{}", std::process::id()));
            let capture = capture(&pcap).unwrap();
            let hubs = [(); 2].map(|()| test_hub("127.67.11.1"));
            std::fs::remove_file(pcap).unwrap();
            let taken = std::fs::read_link("/proc/self/fd/0");
            assert!(taken.is_err(), "{taken:?}");
            drop((hubs, capture));
            return;
        }
        let (_, module) = module_path!().split_once("::").unwrap();
        let test = "a_program_without_standard_input_gets_no_descriptor_of_an_engine_in_its_place";
        let mut program = std::process::Command::new(std::env::current_exe().unwrap());
        program.args(["--exact", &format!("{module}::{test}")]);
        let output = program.env(ROLE, "1").output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(said.contains("1 passed"), "{said}");
    }
}
