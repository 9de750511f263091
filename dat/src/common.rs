//! Common service points: connections by socket address.

use std::net::SocketAddr;

use dat_abi::sockaddr;
use dat_abi::types::DAT_HANDLE_NULL;
use dat_abi::v2_0::types::{DatComm, DatCspParam};

use crate::error::Result;
use crate::sys::{Handle, call, free, query};
use crate::{Evd, Ia};

/// A common service point. It listens on a port of the adapter's address until it is dropped; its connections remain.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// let events = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
/// let listener = ia.listen_common(0, &events)?; // a free port
/// # let client = ia.endpoint(&pz).connect_evd(&events).create()?;
/// client.connect_common(listener.address()).private_data(b"hello").start()?;
/// let Event::Request(request) = events.wait(Duration::from_secs(60))? else { panic!() };
/// assert!(request.private_data().starts_with(b"hello"));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CommonListener {
    handle: Handle,
    address: SocketAddr,
    _evd: Evd,
    _ia: Ia,
}

impl Drop for CommonListener {
    fn drop(&mut self) {
        free!(self.handle, csp_free());
    }
}

impl CommonListener {
    pub(crate) fn create(ia: &Ia, port: u16, evd: &Evd) -> Result<Self> {
        let at = SocketAddr::new(ia.attributes()?.address, port);
        let mut comm = DatComm {
            domain: match at {
                SocketAddr::V4(_) => libc::AF_INET,
                SocketAddr::V6(_) => libc::AF_INET6,
            },
            r#type: libc::SOCK_STREAM,
            protocol: libc::IPPROTO_TCP,
        };
        let mut address = sockaddr::c_address(Some(at.ip()), 0, at.port());
        let mut handle = DAT_HANDLE_NULL;
        call!(
            ia.handle(),
            csp_create(
                &raw mut comm,
                address.as_mut_ptr().cast(),
                evd.handle().0,
                &raw mut handle
            )
        )?;
        let mut listener = Self {
            handle: Handle(handle),
            address: at,
            _evd: evd.clone(),
            _ia: ia.clone(),
        };
        if let Some(found) = listener.query()? {
            listener.address = found;
        }
        Ok(listener)
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the address on which it listens. If port 0 was requested, the provider selected the port.
    fn query(&self) -> Result<Option<SocketAddr>> {
        let param: DatCspParam = query!(self.handle, csp_query(0xf));
        // SAFETY: the address is NULL or valid as long as the object lives.
        Ok(unsafe { sockaddr::read(param.address_ptr.cast()) })
    }

    /// Returns the address to which peers connect.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Ia {
    /// Listens on `port` of the adapter's address, or on a free port if it is 0 (dat_csp_create). Requests are reported as
    /// [`Event::Request`](crate::Event::Request) to `evd`, which must accept `Streams::CR`. Peers call
    /// [`Ep::connect_common`](crate::Ep::connect_common).
    ///
    /// # Errors
    /// [`Error::AddressInUse`](crate::Error::AddressInUse), [`Error::WrongStreams`](crate::Error::WrongStreams),
    /// [`Error::Call`](crate::Error::Call).
    pub fn listen_common(&self, port: u16, evd: &Evd) -> Result<CommonListener> {
        CommonListener::create(self, port, evd)
    }
}
