//! Connection requests (dat_cr_query, dat_cr_accept, dat_cr_reject, dat_cr_handoff). A CR exists from its event to
//! its one answer.

use std::net::{IpAddr, SocketAddr};

use dat_arena::Mutex;

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

/// Connection request that waits for an answer. All methods may be called from any thread.
#[repr(C)]
pub struct Cr<T: Transport> {
    /// Table, liveness, generation, use count.
    pub head: Head,
    inner: Mutex<Option<Inner<T>>>,
    private_data: PrivateData,
}

struct Inner<T: Transport> {
    request: T::ConnRequest,
    remote: SocketAddr,
    local: IpAddr,
    /// Qualifier of the service point that the request came to.
    conn_qual: u64,
    /// True if the request came from a datagram endpoint.
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

/// Result of dat_cr_query (`DAT_CR_PARAM`). The private data is at [`Cr::private_data`].
#[derive(Clone, Debug)]
pub struct CrInfo<T: Transport> {
    /// Address and port qualifier of the peer.
    pub remote: SocketAddr,
    /// Endpoint that belongs to the request: the RSP's, or the provider's.
    pub local_ep: Option<&'static Ep<T>>,
}

const DEAD: Error = Error::handle(Subtype::InvalidHandleCr);

impl<T: Transport> Cr<T> {
    pub(crate) fn create(
        ia: &'static Ia<T>,
        request: T::ConnRequest,
        arrival: &Arrival<'_>,
        conn_qual: u64,
        ep: Option<&'static Ep<T>>,
    ) -> Result<&'static Self> {
        let arena = &T::arenas().cr;
        // A transport's thread comes here without a thunk, so the memory pool and the arena are checked here.
        let (index, cr) = dat_arena::reserve::pool_is_half_free()
            .then(|| arena.alloc())
            .flatten()
            .ok_or(Error::resource(Subtype::ResourceMemory))?;
        cr.private_data.set(arrival.private_data);
        let mut inner = cr.inner.lock();
        ia.add_member(Kind::Cr, index, &cr.head, 0)
            .inspect_err(|_| arena.recycle(index))?;
        *inner = Some(Inner {
            request,
            remote: arrival.remote,
            local: arrival.local,
            conn_qual,
            datagram: arrival.datagram,
            ep,
        });
        Ok(cr)
    }

    /// Returns peer and endpoint (dat_cr_query).
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

    /// Returns the peer's private data, which the consumer may write. It stays until the slot is reused, long after
    /// the answer.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Accepts the request (dat_cr_accept). `None` as `ep` selects the request's own endpoint. Wrong arguments leave
    /// the request and the endpoint unchanged.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` without an endpoint, `DAT_INVALID_PARAMETER` with one too many or of another service type
    /// than the peer's (argument 2) or private data too long (argument 3), `DAT_INVALID_STATE` of the endpoint, and
    /// errors that the transport finds at once, which refuse the request.
    pub fn accept(&'static self, ep: Option<&'static Ep<T>>, private_data: &[u8]) -> Result<()> {
        let ia = self.ia();
        let limit = ia.attributes()?.max_private_data_size;
        let mut slot = self.inner.lock();
        let inner = slot.as_ref().ok_or(DEAD)?;
        check_length(private_data, limit, 3)?;
        crate::timer::ready()?;
        // An endpoint that is given may belong to another request, which its state tells: that one's accept or reject is to come.
        let (ep, connection, datagram) = match (inner.ep, ep) {
            (Some(_), Some(_)) => return Err(Error::arg(2)),
            (Some(own), None) => (own, Input::AcceptOwn, Input::AcceptOwnDatagram),
            (None, Some(given)) if std::ptr::eq(given.ia(), ia) => {
                (given, Input::Accept, Input::AcceptDatagram)
            }
            (None, _) => return Err(crate::ep::DEAD),
        };
        if inner.datagram != ep.is_datagram() {
            return Err(Error::arg(2));
        }
        if inner.datagram {
            let (checkout, token) =
                ep.begin_datagram_accept(datagram, &self.private_data.to_vec())?;
            let inner = slot.take().ok_or(DEAD)?;
            drop(slot);
            self.end();
            let accepted = T::accept(inner.request, &checkout.qp, token, private_data);
            return ep
                .finish_accept(&checkout, accepted)
                .inspect(|()| ia.count(IaCounter::SpCrAccepted))
                .inspect_err(|_| ep.drop_peer(token));
        }
        let remote = (inner.remote.ip(), inner.remote.port().into());
        let (checkout, token) = ep.begin_attempt(connection, remote, inner.conn_qual)?;
        let inner = slot.take().ok_or(DEAD)?;
        drop(slot);
        self.end();
        let accepted = T::accept(inner.request, &checkout.qp, token, private_data);
        ep.finish_accept(&checkout, accepted)?;
        ia.count(IaCounter::SpCrAccepted);
        ia.count(IaCounter::CmRepTx);
        Ok(())
    }

    /// Rejects the request (dat_cr_reject), with 2.0's private data. A provider's endpoint is freed, an RSP's goes
    /// back to Unconnected.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile, `DAT_INVALID_PARAMETER` (argument 2) for private data too
    /// long.
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
        release_ep(inner.ep);
        T::reject(inner.request, private_data)?;
        ia.count(IaCounter::SpCrRejected);
        ia.count(IaCounter::CmUserRejTx);
        Ok(())
    }

    /// Hands the request to the service point of the same IA that listens on `conn_qual` (dat_cr_handoff), as if it
    /// had arrived there. The peer does not notice.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 2) if no service point of the IA listens there, or only one that refuses the
    /// request; `DAT_INVALID_HANDLE` if the request was answered meanwhile.
    pub fn handoff(&'static self, conn_qual: u64) -> Result<()> {
        let datagram = {
            let inner = self.inner.lock();
            inner.as_ref().ok_or(DEAD)?.datagram
        };
        // Service points precede requests in the lock order.
        let target = Sp::<T>::listening(self.ia(), conn_qual, datagram).ok_or(Error::arg(2))?;
        let inner = self.inner.lock().take().ok_or(DEAD)?;
        let private_data = self.private_data.to_vec();
        self.end();
        release_ep(inner.ep);
        let arrival = Arrival {
            remote: inner.remote,
            local: inner.local,
            private_data: &private_data,
            datagram: inner.datagram,
        };
        Sp::<T>::request(target, inner.request, &arrival);
        Ok(())
    }

    /// Frees the request in an abrupt close; the peer is refused.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile.
    pub(crate) fn destroy(&'static self) -> Result<()> {
        release_ep(self.take()?.ep);
        Ok(())
    }

    /// Frees the request, whose endpoint is reserved again; the peer is refused.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if it was answered meanwhile.
    pub(crate) fn destroy_without_ep(&'static self) -> Result<()> {
        self.take().map(drop)
    }

    /// Takes the content, and ends the handle.
    fn take(&'static self) -> Result<Inner<T>> {
        let inner = self.inner.lock().take().ok_or(DEAD)?;
        self.end();
        Ok(inner)
    }

    /// Ends the handle. Called by the thread that took the content.
    fn end(&'static self) {
        let subtype = Subtype::InvalidHandleCr;
        if self.head.retire(subtype, subtype).is_ok() {
            let index = T::arenas().cr.index_of(self);
            self.ia().remove_member(Kind::Cr, index);
            T::arenas().cr.recycle(index);
        }
    }

    /// Returns the adapter.
    pub fn ia(&self) -> &'static Ia<T> {
        Ia::of(&self.head)
    }

    /// Returns the handle as a number.
    #[inline]
    pub fn handle(&'static self) -> usize {
        raw(self)
    }
}

/// Releases the endpoint of a request that was refused.
pub(crate) fn release_ep<T: Transport>(ep: Option<&'static Ep<T>>) {
    let Some(ep) = ep else {
        return;
    };
    let provided = ep.current_state() == crate::ep::EpState::TentativeConnectionPending;
    if ep.service_input(Input::Reject).is_ok() && provided {
        let _ = ep.free();
    }
}
