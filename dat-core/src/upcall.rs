//! Reports of a transport to core. A thread makes them without a lock that a method of the trait takes, and never inside a
//! method except [`Transport::park`]. Each call is short and never blocks on a consumer.

mod logged;

use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};

use crate::ah::Ah;
use crate::ep::Ep;
use crate::evd;
use crate::event::AsyncEvent;
use crate::head::raw;
use crate::ia;
use crate::sp::Sp;
use crate::srq::Srq;
use crate::transport::{Token, Transport};
use logged::Logged;

/// Interface of core for the reports of one IA's transport. Freely copied; calls for an IA that is closed are
/// ignored.
#[derive(Debug)]
pub struct Upcalls<T: Transport> {
    ia: Token,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Clone for Upcalls<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for Upcalls<T> {}

/// Outcome of an attempt to connect, or end of a connection. Transports queue this type and pass it to
/// [`Upcalls::connection`]; the endpoint's state machine takes it as
/// [`Input::Transport`](crate::ep::state::Input::Transport) and chooses the event.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ConnOutcome {
    /// Both sides are connected.
    Established,
    /// The peer's consumer rejected the request.
    PeerRejected,
    /// The peer has no listener, or its provider rejected the request.
    NonPeerRejected,
    /// The address has no route, or the peer does not answer.
    Unreachable,
    /// The accept of the passive side failed.
    AcceptError,
    /// The peer disconnected, or the disconnect of this side is done.
    Disconnected,
    /// Retries are used up, a protection error occurred, or the device is gone.
    Broken,
}

impl ConnOutcome {
    /// Every outcome.
    pub const ALL: [Self; 7] = [
        Self::Established,
        Self::PeerRejected,
        Self::NonPeerRejected,
        Self::Unreachable,
        Self::AcceptError,
        Self::Disconnected,
        Self::Broken,
    ];

    /// Returns true if private data of the peer comes with this outcome.
    #[must_use]
    pub const fn has_private_data(self) -> bool {
        matches!(self, Self::Established | Self::PeerRejected)
    }
}

/// Connection request that arrived at a service point.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// Address and port of the peer.
    pub remote: SocketAddr,
    /// Local address that the request was sent to.
    pub local: IpAddr,
    /// Private data of the peer as it arrived (with padding, if the wire format has it).
    pub private_data: &'a [u8],
    /// True if the request came from a datagram queue pair (IB extension).
    pub datagram: bool,
}

/// Outcome of the lookup of a datagram peer (IB extension).
#[derive(Debug)]
pub enum DatagramOutcome<T: Transport> {
    /// The peer is found: datagrams can be sent to it.
    Resolved {
        /// Address handle of the peer.
        address: T::AddressHandle,
        /// Queue pair number of the peer.
        qpn: u32,
        /// IA address and port of the peer.
        remote: SocketAddr,
        /// Private data of dat_cr_accept; ignored on the passive side, where core has the data of the request.
        private_data: Box<[u8]>,
    },
    /// The peer's consumer rejected the request.
    PeerRejected {
        /// Private data of dat_cr_reject.
        private_data: Box<[u8]>,
    },
    /// The peer has no listener. Core repeats the lookup a few times: real programs start to listen and to connect at
    /// the same time (dtestx), and DAPL's scm provider retries too.
    NoListener,
    /// The address has no route, the peer does not answer, or the request was rejected, but not by the peer's consumer.
    Failed,
}

/// Fault of an adapter or of an object. Later versions may add some.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Fault {
    /// The device is gone; every endpoint is broken.
    Adapter,
    /// The endpoint of that token broke, and no connection event reports it.
    Ep(Token),
    /// A completion queue overran; the token is that of `create_cq`.
    CqOverflow(Token),
    /// An SRQ has fewer receives than its low watermark; the token is that of `create_srq`.
    SrqLow(Token),
    /// The last receive of an endpoint on an SRQ was consumed (`LAST_WQE_REACHED`).
    LastReceive(Token),
}

impl<T: Transport> Upcalls<T> {
    /// Makes the interface for the IA of the token `ia`.
    #[must_use]
    pub const fn new(ia: Token) -> Self {
        Self {
            ia,
            transport: PhantomData,
        }
    }

    /// Reports a request at the service point `sp` (the token given to `listen`). Core refuses it by dropping it if
    /// no consumer can get it.
    pub fn connect_request(&self, sp: Token, request: T::ConnRequest, arrival: &Arrival<'_>) {
        tracing::debug!(?sp, "connection request {}", Logged(arrival));
        Sp::<T>::request(sp, request, arrival);
    }

    /// Reports an outcome for the connection `ep` (the token given to `connect` or `accept`). `private_data` is that of
    /// dat_cr_accept (empty on the passive side) or of dat_cr_reject, as it arrived; it is ignored unless `outcome`
    /// [has private data](ConnOutcome::has_private_data).
    pub fn connection(&self, ep: Token, outcome: ConnOutcome, private_data: &[u8]) {
        tracing::debug!(?ep, ?outcome, "connection");
        Ep::<T>::transport_outcome(ep, outcome, private_data);
    }

    /// Reports the outcome of the lookup `ah` (the token given to `connect` or `accept` of a datagram queue pair).
    pub fn datagram(&self, ah: Token, outcome: DatagramOutcome<T>) {
        // The outcome has private data.
        let found = matches!(outcome, DatagramOutcome::Resolved { .. });
        tracing::debug!(?ah, found, "datagram peer");
        Ah::<T>::lookup_ended(ah, outcome);
    }

    /// Reports a completion in a watched completion queue (the token given to `create_cq`).
    pub fn cq_ready(&self, evd: Token) {
        evd::cq_ready::<T>(evd);
    }

    /// Reports a fault.
    pub fn fault(&self, fault: Fault) {
        tracing::debug!(ia = ?self.ia, ?fault, "fault");
        match fault {
            Fault::Adapter => self.adapter_lost(),
            Fault::Ep(ep) => Ep::<T>::broken(ep),
            Fault::CqOverflow(evd) => evd::cq_overflow::<T>(evd),
            Fault::SrqLow(srq) => Srq::<T>::low(srq),
            Fault::LastReceive(ep) => Ep::<T>::last_receive(ep),
        }
    }

    /// Breaks every connection of the IA and posts the reason to its asynchronous EVD.
    fn adapter_lost(&self) {
        let Some(ia) = ia::by_token::<T>(self.ia) else {
            return;
        };
        T::arenas().ep.for_each(|_, ep| {
            if ep.head.alive() && std::ptr::eq(ep.ia(), ia) {
                ep.break_now();
            }
        });
        ia.post_async(AsyncEvent::IaCatastrophic, raw(ia), 0);
    }
}
