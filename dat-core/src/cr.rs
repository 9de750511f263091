//! Connection requests (dat_cr_query, dat_cr_accept, dat_cr_reject, dat_cr_handoff). A CR lives from its event
//! to its one answer.

use std::net::{IpAddr, SocketAddr};

use parking_lot::Mutex;

use crate::counters::IaCounter;
use crate::ep::Ep;
use crate::ep::state::Input;
use crate::error::{Error, Result, Subtype};
use crate::head::{Head, debug_by_head, raw};
use crate::ia::{Ia, Kind};
use crate::private_data::{PrivateData, check_length};
use crate::sp::Sp;
use crate::transport::Transport;
use crate::upcall::Arrival;

/// A connection request that waits for an answer. All methods may be called from any thread.
#[repr(C)]
pub struct Cr<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    inner: Mutex<Option<Inner<T>>>,
    private_data: PrivateData,
}

struct Inner<T: Transport> {
    request: T::ConnRequest,
    remote: SocketAddr,
    local: IpAddr,
    /// Of a datagram endpoint.
    datagram: bool,
    ep: Option<&'static Ep<T>>,
}

debug_by_head!(Cr);

impl<T: Transport> Default for Cr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            inner: Mutex::new(None),
            private_data: PrivateData::default(),
        }
    }
}

/// What dat_cr_query reports (`DAT_CR_PARAM`). The private data is at [`Cr::private_data`].
#[derive(Clone, Debug)]
pub struct CrInfo<T: Transport> {
    /// The peer's address and port qualifier.
    pub remote: SocketAddr,
    /// The endpoint that goes with the request: the RSP's, or the provider's.
    pub local_ep: Option<&'static Ep<T>>,
}

const DEAD: Error = Error::handle(Subtype::InvalidHandleCr);

impl<T: Transport> Cr<T> {
    pub(crate) fn create(
        ia: &'static Ia<T>,
        request: T::ConnRequest,
        arrival: &Arrival<'_>,
        ep: Option<&'static Ep<T>>,
    ) -> Result<&'static Self> {
        let arena = &T::arenas().cr;
        // No thunk has asked: a transport's thread is here, and the address space of CRs is reserved.
        let (index, cr) = dat_arena::reserve::pool_is_half_free()
            .then(|| arena.alloc())
            .flatten()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        cr.private_data.set(arrival.private_data);
        let mut inner = cr.inner.lock();
        ia.adopt(Kind::Cr, index, &cr.head, 0)
            .inspect_err(|_| arena.recycle(index))?;
        *inner = Some(Inner {
            request,
            remote: arrival.remote,
            local: arrival.local,
            datagram: arrival.datagram,
            ep,
        });
        Ok(cr)
    }

    /// dat_cr_query.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile.
    pub fn info(&'static self) -> Result<CrInfo<T>> {
        let inner = self.inner.lock();
        let inner = inner.as_ref().ok_or(DEAD)?;
        Ok(CrInfo {
            remote: inner.remote,
            local_ep: inner.ep,
        })
    }

    /// The peer's private data, writable by the consumer; stays until the slot is reused, long after the answer.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// dat_cr_accept. `ep` `None`: the request's own endpoint. Whatever is wrong with the arguments leaves the
    /// request and the endpoint as they were.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` without an endpoint, `DAT_INVALID_PARAMETER` with one too many or of another service type
    /// than the peer's (argument 2) or private data too long (argument 3), `DAT_INVALID_STATE` of the endpoint, and what the transport finds at once; then
    /// the request is refused.
    pub fn accept(&'static self, ep: Option<&'static Ep<T>>, private_data: &[u8]) -> Result<()> {
        let ia = self.ia();
        let limit = ia.attributes()?.max_private_data_size;
        let mut slot = self.inner.lock();
        let inner = slot.as_ref().ok_or(DEAD)?;
        check_length(private_data, limit, 3)?;
        crate::timer::ready()?;
        let ep = match (inner.ep, ep) {
            (Some(_), Some(_)) => return Err(Error::arg(2)),
            (Some(own), None) => own,
            (None, Some(given)) if std::ptr::eq(given.ia(), ia) => given,
            (None, _) => return Err(crate::ep::DEAD),
        };
        if inner.datagram != ep.is_datagram() {
            return Err(Error::arg(2));
        }
        if inner.datagram {
            let (loan, token) = ep.begin_datagram_accept(&self.private_data.to_vec())?;
            let inner = slot.take().ok_or(DEAD)?;
            drop(slot);
            self.end();
            let accepted = T::accept(inner.request, &loan.qp, token, private_data);
            return ep
                .accepted(&loan, accepted)
                .inspect(|()| ia.count(IaCounter::SpCrAccepted))
                .inspect_err(|_| ep.drop_peer(token));
        }
        let remote = (inner.remote.ip(), inner.remote.port().into());
        let (loan, token) = ep.begin_attempt(Input::Accept, remote)?;
        let inner = slot.take().ok_or(DEAD)?;
        drop(slot);
        self.end();
        let accepted = T::accept(inner.request, &loan.qp, token, private_data);
        ep.accepted(&loan, accepted)?;
        ia.count(IaCounter::SpCrAccepted);
        ia.count(IaCounter::CmRepTx);
        Ok(())
    }

    /// dat_cr_reject, with 2.0's private data. A provider's endpoint goes with the request, an RSP's goes back
    /// to Unconnected.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile, `DAT_INVALID_PARAMETER` (argument 2) for private data
    /// too long.
    pub fn reject(&'static self, private_data: &[u8]) -> Result<()> {
        let ia = self.ia();
        let limit = ia.attributes()?.max_private_data_size;
        let mut slot = self.inner.lock();
        if slot.is_some() {
            check_length(private_data, limit, 2)?;
        }
        let inner = slot.take().ok_or(DEAD)?;
        drop(slot);
        self.end();
        give_back(inner.ep);
        T::reject(inner.request, private_data)?;
        ia.count(IaCounter::SpCrRejected);
        ia.count(IaCounter::CmUserRejTx);
        Ok(())
    }

    /// dat_cr_handoff: the request goes to the service point of the same IA that listens on `conn_qual`, as if it
    /// had come in there. The peer notices nothing.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2) if no service point of the IA listens there; `DAT_INVALID_HANDLE` if
    /// the request was answered meanwhile.
    pub fn handoff(&'static self, conn_qual: u64) -> Result<()> {
        if self.inner.lock().is_none() {
            return Err(DEAD);
        }
        // Service points are locked before requests.
        let target = Sp::<T>::listening(self.ia(), conn_qual).ok_or(Error::arg(2))?;
        let inner = self.inner.lock().take().ok_or(DEAD)?;
        let private_data = self.private_data.to_vec();
        self.end();
        give_back(inner.ep);
        let arrival = Arrival {
            remote: inner.remote,
            local: inner.local,
            private_data: &private_data,
            datagram: inner.datagram,
        };
        Sp::<T>::request(target, inner.request, &arrival);
        Ok(())
    }

    /// The abrupt close's free: the peer is refused.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        let inner = self.inner.lock().take().ok_or(DEAD)?;
        self.end();
        give_back(inner.ep);
        Ok(())
    }

    /// The CR is answered: its handle is dead from now on. Called by the one who took its content.
    fn end(&'static self) {
        let subtype = Subtype::InvalidHandleCr;
        if self.head.retire(subtype, subtype).is_ok() {
            let index = T::arenas().cr.index_of(self);
            self.ia().leave(Kind::Cr, index);
            T::arenas().cr.recycle(index);
        }
    }

    fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// The handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }
}

/// The endpoint of a request that was refused.
fn give_back<T: Transport>(ep: Option<&'static Ep<T>>) {
    let Some(ep) = ep else {
        return;
    };
    let provided = ep.current_state() == crate::ep::EpState::TentativeConnectionPending;
    if ep.service(Input::Reject).is_ok() && provided {
        let _ = ep.free();
    }
}
