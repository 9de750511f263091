//! Address handles of the IB extension's unreliable datagrams (`DAT_IB_ADDR_HANDLE`): what connecting a datagram
//! endpoint, or accepting a request on one, resolves.
//!
//! A datagram endpoint connects to any number of peers; each attempt has an object of its own here, which the
//! transport's upcalls name. The consumer sees it twice, as the address handle that datagrams go to and as the CM
//! context of the event, and gives each back on its own (dat_ib_ud_ah_free, dat_ib_ud_cm_free). What is left goes
//! with the endpoint.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::ep::Ep;
use crate::error::{Error, Kind as ErrorKind, Result, Subtype};
use crate::event::{DatagramEvent, RawHandle};
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::private_data::PrivateData;
use crate::timer;
use crate::transport::{Connect, Token, Transport};
use crate::upcall::DatagramOutcome;

/// A peer of a datagram endpoint, or the attempt to find one. All methods may be called from any thread.
#[repr(C)]
pub struct Ah<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    inner: Mutex<Option<Inner<T>>>,
    private_data: PrivateData,
}

struct Inner<T: Transport> {
    ep: &'static Ep<T>,
    passive: bool,
    question: Option<Question>,
    /// Set once, when the transport has answered.
    answered: bool,
    peer: Option<Peer<T>>,
    /// The consumer is done with the address handle, and with the CM context.
    handle_freed: bool,
    context_freed: bool,
}

/// What an active side asks, for another try.
struct Question {
    remote: IpAddr,
    conn_qual: u64,
    private_data: Vec<u8>,
    tries: u32,
}

/// How often a question is repeated when nobody listens, and how long it waits before.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_millis(100);

/// Whom datagrams reach.
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

/// What an event tells of a peer (`DAT_IB_EXTENSION_EVENT_DATA`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AhInfo {
    /// Whether the peer asked, and we accepted.
    pub passive: bool,
    /// The peer's queue pair and address; `None` if it was not resolved.
    pub peer: Option<(u32, SocketAddr)>,
}

const DEAD: Error = Error::of(ErrorKind::InvalidHandle);

/// The half of an [`Ah`] that the consumer gives back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Half {
    /// dat_ib_ud_ah_free.
    Handle,
    /// dat_ib_ud_cm_free.
    Context,
}

impl<T: Transport> Ah<T> {
    /// For an attempt of `ep` to find somebody.
    pub(crate) fn asking(
        ep: &'static Ep<T>,
        remote: IpAddr,
        conn_qual: u64,
        private_data: &[u8],
    ) -> Result<&'static Self> {
        let question = Question {
            remote,
            conn_qual,
            private_data: private_data.to_vec(),
            tries: TRIES,
        };
        Self::create(ep, Some(question), &[])
    }

    /// For the answer of `ep` to a request, which had this private data.
    pub(crate) fn answering(ep: &'static Ep<T>, private_data: &[u8]) -> Result<&'static Self> {
        Self::create(ep, None, private_data)
    }

    fn create(
        ep: &'static Ep<T>,
        question: Option<Question>,
        private_data: &[u8],
    ) -> Result<&'static Self> {
        let arena = &T::arenas().ah;
        let (index, ah) = arena
            .alloc()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        ah.private_data.set(private_data);
        *ah.inner.lock() = Some(Inner {
            ep,
            passive: question.is_none(),
            question,
            answered: false,
            peer: None,
            handle_freed: false,
            context_freed: false,
        });
        ep.ia()
            .adopt(Kind::Ah, index, &ah.head, 0)
            .inspect_err(|_| {
                *ah.inner.lock() = None;
                arena.recycle(index);
            })?;
        Ok(ah)
    }

    /// Names it to the transport.
    pub(crate) fn token(&'static self) -> Token {
        self.head.token(T::arenas().ah.index_of(self))
    }

    pub(crate) fn by_token(token: Token) -> Option<&'static Self> {
        let ah = T::arenas().ah.get(token.index())?;
        (ah.head.alive() && ah.head.token(token.index()) == token).then_some(ah)
    }

    /// The transport's answer, or the end of the time for one. Only the first counts.
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
            if let (DatagramOutcome::NoListener, Some(question)) = (&outcome, &mut inner.question)
                && question.tries > 0
            {
                question.tries -= 1;
                timer::after(PAUSE, move || Self::ask_again(token));
                return;
            }
            inner.answered = true;
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
        ep.resolved(ah, event);
    }

    fn ask_again(token: Token) {
        let Some(ah) = Self::by_token(token) else {
            return;
        };
        let (ep, remote, conn_qual, private_data) = {
            let slot = ah.inner.lock();
            let inner = slot.as_ref().filter(|inner| !inner.answered);
            match inner.and_then(|inner| Some((inner.ep, inner.question.as_ref()?))) {
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
        if ep.ask(&connect).is_err() {
            Self::lookup_ended(token, DatagramOutcome::Failed);
        }
    }

    /// What an event tells.
    pub fn info(&self) -> Option<AhInfo> {
        let slot = self.inner.lock();
        slot.as_ref().map(|inner| AhInfo {
            passive: inner.passive,
            peer: inner.peer.as_ref().map(|peer| (peer.qpn, peer.remote)),
        })
    }

    /// The peer's private data: of its answer, or of the request that we accepted (dtestsrq tells its peers apart by
    /// it). Readable long after the object is gone.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// The transport's address handle, for a post of `ep`: any endpoint of the IA (dtestsrq answers on all of its
    /// endpoints through the first one's).
    pub(crate) fn address(&self, ep: &'static Ep<T>) -> Result<Arc<T::AddressHandle>> {
        let slot = self.inner.lock();
        slot.as_ref()
            .filter(|inner| std::ptr::eq(inner.ep.ia(), ep.ia()) && !inner.handle_freed)
            .and_then(|inner| inner.peer.as_ref())
            .map(|peer| Arc::clone(&peer.address))
            .ok_or(DEAD)
    }

    /// The consumer gives a half back (dat_ib_ud_ah_free, dat_ib_ud_cm_free); with the second the object goes.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it is of another IA, or was given back before.
    pub fn give_back(&'static self, ep: &'static Ep<T>, half: Half) -> Result<()> {
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
        // An attempt that came to nothing has no address handle to give back.
        let nothing = inner.answered && inner.peer.is_none();
        let last = inner.context_freed && (inner.handle_freed || nothing);
        drop(slot);
        drop(peer);
        if last {
            owner.forget(self.token());
            self.destroy()?;
        }
        Ok(())
    }

    /// Frees it whatever its state: with its endpoint, or in an abrupt close.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if another thread was faster.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        let subtype = Subtype::InvalidHandleEp;
        self.head.retire(subtype, subtype)?;
        let inner = self.inner.lock().take();
        drop(inner);
        let index = T::arenas().ah.index_of(self);
        Ia::<T>::of(&self.head).leave(Kind::Ah, index);
        T::arenas().ah.recycle(index);
        Ok(())
    }

    /// Its address, which C sees as `ah` and as the event's context.
    #[inline]
    pub fn handle(&'static self) -> RawHandle {
        raw(self)
    }
}
