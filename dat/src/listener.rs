//! Public service points: connections by connection qualifier.

use dat_abi::types::{DAT_HANDLE_NULL, DatPspParam};

use crate::error::Result;
use crate::evd::Evd;
use crate::ia::Ia;
use crate::sys::{Handle, call, free, query};

/// A public service point. It listens until it is dropped; its connections remain.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// let events = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
/// let listener = ia.listen(None, &events)?; // or Some(4000)
/// println!("peers connect to {} {}", ia.attributes()?.address, listener.conn_qual());
/// # let client = ia.endpoint(&pz).connect_evd(&events).create()?;
/// # client.connect(ia.attributes()?.address, listener.conn_qual()).start()?;
/// let Event::Request(request) = events.wait(Duration::from_secs(60))? else { panic!() };
/// let ep = ia.endpoint(&pz).connect_evd(&events).create()?;
/// request.accept(&ep, b"")?;
/// drop(listener); // no more peers; the connection remains
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Listener {
    handle: Handle,
    conn_qual: u64,
    _evd: Evd,
    _ia: Ia,
}

impl Drop for Listener {
    fn drop(&mut self) {
        free!(self.handle, psp_free());
    }
}

impl Listener {
    pub(crate) fn create(ia: &Ia, conn_qual: Option<u64>, evd: &Evd) -> Result<Self> {
        let mut handle = DAT_HANDLE_NULL;
        let mut qual = conn_qual.unwrap_or(0);
        match conn_qual {
            Some(qual) => call!(
                ia.handle(),
                psp_create(qual, evd.handle().0, 0, &raw mut handle)
            )?,
            None => call!(
                ia.handle(),
                psp_create_any(&raw mut qual, evd.handle().0, 0, &raw mut handle)
            )?,
        }
        Ok(Self {
            handle: Handle(handle),
            conn_qual: qual,
            _evd: evd.clone(),
            _ia: ia.clone(),
        })
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Queries the service point (dat_psp_query) and returns its connection qualifier.
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn query(&self) -> Result<u64> {
        let param: DatPspParam = query!(self.handle, psp_query(0xf));
        Ok(param.conn_qual)
    }

    /// Returns the connection qualifier to which peers connect.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.conn_qual
    }
}

impl Ia {
    /// Listens on `conn_qual` (dat_psp_create), or on a free one (dat_psp_create_any). Requests are reported as
    /// [`Event::Request`](crate::Event::Request) to `evd`, which must accept `Streams::CR`.
    ///
    /// # Errors
    /// [`Error::AddressInUse`](crate::Error::AddressInUse), [`Error::WrongStreams`](crate::Error::WrongStreams),
    /// [`Error::Call`](crate::Error::Call).
    pub fn listen(&self, conn_qual: Option<u64>, evd: &Evd) -> Result<Listener> {
        Listener::create(self, conn_qual, evd)
    }
}
