//! Endpoints of the IB extension's service type UD: looking up peers (dat_ep_connect, dat_cr_accept) and sending
//! datagrams to them (dat_ib_post_send_ud).
//!
//! Such an endpoint has no connection. It may look up many peers at a time; each of them has an [`Ah`]. It is
//! Connected from the first peer found until dat_ep_disconnect, which ends the lookups and accepts that have no answer yet. Its
//! queue pair sends and receives from the start, so datagrams can be posted in Unconnected too.

use std::net::IpAddr;
use std::sync::atomic::Ordering;
use std::time::Duration;

use super::post::{SUPPRESS, info_bits};
use super::ring::{Outstanding, SlotInfo, id};
use super::state::Input;
use super::{DEAD, Ep, EpState, QpCheckout};
use crate::ah::Ah;
use crate::counters::IaCounter;
use crate::error::{Error, Kind, Result, Subtype};
use crate::event::{DatagramEvent, DtoOp, Event};
use crate::flags::CompletionFlags;
use crate::iov::Iov;
use crate::timer;
use crate::transport::{Connect, Op, Request, Token, Transport};

/// Bit of [`Ep::datagrams_since`] that is set for the service type UD; the lower ones are a generation.
const SINCE: u64 = 1 << 32;

/// Failed lookups and accepts whose objects are kept for a dat_ib_ud_cm_free. Programs written for DAPL, which frees them by itself,
/// never call that.
const MAX_FAILED: usize = 64;

impl<T: Transport> Ep<T> {
    /// Returns true if the service type is UD.
    pub fn is_datagram(&self) -> bool {
        self.datagrams_since.load(Ordering::Acquire) != 0
    }

    /// Stores the service type. `generation` is that in which the endpoint began.
    pub(super) fn set_datagram(&self, datagram: bool, generation: u32) {
        let since = if datagram {
            SINCE | u64::from(generation)
        } else {
            0
        };
        self.datagrams_since.store(since, Ordering::Release);
    }

    /// Returns true if `token` names a queue pair of a datagram endpoint in this slot: of the present endpoint, or of a freed
    /// one whose slot no other has taken. Takes no lock.
    pub(super) fn was_datagram(&self, token: Token) -> bool {
        let since = self.datagrams_since.load(Ordering::Acquire);
        // Queue pairs of earlier endpoints in the slot have earlier generations, which may wrap around.
        let age = token.generation().wrapping_sub(since as u32);
        since != 0 && age.cast_signed() >= 0
    }

    /// Starts the lookup of the peer behind `conn_qual` (dat_ep_connect of a datagram endpoint). The arguments are
    /// checked.
    pub(super) fn look_up_peer(
        &'static self,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        let make = || Ah::active(self, remote, conn_qual, private_data);
        let adapter = self.ia().adapter()?;
        timer::ready()?;
        let (checkout, token) = self.begin_peer(Input::Resolve, make)?;
        let connect = Connect {
            token,
            remote,
            conn_qual,
            private_data,
            timeout,
        };
        let called = T::connect(&adapter, &checkout.qp, &connect);
        match self.finish_call(&checkout, called) {
            Ok(Some(mut side)) => side.connects += 1,
            Ok(None) => {}
            Err(error) => {
                self.drop_peer(token);
                return Err(error);
            }
        }
        self.ia().count(IaCounter::CmAhReqTx);
        if let Some(timeout) = timeout {
            Ah::<T>::limit_lookup(token, timeout);
        }
        Ok(())
    }

    /// Starts the lookup of `connect` again, unless the endpoint was disconnected meanwhile.
    pub(crate) fn repeat_lookup(&'static self, connect: &Connect<'_>) -> Result<()> {
        let adapter = self.ia().adapter()?;
        let checkout = {
            let mut side = self.lock_alive()?;
            if !side.lookups.contains(&connect.token) {
                return Err(self.current_state().refuse());
            }
            Self::check_out(&mut side).ok_or(DEAD)?
        };
        let called = T::connect(&adapter, &checkout.qp, connect);
        self.finish_call(&checkout, called).map(drop)
    }

    /// Begins dat_cr_accept of a datagram request with this private data: returns the queue pair to answer with and
    /// the token of the new peer.
    pub(crate) fn begin_datagram_accept(
        &'static self,
        input: Input,
        private_data: &[u8],
    ) -> Result<(QpCheckout<T>, Token)> {
        self.begin_peer(input, || Ah::passive(self, private_data))
    }

    fn begin_peer(
        &'static self,
        input: Input,
        make: impl FnOnce() -> Result<&'static Ah<T>>,
    ) -> Result<(QpCheckout<T>, Token)> {
        let mut side = self.lock_alive()?;
        self.state.preview(input)?;
        if side.qp.is_none() {
            return Err(Error::state(Subtype::InvalidStateEpPz));
        }
        let ah = make()?;
        side.lookups.push(ah.token());
        self.apply(&mut side, input)?;
        let checkout = Self::check_out(&mut side).ok_or(DEAD)?;
        Ok((checkout, ah.token()))
    }

    /// Removes a peer whose lookup or accept the transport refused at once.
    pub(crate) fn drop_peer(&'static self, token: Token) {
        self.forget_peer(token);
        destroy_peers::<T>(&[token]);
    }

    /// Removes the peer of `token` from the endpoint.
    pub(crate) fn forget_peer(&'static self, token: Token) {
        let mut side = self.connection.lock();
        side.peers.remove(&token);
        side.lookups.retain(|peer| *peer != token);
        side.failed.retain(|peer| *peer != token);
    }

    /// Posts the event for the end of the lookup or accept `token`, whose object is `ah`, unless the endpoint was
    /// disconnected meanwhile: `ah` may be that of another lookup then.
    pub(crate) fn resolved(&'static self, ah: &'static Ah<T>, token: Token, number: DatagramEvent) {
        let Ok(mut side) = self.lock_alive() else {
            return;
        };
        let Some(position) = side.lookups.iter().position(|lookup| *lookup == token) else {
            return;
        };
        side.lookups.swap_remove(position);
        let mut forgotten = None;
        if number == DatagramEvent::Established {
            side.peers.insert(token);
            let _ = self.apply(&mut side, Input::Resolved);
            self.ia().count(IaCounter::CmAhResolved);
        } else {
            if side.failed.len() == MAX_FAILED {
                forgotten = side.failed.pop_front();
            }
            side.failed.push_back(token);
        }
        // In the order of the transitions, so that it does not follow the event of a later disconnect.
        side.pending.push_back(Event::Datagram {
            number,
            ep: self.handle(),
            ah: ah.handle(),
        });
        if forgotten.is_some() {
            // Before the event, after which the program may count. Unlocked, as always.
            drop(side);
            destroy_peers::<T>(&forgotten);
            match self.lock_alive() {
                Ok(again) => side = again,
                Err(_) => return,
            }
        }
        self.post_events(side);
    }

    /// Posts a datagram to queue pair `qpn` behind `to`, which an endpoint of the IA looked up (dat_ib_post_send_ud).
    ///
    /// # Errors
    /// `DAT_MODEL_NOT_SUPPORTED` unless the service type is UD; `DAT_INVALID_HANDLE` for an address handle of another
    /// IA, or one that was freed; `DAT_INVALID_STATE` unless Connected or Unconnected; `DAT_INVALID_PARAMETER` for
    /// too many segments (argument 3) or flags that the endpoint cannot have (7); `DAT_LENGTH_ERROR` beyond the
    /// adapter's datagram size; `DAT_INSUFFICIENT_RESOURCES` when all request DTOs of the endpoint are outstanding.
    pub fn post_send_ud<'a>(
        &'static self,
        iov: impl Into<Iov<'a>>,
        to: &'static Ah<T>,
        qpn: u32,
        cookie: u64,
        flags: CompletionFlags,
    ) -> Result<()> {
        if !self.is_datagram() {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        let address = to.address(self)?;
        let mut queue = self.send.lock();
        let state = self.current_state();
        if !self.head.alive() {
            return Err(DEAD);
        }
        if !matches!(state, EpState::Connected | EpState::Unconnected) {
            return Err(state.refuse());
        }
        if flags.bits() & queue.invalid_flags != 0 {
            return Err(Error::arg(7));
        }
        let Some(iov) = iov.into().within(queue.max_iov) else {
            return Err(Error::arg(3));
        };
        let length = iov.iter().map(|s| u64::from(s.segment_length)).sum();
        if length > queue.max_message {
            return Err(Error::of(Kind::LengthError));
        }
        queue = self.datagram_room(queue)?;
        let Some(qp) = &queue.qp else {
            return Err(DEAD);
        };
        let slot = queue.slot(queue.head);
        let announced = queue.announce(flags.bits(), true);
        let suppressed = info_bits(flags.bits() & SUPPRESS);
        let info = suppressed | queue.info_base | announced;
        slot.fill(cookie, SlotInfo::new(DtoOp::SendUd, info, length));
        T::post_send(
            qp,
            &Request {
                id: id(queue.id_base, queue.head),
                op: Op::SendUd { to: &address, qpn },
                iov,
                length,
                // Always, because no later request would complete the last one.
                signaled: true,
                solicited: flags.contains(CompletionFlags::SOLICITED_WAIT),
                fence: false,
            },
        )
        .inspect_err(|_| queue.undo_announcement(announced))?;
        queue.head = queue.head.wrapping_add(1);
        queue.posted.add(DtoOp::SendUd, length);
        // The limit stays at the head, so that any other request takes the slow path and is refused.
        queue.limit = queue.head;
        Ok(())
    }
}

/// Destroys the address handles of these tokens, if there still are any. The caller holds no lock.
pub(super) fn destroy_peers<'a, T: Transport>(peers: impl IntoIterator<Item = &'a Token>) {
    for peer in peers {
        if let Some(ah) = Ah::<T>::by_token(*peer) {
            // Fails only if an abrupt close destroyed it first.
            let _ = ah.destroy();
        }
    }
}
