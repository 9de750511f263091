//! Address handles of the IB extension's unreliable datagrams (`DAT_IB_ADDR_HANDLE`): results of connecting a
//! datagram endpoint, or of accepting a request on one.
//!
//! A datagram endpoint connects to any number of peers. Each attempt has an object here, which the transport's
//! upcalls name. The consumer sees the object twice, as the address handle that datagrams are sent to and as the CM
//! context of the event, and frees each separately (dat_ib_ud_ah_free, dat_ib_ud_cm_free). The endpoint frees the
//! rest.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use dat_arena::Mutex;

use crate::ep::Ep;
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::{DatagramEvent, RawHandle};
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::private_data::PrivateData;
use crate::timer::{self, Pending};
use crate::transport::{Connect, Token, Transport};
use crate::upcall::DatagramOutcome;

/// Peer of a datagram endpoint, or the lookup of one. All methods may be called from any thread.
#[repr(C)]
pub struct Ah<T: Transport> {
    /// Table, liveness, generation, use count.
    pub head: Head,
    inner: Mutex<Option<Inner<T>>>,
    private_data: PrivateData,
}

struct Inner<T: Transport> {
    ep: &'static Ep<T>,
    passive: bool,
    lookup: Option<Lookup>,
    /// True once the transport has reported the outcome.
    answered: bool,
    /// Timeout of the lookup.
    timeout: Option<Pending>,
    peer: Option<Peer<T>>,
    /// True once the consumer has freed the address handle, and the CM context.
    handle_freed: bool,
    context_freed: bool,
}

/// Arguments of an active side's lookup, for another try.
struct Lookup {
    remote: IpAddr,
    conn_qual: u64,
    private_data: Vec<u8>,
    retries: u32,
}

/// Number of repeated lookups of a peer that has no listener, and the delay before each.
const RETRIES: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_millis(100);

/// Destination of datagrams.
struct Peer<T: Transport> {
    address: Arc<T::AddressHandle>,
    qpn: u32,
    remote: SocketAddr,
}

debug_by_head!(Ah);

impl<T: Transport> Default for Ah<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(None),
            private_data: PrivateData::default(),
        }
    }
}

/// Peer as an event names it (`DAT_IB_EXTENSION_EVENT_DATA`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AhInfo {
    /// True if the peer sent the request and this side accepted it.
    pub passive: bool,
    /// Queue pair and address of the peer; `None` if the lookup failed.
    pub peer: Option<(u32, SocketAddr)>,
}

const DEAD: Error = Error::of(ErrorKind::InvalidHandle);

/// Half of an [`Ah`] that the consumer frees.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// Address handle: dat_ib_ud_ah_free.
    Handle,
    /// CM context: dat_ib_ud_cm_free.
    Context,
}

impl<T: Transport> Ah<T> {
    /// Creates the object for a lookup by `ep`.
    pub(crate) fn active(
        ep: &'static Ep<T>,
        remote: IpAddr,
        conn_qual: u64,
        private_data: &[u8],
    ) -> Result<&'static Self> {
        let lookup = Lookup {
            remote,
            conn_qual,
            private_data: private_data.to_vec(),
            retries: RETRIES,
        };
        Self::create(ep, Some(lookup), &[])
    }

    /// Creates the object for an accept by `ep` of a request with this private data.
    pub(crate) fn passive(ep: &'static Ep<T>, private_data: &[u8]) -> Result<&'static Self> {
        Self::create(ep, None, private_data)
    }

    fn create(
        ep: &'static Ep<T>,
        lookup: Option<Lookup>,
        private_data: &[u8],
    ) -> Result<&'static Self> {
        let arena = &T::arenas().ah;
        let (index, ah) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        ah.private_data.set(private_data);
        *ah.inner.lock() = Some(Inner {
            ep,
            passive: lookup.is_none(),
            lookup,
            answered: false,
            timeout: None,
            peer: None,
            handle_freed: false,
            context_freed: false,
        });
        ep.ia()
            .add_member(Kind::Ah, index, &ah.head, 0)
            .inspect_err(|_| {
                *ah.inner.lock() = None;
                arena.recycle(index);
            })?;
        Ok(ah)
    }

    /// Returns the token that names the object to the transport.
    pub(crate) fn token(&'static self) -> Token {
        self.head.token(T::arenas().ah.index_of(self))
    }

    pub(crate) fn by_token(token: Token) -> Option<&'static Self> {
        let ah = T::arenas().ah.get(token.index())?;
        (ah.head.alive() && ah.head.token(token.index()) == token).then_some(ah)
    }

    /// Has the lookup `token` fail after `timeout`, unless it has ended.
    pub(crate) fn limit_lookup(token: Token, timeout: Duration) {
        let Some(ah) = Self::by_token(token) else {
            return;
        };
        let mut slot = ah.inner.lock();
        // Checked again under the lock.
        if ah.head.token(token.index()) != token {
            return;
        }
        if let Some(inner) = slot.as_mut().filter(|inner| !inner.answered) {
            let end = move || Self::lookup_ended(token, DatagramOutcome::Failed);
            inner.timeout = Some(Pending::new(timeout, end));
        }
    }

    /// Takes the outcome that the transport reports, or the expired timeout. Only the first counts, and none after the
    /// endpoint has ended the lookup.
    pub(crate) fn lookup_ended(token: Token, outcome: DatagramOutcome<T>) {
        let Some(ah) = Self::by_token(token) else {
            tracing::debug!(?token, "an answer for an address handle that is gone");
            return;
        };
        let (ep, event) = {
            let mut slot = ah.inner.lock();
            let Some(inner) = slot.as_mut().filter(|inner| !inner.answered) else {
                return;
            };
            if let (DatagramOutcome::NoListener, Some(lookup)) = (&outcome, &mut inner.lookup)
                && lookup.retries > 0
            {
                lookup.retries -= 1;
                timer::after(RETRY_DELAY, move || Self::retry_lookup(token));
                return;
            }
            inner.answered = true;
            inner.timeout = None;
            let event = match outcome {
                DatagramOutcome::Resolved {
                    address,
                    qpn,
                    remote,
                    private_data,
                } => {
                    inner.peer = Some(Peer {
                        address: Arc::new(address),
                        qpn,
                        remote,
                    });
                    if !inner.passive {
                        ah.private_data.set(&private_data);
                    }
                    DatagramEvent::Established
                }
                DatagramOutcome::PeerRejected { private_data } => {
                    ah.private_data.set(&private_data);
                    DatagramEvent::Rejected
                }
                DatagramOutcome::NoListener | DatagramOutcome::Failed => DatagramEvent::Failed,
            };
            (inner.ep, event)
        };
        ep.resolved(ah, token, event);
    }

    fn retry_lookup(token: Token) {
        let Some(ah) = Self::by_token(token) else {
            return;
        };
        let (ep, remote, conn_qual, private_data) = {
            let slot = ah.inner.lock();
            let inner = slot.as_ref().filter(|inner| !inner.answered);
            match inner.and_then(|inner| Some((inner.ep, inner.lookup.as_ref()?))) {
                Some((ep, q)) => (ep, q.remote, q.conn_qual, q.private_data.clone()),
                None => return,
            }
        };
        let connect = Connect {
            token,
            remote,
            conn_qual,
            private_data: &private_data,
            timeout: None,
        };
        if ep.repeat_lookup(&connect).is_err() {
            Self::lookup_ended(token, DatagramOutcome::Failed);
        }
    }

    /// Returns the content of an event.
    pub fn info(&self) -> Option<AhInfo> {
        let slot = self.inner.lock();
        slot.as_ref().map(|inner| AhInfo {
            passive: inner.passive,
            peer: inner.peer.as_ref().map(|peer| (peer.qpn, peer.remote)),
        })
    }

    /// Returns the peer's private data: of its answer, or of the request that this side accepted (dtestsrq
    /// distinguishes its peers by it). Readable long after the object is freed.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Returns the transport's address handle for a post of `ep`, which may be any endpoint of the IA (dtestsrq
    /// answers on all of its endpoints through the first one's).
    pub(crate) fn address(&self, ep: &'static Ep<T>) -> Result<Arc<T::AddressHandle>> {
        let slot = self.inner.lock();
        slot.as_ref()
            .filter(|inner| std::ptr::eq(inner.ep.ia(), ep.ia()) && !inner.handle_freed)
            .and_then(|inner| inner.peer.as_ref())
            .map(|peer| Arc::clone(&peer.address))
            .ok_or(DEAD)
    }

    /// Frees a half for the consumer (dat_ib_ud_ah_free, dat_ib_ud_cm_free); the second call destroys the object.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it is of another IA, or was freed before.
    pub fn release(&'static self, ep: &'static Ep<T>, half: Half) -> Result<()> {
        let mut slot = self.inner.lock();
        let inner = slot
            .as_mut()
            .filter(|inner| std::ptr::eq(inner.ep.ia(), ep.ia()))
            .ok_or(DEAD)?;
        let owner = inner.ep;
        let freed = match half {
            Half::Handle => &mut inner.handle_freed,
            Half::Context => &mut inner.context_freed,
        };
        if std::mem::replace(freed, true) {
            return Err(DEAD);
        }
        let peer = if half == Half::Handle {
            inner.peer.take()
        } else {
            None
        };
        // A failed lookup has no address handle to free.
        let nothing = inner.answered && inner.peer.is_none();
        let last = inner.context_freed && (inner.handle_freed || nothing);
        drop(slot);
        drop(peer);
        if last {
            owner.forget_peer(self.token());
            self.destroy()?;
        }
        Ok(())
    }

    /// Destroys the object in any state: with its endpoint, or in an abrupt close.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if another thread did it first.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        let subtype = Subtype::InvalidHandleEp;
        self.head.retire(subtype, subtype)?;
        let inner = self.inner.lock().take();
        drop(inner);
        let index = T::arenas().ah.index_of(self);
        Ia::<T>::of(&self.head).remove_member(Kind::Ah, index);
        T::arenas().ah.recycle(index);
        Ok(())
    }

    /// Returns the address, which C sees as `ah` and as the event's context.
    #[inline]
    pub fn handle(&'static self) -> RawHandle {
        raw(self)
    }
}
