//! Connection attempts.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dat_abi::sockaddr;
use dat_abi::types::DAT_TIMEOUT_INFINITE;

use super::Ep;
use crate::error::{Error, Result};
use crate::request::{ConnRequest, name_length};
use crate::sys::{self, call, count};

/// Parameters of a connection attempt (dat_ep_connect, dat_ep_common_connect, dat_ep_dup_connect).
///
/// ```
/// use std::time::Duration;
/// use udapl::{ConnectionEvent, Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// # let events = ia.create_evd(64, Streams::CONNECTION)?;
/// let ep = ia.endpoint(&pz).connect_evd(&events).create()?;
/// let attempt = ep.connect(ia.attributes()?.address, 31_997).private_data(b"who I am");
/// attempt.timeout(Duration::from_secs(5)).start()?;
/// match events.wait(Duration::from_secs(60))? {
///     Event::Established { private_data, .. } => println!("the peer answered {private_data:?}"),
///     Event::PeerRejected { private_data, .. } => println!("the peer's program said {private_data:?}"),
///     Event::Ended { how: ConnectionEvent::NonPeerRejected, .. } => println!("nothing listens there"),
///     Event::Ended { how: ConnectionEvent::TimedOut, .. } => println!("no answer in time"),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct Connect<'a> {
    ep: &'a Ep,
    to: To<'a>,
    private_data: &'a [u8],
    timeout: Duration,
    qos: u32,
    multipath: bool,
}

/// Where an attempt goes.
#[derive(Clone, Copy, Debug)]
enum To<'a> {
    Qualifier(IpAddr, u64),
    Port(SocketAddr),
    PeerOf(&'a Ep),
}

impl<'a> Connect<'a> {
    /// Sets the private data that the peer's request event carries.
    pub fn private_data(mut self, bytes: &'a [u8]) -> Self {
        self.private_data = bytes;
        self
    }

    /// Sets the time after which the attempt fails, at most 71 minutes; by default, and with `Duration::MAX`, it does not time out.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the quality of service, a number of the specification (`DAT_QOS`); 0 is best effort.
    pub fn quality_of_service(mut self, qos: u32) -> Self {
        self.qos = qos;
        self
    }

    /// Asks for several paths (`DAT_CONNECT_MULTIPATH_FLAG`), which a provider may not support.
    pub fn multipath(mut self) -> Self {
        self.multipath = true;
        self
    }

    /// Starts the attempt. Its result is an event of the connection dispatcher; an endpoint without one gets none.
    ///
    /// # Errors
    /// [`Error::TimeLimit`](crate::Error::TimeLimit) (also for a limit of no time), [`Error::Length`](crate::Error::Length) for more
    /// private data than `Attributes::max_private_data`, [`Error::Unreachable`](crate::Error::Unreachable),
    /// [`Error::State`](crate::Error::State), [`Error::Call`](crate::Error::Call).
    pub fn start(self) -> Result<()> {
        let name = match self.to {
            To::Qualifier(..) => "dat_ep_connect",
            To::Port(_) => "dat_ep_common_connect",
            To::PeerOf(_) => "dat_ep_dup_connect",
        };
        let timeout = match self.timeout {
            Duration::MAX => DAT_TIMEOUT_INFINITE,
            limit => sys::timeout(name, limit)?,
        };
        if timeout == 0 {
            return Err(Error::TimeLimit {
                call: name,
                given: self.timeout,
                most: Duration::from_micros(u64::from(DAT_TIMEOUT_INFINITE - 1)),
            });
        }
        self.ep.begin_connection();
        let size = count(self.private_data.len());
        let data = self.private_data.as_ptr().cast();
        let handle = self.ep.handle();
        let started = match self.to {
            To::Qualifier(ip, qual) => {
                let mut address = sockaddr::c_address(Some(ip), 0, 0);
                let to = address.as_mut_ptr().cast();
                let flags = u32::from(self.multipath);
                call!(
                    handle,
                    ep_connect(to, qual, timeout, size, data, self.qos, flags)
                )
            }
            To::Port(at) => {
                let mut address = sockaddr::c_address(Some(at.ip()), 0, at.port());
                let to = address.as_mut_ptr().cast();
                call!(handle, ep_common_connect(to, timeout, size, data))
            }
            To::PeerOf(other) => call!(
                handle,
                ep_dup_connect(other.handle().0, timeout, size, data, self.qos)
            ),
        };
        started.map_err(|error| name_length(self.ep.pz().ia(), self.private_data.len(), error))
    }
}

impl Ep {
    fn attempt<'a>(&'a self, to: To<'a>) -> Connect<'a> {
        Connect {
            ep: self,
            to,
            private_data: &[],
            timeout: Duration::MAX,
            qos: 0,
            multipath: false,
        }
    }

    /// Returns the parameters of a connection to `conn_qual` at `remote`; [`Connect::start`] starts it.
    pub fn connect(&self, remote: IpAddr, conn_qual: u64) -> Connect<'_> {
        self.attempt(To::Qualifier(remote, conn_qual))
    }

    /// Returns the parameters of a connection to a common service point (dat_ep_common_connect), which the peer made by
    /// [`Ia::listen_common`](crate::Ia::listen_common).
    pub fn connect_common(&self, remote: SocketAddr) -> Connect<'_> {
        self.attempt(To::Port(remote))
    }

    /// Returns the parameters of a connection to the peer of another endpoint (dat_ep_dup_connect), which is connected.
    ///
    /// ```
    /// use std::time::Duration;
    /// use udapl::{Event, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let patience = Duration::from_secs(60);
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let pz = ia.create_pz()?;
    /// let events = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
    /// let listener = ia.listen(None, &events)?;
    /// let endpoint = || ia.endpoint(&pz).connect_evd(&events).create();
    /// let (first, second, server) = (endpoint()?, endpoint()?, endpoint()?);
    /// first.connect(ia.attributes()?.address, listener.conn_qual()).start()?;
    /// let Event::Request(request) = events.wait(patience)? else { panic!() };
    /// request.accept(&server, b"")?;
    /// # for _ in [&first, &server] {
    /// #     assert!(matches!(events.wait(patience)?, Event::Established { .. }));
    /// # }
    ///
    /// // When it is established, another connection to the same listener needs no address:
    /// second.connect_as(&first).start()?;
    /// assert!(matches!(events.wait(patience)?, Event::Request(_)));
    /// # Ok(())
    /// # }
    /// ```
    pub fn connect_as<'a>(&'a self, other: &'a Self) -> Connect<'a> {
        self.attempt(To::PeerOf(other))
    }
}

impl ConnRequest {
    /// Accepts the request on `ep` (dat_cr_accept). The result is an event of its connection dispatcher.
    ///
    /// # Errors
    /// [`Error::Length`](crate::Error::Length) for more private data than `Attributes::max_private_data`,
    /// [`Error::Call`](crate::Error::Call); the request is rejected then.
    pub fn accept(mut self, ep: &Ep, private_data: &[u8]) -> Result<()> {
        ep.begin_connection();
        self.accept_with(ep.handle().0, private_data)
    }

    /// Accepts the request of a reserved service point, on the endpoint that is reserved for it.
    ///
    /// # Errors
    /// As [`ConnRequest::accept`].
    pub fn accept_reserved(mut self, private_data: &[u8]) -> Result<()> {
        self.accept_with(dat_abi::types::DAT_HANDLE_NULL, private_data)
    }

    fn accept_with(&mut self, ep: usize, private_data: &[u8]) -> Result<()> {
        let (size, data) = (count(private_data.len()), private_data.as_ptr().cast());
        call!(self.handle, cr_accept(ep, size, data))
            .map_err(|error| name_length(self.ia(), private_data.len(), error))?;
        self.answered = true;
        Ok(())
    }
}
