//! Common service points: connections by socket address, as programs of sockets name their peers.

use std::mem::MaybeUninit;
use std::net::SocketAddr;

use dat_abi::sockaddr;
use dat_abi::types::DAT_HANDLE_NULL;
use dat_abi::v2_0::types::{DatComm, DatCspParam};

use crate::error::Result;
use crate::sys::{Handle, call, free};
use crate::{Evd, Ia};

/// A common service point: listens at a port of the adapter's address until it is dropped. Connections that it brought stay.
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
        let mut room = sockaddr::room(Some(at.ip()), 0, at.port());
        let mut handle = DAT_HANDLE_NULL;
        call!(
            ia.handle(),
            csp_create(
                &raw mut comm,
                room.as_mut_ptr().cast(),
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

    /// Where it listens: with port 0 asked for, the provider found one.
    fn query(&self) -> Result<Option<SocketAddr>> {
        let mut param = MaybeUninit::<DatCspParam>::zeroed();
        call!(self.handle, csp_query(0xf, param.as_mut_ptr()))?;
        // SAFETY: zeroed, then filled by the provider; plain data. The address is NULL or stays as long as the object.
        Ok(unsafe { sockaddr::read(param.assume_init().address_ptr.cast()) })
    }

    /// Where peers connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Ia {
    /// Listens at `port` of the adapter's address, or with 0 at a free one (dat_csp_create). Requests come as
    /// [`Event::Request`](crate::Event::Request) to `evd`, which must take `Streams::CR`. Peers call
    /// [`Ep::connect_common`](crate::Ep::connect_common).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call), e.g. `DAT_PORT_IN_USE`.
    pub fn listen_common(&self, port: u16, evd: &Evd) -> Result<CommonListener> {
        CommonListener::create(self, port, evd)
    }
}
