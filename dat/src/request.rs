//! Connection requests.

use std::mem::MaybeUninit;
use std::net::IpAddr;

use dat_abi::types::DatCrParam;

use crate::attributes::address;
use crate::error::{Code, Error, Kind, Result};
use crate::ia::Ia;
use crate::sys::{Handle, call, free};

/// A connection request of a peer. It is rejected if it is dropped without an answer.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// # let events = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
/// # let listener = ia.listen(None, &events)?;
/// # let client = ia.endpoint(&pz).connect_evd(&events).create()?;
/// # client.connect(ia.attributes()?.address, listener.conn_qual()).private_data(b"guest").start()?;
/// let Event::Request(request) = events.wait(Duration::from_secs(60))? else { panic!() };
/// println!("{} calls {}", request.remote(), request.conn_qual());
/// if request.private_data().starts_with(b"guest") {
///     request.reject(b"members only")?;
/// } else {
///     let ep = ia.endpoint(&pz).connect_evd(&events).create()?;
///     request.accept(&ep, b"welcome")?;
/// }
/// # match events.wait(Duration::from_secs(60))? {
/// #     Event::PeerRejected { private_data, .. } => assert!(private_data.starts_with(b"members")),
/// #     other => panic!("{other:?}"),
/// # }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ConnRequest {
    pub(crate) handle: Handle,
    /// Whether the request was accepted, rejected or handed on.
    pub(crate) answered: bool,
    conn_qual: u64,
    is_datagram: bool,
    ia: Ia,
}

impl Drop for ConnRequest {
    fn drop(&mut self) {
        if !self.answered {
            free!(self.handle, cr_reject(0, std::ptr::null()));
        }
        // The endpoint of a reserved service point may have been waiting for this.
        self.ia.limbo().collect();
    }
}

/// Returns the error of a call with `length` bytes of private data; it names them if they are too many.
#[cold]
pub(crate) fn name_length(ia: &Ia, length: usize, error: Error) -> Error {
    if error.code().and_then(Code::kind) != Some(Kind::InvalidParameter) {
        return error;
    }
    match ia.attributes().map(|of| of.max_private_data as usize) {
        Ok(most) if length > most => Error::Length {
            what: "private data",
            length,
            most,
        },
        _ => error,
    }
}

impl ConnRequest {
    pub(crate) fn ia(&self) -> &Ia {
        &self.ia
    }

    pub(crate) fn new(ia: &Ia, handle: Handle, conn_qual: u64, is_datagram: bool) -> Self {
        Self {
            handle,
            answered: false,
            conn_qual,
            is_datagram,
            ia: ia.clone(),
        }
    }

    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    fn query(&self) -> Option<DatCrParam> {
        let mut param = MaybeUninit::<DatCrParam>::zeroed();
        call!(self.handle, cr_query(0x1f, param.as_mut_ptr())).ok()?;
        // SAFETY: zeroed, then filled by the provider; plain data.
        Some(unsafe { param.assume_init() })
    }

    /// Returns the connection qualifier to which the request came.
    #[must_use]
    pub fn conn_qual(&self) -> u64 {
        self.conn_qual
    }

    /// Returns true if the peer is a datagram endpoint; only one can accept the request.
    #[must_use]
    pub fn is_datagram(&self) -> bool {
        self.is_datagram
    }

    /// Returns the peer's port or qualifier (dat_cr_query).
    #[must_use]
    pub fn remote_port(&self) -> u64 {
        self.query().map_or(0, |p| p.remote_port_qual)
    }

    /// Hands the request to another service point of the adapter (dat_cr_handoff), whose dispatcher gets it as a new event.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Event, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let pz = ia.create_pz()?;
    /// # let client_events = ia.create_evd(8, Streams::CONNECTION)?;
    /// # let client = ia.endpoint(&pz).connect_evd(&client_events).create()?;
    /// # let patience = Duration::from_secs(60);
    /// let (door, office) = (ia.create_evd(8, Streams::CR)?, ia.create_evd(8, Streams::CR)?);
    /// let (outer, inner) = (ia.listen(None, &door)?, ia.listen(None, &office)?);
    /// # client.connect(ia.attributes()?.address, outer.conn_qual()).start()?;
    /// let Event::Request(request) = door.wait(patience)? else { panic!() };
    /// request.hand_off(inner.conn_qual())?;
    /// let Event::Request(request) = office.wait(patience)? else { panic!() };
    /// assert_eq!(request.conn_qual(), inner.conn_qual());
    /// # request.reject(b"")?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::AddressInUse`](crate::Error::AddressInUse) if nothing listens there; [`Error::Call`](crate::Error::Call).
    pub fn hand_off(mut self, conn_qual: u64) -> Result<()> {
        call!(self.handle, cr_handoff(conn_qual))?;
        self.answered = true;
        Ok(())
    }

    /// Returns the peer's address.
    #[must_use]
    pub fn remote(&self) -> IpAddr {
        address(self.query().map_or(std::ptr::null(), |p| {
            p.remote_ia_address_ptr.cast_const().cast()
        }))
    }

    /// Returns the peer's private data, which some transports pad with zeros.
    #[must_use]
    pub fn private_data(&self) -> Vec<u8> {
        let Some(param) = self.query() else {
            return Vec::new();
        };
        match usize::try_from(param.private_data_size) {
            Ok(size) if size > 0 && !param.private_data.is_null() => {
                // SAFETY: the provider keeps this many bytes until the request is answered.
                unsafe { std::slice::from_raw_parts(param.private_data.cast::<u8>(), size) }
                    .to_vec()
            }
            _ => Vec::new(),
        }
    }

    /// Rejects the request (dat_cr_reject); the peer gets `private_data`.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length), [`Error::Call`](crate::Error::Call); the request is rejected without private data then.
    pub fn reject(mut self, private_data: &[u8]) -> Result<()> {
        let size = i32::try_from(private_data.len()).unwrap_or(i32::MAX);
        call!(self.handle, cr_reject(size, private_data.as_ptr().cast()))
            .map_err(|error| name_length(&self.ia, private_data.len(), error))?;
        self.answered = true;
        Ok(())
    }
}
