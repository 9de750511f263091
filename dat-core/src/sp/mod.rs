//! Service points: public (PSP), reserved (RSP) and common (CSP) (dat_psp_create, dat_psp_create_any, dat_rsp_create,
//! dat_csp_create and their queries and frees). A service point turns arriving requests into CRs ([`crate::cr`]);
//! [`state`] decides what it does with each. A common one is named by a port, as a TCP server is, and otherwise works
//! as a public one: that port is its qualifier.

pub mod state;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_arena::Mutex;

use state::{SpEffect, SpInput, SpState, step};

use crate::counters::IaCounter;
use crate::cr::{Cr, release_ep};
use crate::ep::state::Input;
use crate::ep::{Ep, EpState};
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::evd::{Evd, Feed};
use crate::event::Event;
use crate::flags::{CompletionFlags, EvdFlags};
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::transport::{Token, Transport};
use crate::upcall::Arrival;

/// Service point: listens for connection requests. All methods may be called from any thread.
#[repr(C)]
pub struct Sp<T: Transport> {
    /// Table, liveness, generation, use count.
    pub head: Head,
    /// [`Flavour`] of the service point. Kept after the free, so a stale handle still gets its kind's subtype.
    flavour: AtomicU32,
    inner: Mutex<Option<Inner<T>>>,
}

struct Inner<T: Transport> {
    listener: Option<T::Listener>,
    conn_qual: u64,
    feed: Feed<T>,
    kind: SpKind<T>,
    state: SpState,
}

impl<T: Transport> Inner<T> {
    /// Returns true if a request, of a datagram endpoint or another one, is not refused.
    fn takes(&self, datagram: bool) -> bool {
        match self.kind {
            SpKind::Reserved(ep) => self.state == SpState::Reserved && ep.is_datagram() == datagram,
            SpKind::Public { .. } | SpKind::Common(_) => true,
        }
    }
}

debug_by_head!(Sp);

impl<T: Transport> Default for Sp<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            flavour: AtomicU32::new(Flavour::Public as u32),
            inner: Mutex::new(None),
        }
    }
}

/// Type of a service point's handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Flavour {
    /// `DAT_PSP_HANDLE`.
    Public,
    /// `DAT_RSP_HANDLE`.
    Reserved,
    /// `DAT_CSP_HANDLE`.
    Common,
}

/// Kind of a service point.
#[derive(Debug)]
pub enum SpKind<T: Transport> {
    /// Accepts any number of requests.
    Public {
        /// True if the provider makes an endpoint for each request (`DAT_PSP_PROVIDER_FLAG`).
        provider_ep: bool,
    },
    /// Accepts one request, for this endpoint.
    Reserved(&'static Ep<T>),
    /// Accepts any number of requests, for endpoints of the consumer, at the port of this address.
    Common(SocketAddr),
}

impl<T: Transport> Clone for SpKind<T> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T: Transport> Copy for SpKind<T> {}

impl<T: Transport> SpKind<T> {
    fn state(&self) -> SpState {
        match self {
            Self::Public { provider_ep: false } | Self::Common(_) => SpState::ConsumerEp,
            Self::Public { provider_ep: true } => SpState::ProviderEp,
            Self::Reserved(_) => SpState::Reserved,
        }
    }

    fn flavour(&self) -> Flavour {
        match self {
            Self::Public { .. } => Flavour::Public,
            Self::Reserved(_) => Flavour::Reserved,
            Self::Common(_) => Flavour::Common,
        }
    }
}

/// Result of dat_psp_query, dat_rsp_query and dat_csp_query.
#[derive(Clone, Debug)]
pub struct SpInfo<T: Transport> {
    /// Adapter.
    pub ia: &'static Ia<T>,
    /// Qualifier that it listens on.
    pub conn_qual: u64,
    /// EVD for connection requests.
    pub evd: &'static Evd<T>,
    /// Kind of the service point.
    pub kind: SpKind<T>,
}

impl<T: Transport> Sp<T> {
    /// Creates a public service point (dat_psp_create, and dat_psp_create_any with `None` as `conn_qual`).
    ///
    /// # Errors
    /// `DAT_CONN_QUAL_IN_USE`, `DAT_CONN_QUAL_UNAVAILABLE`, `DAT_INVALID_PARAMETER`, `DAT_INSUFFICIENT_RESOURCES`,
    /// `DAT_INVALID_HANDLE` for an EVD that takes no requests.
    pub fn psp_create(
        ia: &'static Ia<T>,
        conn_qual: Option<u64>,
        evd: &'static Evd<T>,
        provider_ep: bool,
    ) -> Result<&'static Self> {
        Self::create(ia, conn_qual, evd, SpKind::Public { provider_ep })
    }

    /// Creates a reserved service point (dat_rsp_create); `ep` goes from Unconnected to Reserved.
    ///
    /// # Errors
    /// As [`Sp::psp_create`]; `DAT_INVALID_STATE` of the endpoint.
    pub fn rsp_create(
        ia: &'static Ia<T>,
        conn_qual: u64,
        ep: &'static Ep<T>,
        evd: &'static Evd<T>,
    ) -> Result<&'static Self> {
        if !std::ptr::eq(ep.ia(), ia) {
            return Err(crate::ep::DEAD);
        }
        ep.service_input(Input::Reserve)?;
        Self::create(ia, Some(conn_qual), evd, SpKind::Reserved(ep)).inspect_err(|_| {
            let _ = ep.service_input(Input::Unreserve);
        })
    }

    /// Creates a common service point (2.0 dat_csp_create), which listens as a TCP server at `address` would; port 0
    /// selects a free one, which [`Sp::info`] returns. Requests give an event like a PSP's, and are accepted with the
    /// consumer's endpoint.
    ///
    /// # Errors
    /// `DAT_INVALID_ADDRESS` unless the address is the IA's, or the unspecified one; `DAT_PORT_IN_USE`; else as
    /// [`Sp::psp_create`].
    pub fn csp_create(
        ia: &'static Ia<T>,
        address: SocketAddr,
        evd: &'static Evd<T>,
    ) -> Result<&'static Self> {
        let own = ia.attributes()?.address;
        let ip = address.ip().to_canonical();
        if !ip.is_unspecified() && ip != own.to_canonical() {
            return Err(Error::of(ErrorKind::InvalidAddress));
        }
        let port = (address.port() != 0).then(|| address.port().into());
        Self::create(ia, port, evd, SpKind::Common(address)).map_err(|error| match error.kind() {
            Some(ErrorKind::ConnQualInUse) => Error::of(ErrorKind::PortInUse),
            _ => error,
        })
    }

    fn create(
        ia: &'static Ia<T>,
        conn_qual: Option<u64>,
        evd: &'static Evd<T>,
        kind: SpKind<T>,
    ) -> Result<&'static Self> {
        let subtype = Subtype::InvalidHandleEvdCr;
        if !std::ptr::eq(Ia::of(&evd.head), ia) {
            return Err(Error::handle(subtype));
        }
        let adapter = ia.adapter()?;
        let feed = evd.feed(EvdFlags::CR, CompletionFlags::empty(), subtype)?;
        let arena = &T::arenas().sp;
        let (index, sp) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        // Requests that arrive before the service point is complete wait for this lock.
        let mut inner = sp.inner.lock();
        sp.flavour.store(kind.flavour() as u32, Ordering::Relaxed);
        ia.add_member(Kind::Sp, index, &sp.head, 0)
            .inspect_err(|_| arena.recycle(index))?;
        let listening = T::listen(&adapter, conn_qual, sp.head.token(index));
        match listening {
            Ok((listener, qual)) => {
                ia.count(IaCounter::CmListen);
                match (kind, conn_qual) {
                    (SpKind::Reserved(_), _) => ia.count(IaCounter::RspCreate),
                    (SpKind::Public { .. }, Some(_)) => ia.count(IaCounter::PspCreate),
                    (SpKind::Public { .. }, None) => ia.count(IaCounter::PspCreateAny),
                    (SpKind::Common(_), _) => {}
                }
                *inner = Some(Inner {
                    listener: Some(listener),
                    conn_qual: qual,
                    feed,
                    kind,
                    state: kind.state(),
                });
                Ok(sp)
            }
            Err(error) => {
                drop(inner);
                // Only an abrupt close of the IA can have freed it first.
                if sp.retire().is_ok() {
                    ia.remove_member(Kind::Sp, index);
                    arena.recycle(index);
                }
                Err(error)
            }
        }
    }

    /// Returns qualifier, EVD and kind (dat_psp_query, dat_rsp_query, dat_csp_query). The thunks check
    /// [`Sp::flavour`].
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub fn info(&'static self) -> Result<SpInfo<T>> {
        let inner = self.inner.lock();
        let inner = inner.as_ref().ok_or_else(|| Error::handle(self.dead()))?;
        Ok(SpInfo {
            ia: Ia::of(&self.head),
            conn_qual: inner.conn_qual,
            evd: inner.feed.evd(),
            kind: inner.kind,
        })
    }

    /// Returns the type of its handle.
    pub fn flavour(&self) -> Flavour {
        match self.flavour.load(Ordering::Relaxed) {
            n if n == Flavour::Reserved as u32 => Flavour::Reserved,
            n if n == Flavour::Common as u32 => Flavour::Common,
            _ => Flavour::Public,
        }
    }

    /// Frees the service point (dat_psp_free, dat_rsp_free, dat_csp_free). No more requests arrive; queued ones stay,
    /// as do connections. The endpoint of an RSP without a request goes back to Unconnected.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was freed meanwhile.
    pub fn free(&'static self) -> Result<()> {
        // The lock waits for a request that is being queued, and for `create`.
        let mut slot = self.inner.lock();
        self.retire()?;
        let inner = slot.take();
        drop(slot);
        if let Some(mut inner) = inner {
            // Stops listening first, unlocked: the transport may wait for an upcall to end.
            drop(inner.listener.take());
            let (_, effect) = step(inner.state, SpInput::Free);
            if let (SpEffect::Unreserve, SpKind::Reserved(ep)) = (effect, inner.kind) {
                // Fails only if an abrupt close freed the endpoint.
                let _ = ep.service_input(Input::Unreserve);
            }
        }
        let index = T::arenas().sp.index_of(self);
        match self.flavour() {
            Flavour::Public => Ia::<T>::of(&self.head).count(IaCounter::PspFree),
            Flavour::Reserved => Ia::<T>::of(&self.head).count(IaCounter::RspFree),
            Flavour::Common => {}
        }
        Ia::<T>::of(&self.head).remove_member(Kind::Sp, index);
        T::arenas().sp.recycle(index);
        Ok(())
    }

    fn retire(&self) -> Result<()> {
        // No object claims a service point.
        self.head.retire(self.dead(), self.dead())
    }

    fn dead(&self) -> Subtype {
        match self.flavour() {
            Flavour::Public => Subtype::InvalidHandlePsp,
            Flavour::Reserved => Subtype::InvalidHandleRsp,
            Flavour::Common => Subtype::InvalidHandleCsp,
        }
    }

    /// Returns the service point of `ia` that listens on `conn_qual`, if it takes a request, of a datagram endpoint or another one. A
    /// reserved one that had its request listens no more.
    pub(crate) fn listening(ia: &'static Ia<T>, conn_qual: u64, datagram: bool) -> Option<Token> {
        let mut found = None;
        T::arenas().sp.for_each(|index, sp| {
            if sp.head.alive()
                && std::ptr::eq(Ia::of(&sp.head), ia)
                && sp.takes_requests_to(conn_qual, datagram)
            {
                found = Some(sp.head.token(index));
            }
        });
        found
    }

    fn takes_requests_to(&self, conn_qual: u64, datagram: bool) -> bool {
        let slot = self.inner.lock();
        slot.as_ref()
            .is_some_and(|inner| inner.conn_qual == conn_qual && inner.takes(datagram))
    }

    /// Takes a request for the service point of `token`, or refuses it by dropping it.
    pub(crate) fn request(token: Token, request: T::ConnRequest, arrival: &Arrival<'_>) {
        let Some(sp) = T::arenas().sp.get(token.index()) else {
            return;
        };
        let mut slot = sp.inner.lock();
        if !sp.head.alive() || sp.head.token(token.index()) != token {
            return;
        }
        let Some(inner) = slot.as_mut() else {
            return;
        };
        let ia = Ia::<T>::of(&sp.head);
        ia.count(if arrival.datagram {
            IaCounter::CmAhReqRx
        } else {
            IaCounter::CmReqRx
        });
        let cr = match sp.make_cr(inner, request, arrival) {
            Ok(cr) => cr,
            Err(error) => {
                tracing::debug!(%error, from = %arrival.remote, "a connection request is refused");
                return;
            }
        };
        ia.count(IaCounter::SpCr);
        let evd = inner.feed.evd();
        let event = Event::ConnectionRequest {
            sp: sp.handle(),
            local_address: arrival.local,
            conn_qual: inner.conn_qual,
            cr: cr.handle(),
            datagram: arrival.datagram,
        };
        // Queued under the lock, on which dat_psp_free waits: no request comes after it. The wakeup may run a consumer's agent.
        let queued = evd.enqueue(event);
        drop(slot);
        if !queued.finish() {
            // Without an event the consumer cannot answer: refuses the request.
            let _ = if sp.await_another(token) {
                cr.destroy_without_ep()
            } else {
                cr.destroy()
            };
        }
    }

    /// Makes a reserved service point wait for a request again, because the one that came is refused without an event. Returns whether
    /// it does. Its endpoint is free at no moment: dat_ep_connect or dat_ep_free would take it away.
    fn await_another(&'static self, token: Token) -> bool {
        let mut slot = self.inner.lock();
        if !self.head.alive() || self.head.token(token.index()) != token {
            return false;
        }
        let Some(inner) = slot.as_mut() else {
            return false;
        };
        let SpKind::Reserved(ep) = inner.kind else {
            return false;
        };
        let is_reserved = ep.service_input(Input::Unannounced) == Ok(EpState::Reserved);
        if is_reserved {
            inner.state = SpState::Reserved;
        }
        is_reserved
    }

    /// Makes the CR, with an endpoint if the kind of service point requires one.
    fn make_cr(
        &'static self,
        inner: &mut Inner<T>,
        request: T::ConnRequest,
        arrival: &Arrival<'_>,
    ) -> Result<&'static Cr<T>> {
        let ia = Ia::of(&self.head);
        let (next, effect) = step(inner.state, SpInput::Request);
        let refused = Error::state(Subtype::InvalidStateEpPassconnpending);
        let ep = match (effect, inner.kind) {
            (SpEffect::Announce, _) => None,
            (SpEffect::Offer, _) => Some(Ep::offer(ia, arrival.datagram)?),
            (SpEffect::Deliver, SpKind::Reserved(ep)) => {
                if ep.is_datagram() != arrival.datagram {
                    return Err(refused);
                }
                if ep.service_input(Input::RequestArrived)? != EpState::PassiveConnectionPending {
                    return Err(refused);
                }
                Some(ep)
            }
            _ => return Err(refused),
        };
        match Cr::create(ia, request, arrival, inner.conn_qual, ep) {
            Ok(cr) => {
                inner.state = next;
                if let Some(ep) = ep.filter(|_| !arrival.datagram) {
                    ep.set_requester(arrival.remote, inner.conn_qual);
                }
                Ok(cr)
            }
            Err(error) => {
                release_ep(ep);
                // A reserved endpoint waits for the next request.
                if let SpKind::Reserved(ep) = inner.kind {
                    let _ = ep.service_input(Input::Reserve);
                }
                Err(error)
            }
        }
    }

    /// Returns the handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }
}
