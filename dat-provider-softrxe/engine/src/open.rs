//! Opening an adapter: settings, place, socket, helper thread. What fails is said in the log with what helps.

use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use dat_core::environment;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_core::ia_params::{IaParams, IaParamsError};
use dat_core::reserve;
use dat_core::upcall::Upcalls;
use parking_lot::Mutex;

use super::UserEngine;
use super::hub::Hub;
use super::net::capture::Capture;
use super::net::interface::{default_address, interfaces};
use super::net::port_share::PortShareError;
use super::objects::Adapter;
use super::place::{self, Place, PlaceError};
use super::secrets::Secrets;
use super::settings::{HONOURED, Settings};

/// Why an adapter does not open.
#[derive(Debug, thiserror::Error)]
enum OpenError {
    #[error(transparent)]
    Params(#[from] IaParamsError),
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error("cannot list the netdevs of this host: {0}")]
    Netdevs(#[source] io::Error),
    #[error(transparent)]
    Port(PortShareError),
    #[error("cannot open a RoCE socket on {address}: {error}")]
    Socket { address: IpAddr, error: io::Error },
    #[error(
        "pcap={}: {error}; each adapter writes a file of its own, %p in the name stands for the process", path.display()
    )]
    Pcap { path: PathBuf, error: io::Error },
    #[error(
        "the kernel gives no random numbers for keys and connections: {0}; is /dev/urandom there?"
    )]
    Random(#[source] getrandom::Error),
    #[error("cannot start the helper thread: {0}")]
    Thread(#[source] io::Error),
    #[error("the process has no memory left; raise `ulimit -v`, or open fewer adapters")]
    Memory,
}

impl OpenError {
    fn code(&self) -> Error {
        match self {
            Self::Params(_) | Self::Pcap { .. } => Error::of(Kind::InvalidParameter),
            Self::Place(PlaceError::NoSuch { .. }) => {
                Error::new(Kind::InvalidAddress, Subtype::InvalidAddressMalformed)
            }
            Self::Place(_) => Error::new(Kind::InvalidAddress, Subtype::InvalidAddressUnreachable),
            Self::Netdevs(_) | Self::Port(_) | Self::Socket { .. } | Self::Random(_) => {
                Error::resource(Subtype::ResourceDevice)
            }
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
    let env = |name: &str| std::env::var(name).ok();
    let settings = Settings::parse(params, env)?;
    environment::report(HONOURED, env);
    let place = locate(&params.device, params.port)?;
    let address = place.address;
    let capture = settings.pcap.as_deref().map(capture).transpose()?;
    let secrets = Secrets::draw().map_err(OpenError::Random)?;
    let hub =
        Hub::open(settings, place, capture, secrets, upcalls).map_err(|error| match error {
            PortShareError::Io(error) => OpenError::Socket { address, error },
            other => OpenError::Port(other),
        })?;
    // What a thread needs to begin is not ours to ask for: without it the C library ends the process.
    if !reserve::has_thread_room() {
        return Err(OpenError::Memory);
    }
    let helper = Arc::clone(&hub);
    let thread = std::thread::Builder::new()
        .name("dat-softrxe".into())
        .spawn(move || {
            dat_os::signals::block_asynchronous();
            helper.run();
        })
        .map_err(OpenError::Thread)?;
    Ok(Adapter {
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

fn locate(device: &str, port: u32) -> Result<Place, OpenError> {
    let interfaces = interfaces().map_err(OpenError::Netdevs)?;
    let resolve = |name: &str| {
        let found = (name, 0).to_socket_addrs();
        found.map_or_else(|_| Vec::new(), |list| list.map(|a| a.ip()).collect())
    };
    let place = place::find(device, port, &interfaces, default_address, resolve)?;
    Ok(place)
}
