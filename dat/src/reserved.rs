//! Reserved service points: one endpoint for one connection.

use dat_abi::types::{DAT_HANDLE_NULL, DatRspParam};

use crate::ep::Ep;
use crate::error::Result;
use crate::evd::Evd;
use crate::ia::Ia;
use crate::sys::{Handle, call, free, query};

/// A reserved service point: the next request to its qualifier gets its endpoint. It ends with the request, or when it is dropped.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// # let patience = Duration::from_secs(60);
/// let events = ia.create_evd(64, Streams::CR | Streams::CONNECTION | Streams::DTO)?;
/// let endpoint = || ia.endpoint(&pz).recv_evd(&events).request_evd(&events).connect_evd(&events).create();
/// let ep = endpoint()?; // made before the peer comes; receives may be posted already
/// # let qualifier = 0x7000 + u64::from(std::process::id() % 0x800);
/// let reserved = ia.listen_reserved(qualifier, &ep, &events)?;
/// # let client = endpoint()?;
/// # client.connect(ia.attributes()?.address, qualifier).start()?;
/// let Event::Request(request) = events.wait(patience)? else { panic!() };
/// request.accept_reserved(b"")?; // on `ep`
/// assert!(matches!(events.wait(patience)?, Event::Established { .. }));
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ReservedListener {
    handle: Handle,
    conn_qual: u64,
    ep: Ep,
    _evd: Evd,
}

impl Drop for ReservedListener {
    fn drop(&mut self) {
        free!(self.handle, rsp_free());
    }
}

impl ReservedListener {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns the connection qualifier to which a peer connects.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.conn_qual
    }

    /// Returns the endpoint that is reserved.
    #[must_use]
    pub fn ep(&self) -> &Ep {
        &self.ep
    }

    /// Queries the service point (dat_rsp_query) and returns its connection qualifier.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn query(&self) -> Result<u64> {
        let param: DatRspParam = query!(self.handle, rsp_query(0xf));
        Ok(param.conn_qual)
    }
}

impl Ia {
    /// Reserves `ep` for the next request to `conn_qual` (dat_rsp_create), which is reported to `evd`. Answer it by
    /// [`ConnRequest::accept_reserved`](crate::ConnRequest::accept_reserved) or by a rejection.
    ///
    /// # Errors
    /// [`Error::AddressInUse`](crate::Error::AddressInUse), [`Error::State`](crate::Error::State),
    /// [`Error::Call`](crate::Error::Call).
    pub fn listen_reserved(&self, conn_qual: u64, ep: &Ep, evd: &Evd) -> Result<ReservedListener> {
        ep.begin_connection();
        let mut handle = DAT_HANDLE_NULL;
        call!(
            self.handle(),
            rsp_create(conn_qual, ep.handle().0, evd.handle().0, &raw mut handle)
        )?;
        Ok(ReservedListener {
            handle: Handle(handle),
            conn_qual,
            ep: ep.clone(),
            _evd: evd.clone(),
        })
    }
}
