//! What a transport tells core. Called from the transport's threads with none of its locks held; each
//! call is quick and never blocks on a consumer.

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

/// The way back into core for one IA. Freely copied; calls for an IA that is closed are ignored.
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

/// What happened to a connection, or to the attempt to make one. `private_data` as it arrived.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnInput<'a> {
    /// Both sides are connected.
    Established {
        /// The peer's, from dat_cr_accept; empty on the passive side.
        private_data: &'a [u8],
    },
    /// The peer's consumer refused.
    PeerRejected {
        /// From dat_cr_reject.
        private_data: &'a [u8],
    },
    /// Nobody listens, or the provider at the other end refused.
    NonPeerRejected,
    /// No route, no answer.
    Unreachable,
    /// The passive side's accept failed.
    AcceptError,
    /// The peer disconnected, or our own disconnect is done.
    Disconnected,
    /// Retries are used up, a protection error, the device is gone.
    Broken,
}

/// A request at a service point.
#[derive(Debug)]
pub struct Arrival<'a> {
    /// The peer, with its port.
    pub remote: SocketAddr,
    /// Our address that it came to.
    pub local: IpAddr,
    /// The peer's private data as it arrived (padding included where the wire has it).
    pub private_data: &'a [u8],
    /// From a datagram queue pair (IB extension).
    pub datagram: bool,
}

/// What became of looking for the peer of a datagram queue pair (IB extension).
#[derive(Debug)]
pub enum DatagramInput<'a, T: Transport> {
    /// Datagrams reach it from now on.
    Resolved {
        /// Where it is.
        address: T::AddressHandle,
        /// Its queue pair.
        qpn: u32,
        /// Its IA address and port.
        remote: SocketAddr,
        /// From dat_cr_accept; on the passive side core knows it already.
        private_data: &'a [u8],
    },
    /// The peer's consumer refused.
    PeerRejected {
        /// From dat_cr_reject.
        private_data: &'a [u8],
    },
    /// Nobody listens there. Core asks again a few times: real programs begin to listen and to ask at the same time
    /// (dtestx), and DAPL's scm provider had patience too.
    NobodyListens,
    /// No way, no answer, or a refusal that is not the consumer's.
    Failed,
}

/// Adapter-wide or object-wide faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The device is gone: every EP is broken.
    Adapter,
    /// The endpoint of that token is broken outside of a connection event.
    Ep(Token),
    /// A completion queue overran; the token given to `create_cq`.
    CqOverflow(Token),
    /// An SRQ has fewer receives than its low watermark; the token given to `create_srq`.
    SrqLow(Token),
    /// The last receive of an endpoint on an SRQ was consumed (`LAST_WQE_REACHED`).
    LastReceive(Token),
}

impl<T: Transport> Upcalls<T> {
    /// For the IA of `ia`.
    #[must_use]
    pub const fn new(ia: Token) -> Self {
        Self {
            ia,
            transport: PhantomData,
        }
    }

    /// A request came in at the service point of `sp` (the token given to `listen`). Core refuses it by
    /// dropping it when nobody is there to hear of it.
    pub fn connect_request(&self, sp: Token, request: T::ConnRequest, arrival: &Arrival<'_>) {
        tracing::debug!(?sp, ?arrival, "connection request");
        Sp::<T>::request(sp, request, arrival);
    }

    /// Something happened to the connection of `ep` (the token given to `connect` or `accept`).
    pub fn connection(&self, ep: Token, input: ConnInput<'_>) {
        tracing::debug!(?ep, ?input, "connection");
        Ep::<T>::transport_input(ep, input);
    }

    /// The peer of `ah` (the token given to `connect` or `accept` of a datagram queue pair) is found, or not.
    pub fn datagram(&self, ah: Token, input: DatagramInput<'_, T>) {
        tracing::debug!(?ah, ?input, "datagram peer");
        Ah::<T>::input(ah, input);
    }

    /// A watched completion queue has something (the token given to `create_cq`).
    pub fn cq_ready(&self, evd: Token) {
        evd::cq_ready::<T>(evd);
    }

    /// Something failed.
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

    /// Every connection of the IA breaks, and the asynchronous EVD hears why.
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
