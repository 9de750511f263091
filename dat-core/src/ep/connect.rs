//! Making and ending connections (dat_ep_connect, dat_ep_dup_connect, dat_ep_disconnect), and what a
//! transport says about them.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::MutexGuard;

use super::state::{self, Effect, Input, Step};
use super::{DEAD, Ep, EpParts, EpState, Loan};
use crate::attr::EpAttr;
use crate::counters::{EpCounter, EpValues, IaCounter};
use crate::error::{Error, Kind, Result, Subtype};
use crate::evd::{Evd, Expected, Feed};
use crate::event::{AsyncEvent, ConnectionEvent, Event};
use crate::flags::Close;
use crate::private_data::{PrivateData, check_length};
use crate::timer;
use crate::transport::{Connect, Token, Transport};
use crate::upcall::ConnOutcome;
use crate::use_count::Claim;

/// How often a graceful disconnect looks whether the outstanding requests are done.
const DRAIN_INTERVAL: Duration = Duration::from_micros(500);

/// `DAT_EP_TRANSFER_TO_ERROR`, the reason of `DAT_ASYNC_ERROR_EP_BROKEN`.
const EP_TRANSFER_TO_ERROR: u32 = 0;

/// The cold side of an endpoint. Fields are dropped in this order.
pub(super) struct Connection<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    /// Transport calls that have `qp` at present, see [`Loan`].
    pub(super) loans: u32,
    /// Differs in each life of the slot.
    pub(super) life: u32,
    pub(super) parts: EpParts<T>,
    pub(super) attr: Option<EpAttr>,
    pub(super) claims: Vec<Claim>,
    pub(super) recv_feed: Option<Feed<T>>,
    pub(super) request_feed: Option<Feed<T>>,
    pub(super) connect_feed: Option<Feed<T>>,
    /// While an attempt to connect goes on: its event is to come.
    expected: Option<Expected<T>>,
    /// An EVD of our own for completions that the consumer does not want to hear of.
    pub(super) unheard: Unheard<T>,
    /// The peer: address and qualifier (active) or port (passive).
    pub(super) remote: Option<(IpAddr, u64)>,
    /// Of a datagram endpoint: its [`Ah`](crate::ah::Ah)s.
    pub(super) peers: Vec<Token>,
    /// Calls of dat_ep_connect and dat_ep_disconnect that succeeded.
    pub(super) connects: u64,
    pub(super) disconnects: u64,
    /// What the endpoint had counted before this life, or the last reset of its counters.
    pub(super) counted_before: EpValues,
    /// Events on their way to the connect EVD, in order; one thread at a time takes them there.
    pending: VecDeque<ConnectionEvent>,
    posting: bool,
}

/// Owner of the EVD for unheard completions.
pub(super) struct Unheard<T: Transport>(pub(super) Option<&'static Evd<T>>);

impl<T: Transport> Drop for Unheard<T> {
    fn drop(&mut self) {
        // An abrupt close may have been faster.
        if let Some(evd) = self.0.take() {
            let _ = evd.free();
        }
    }
}

impl<T: Transport> Default for Connection<T> {
    fn default() -> Self {
        Self {
            parts: EpParts::default(),
            attr: None,
            qp: None,
            loans: 0,
            life: 0,
            claims: Vec::new(),
            recv_feed: None,
            request_feed: None,
            connect_feed: None,
            expected: None,
            unheard: Unheard(None),
            remote: None,
            peers: Vec::new(),
            connects: 0,
            disconnects: 0,
            counted_before: [0; EpCounter::ALL.len()],
            pending: VecDeque::new(),
            posting: false,
        }
    }
}

/// The locked connection side.
pub(super) type Locked<T> = MutexGuard<'static, Connection<T>>;

impl<T: Transport> Ep<T> {
    /// dat_ep_connect. `timeout` `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Unconnected, `DAT_INVALID_PARAMETER` (timeout 0 is argument 4, private data
    /// too long 5), `DAT_MODEL_NOT_SUPPORTED` for a quality of service or multipathing,
    /// `DAT_INVALID_ADDRESS`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn connect(
        &'static self,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
        qos: u32,
        flags: u32,
    ) -> Result<()> {
        // DAT_QOS_BEST_EFFORT and no DAT_MULTIPATH_FLAG.
        if qos != 0 || flags != 0 {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        self.check_attempt(timeout, private_data, [4, 5])?;
        self.start(remote, conn_qual, timeout, private_data)
    }

    /// 2.0 dat_ep_common_connect: to a common service point, by its address and port.
    ///
    /// # Errors
    /// As [`Ep::connect`], with the arguments counted its way; `DAT_INVALID_ADDRESS` for port 0.
    pub fn common_connect(
        &'static self,
        remote: SocketAddr,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        self.check_attempt(timeout, private_data, [3, 4])?;
        if remote.port() == 0 {
            return Err(Error::of(Kind::InvalidAddress));
        }
        let ip = remote.ip().to_canonical();
        self.start(ip, remote.port().into(), timeout, private_data)
    }

    /// dat_ep_dup_connect: to where `model` is connected.
    ///
    /// # Errors
    /// As [`Ep::connect`], with the arguments counted its way; `DAT_INVALID_STATE` unless `model` is connected
    /// and was connected by dat_ep_connect.
    pub fn dup_connect(
        &'static self,
        model: &'static Self,
        timeout: Option<Duration>,
        private_data: &[u8],
        qos: u32,
    ) -> Result<()> {
        if qos != 0 {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        let (remote, conn_qual) = {
            let model_side = model.lock_alive()?;
            match (model.current_state(), model_side.remote) {
                (EpState::Connected, Some(remote)) => remote,
                (state, _) => return Err(state.refuse()),
            }
        };
        self.check_attempt(timeout, private_data, [3, 4])?;
        self.start(remote, conn_qual, timeout, private_data)
    }

    /// Whether the timeout and the private data may be; `arguments`: their numbers in the C prototype.
    fn check_attempt(
        &self,
        timeout: Option<Duration>,
        private_data: &[u8],
        arguments: [u16; 2],
    ) -> Result<()> {
        if timeout == Some(Duration::ZERO) {
            return Err(Error::arg(arguments[0]));
        }
        let limit = self.ia().attributes()?.max_private_data_size;
        check_length(private_data, limit, arguments[1])
    }

    /// Begins an attempt that [`Ep::check_attempt`] allows.
    fn start(
        &'static self,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        let ia = self.ia();
        if self.is_datagram() {
            return self.find_peer(remote, conn_qual, timeout, private_data);
        }
        let adapter = ia.adapter()?;
        timer::ready()?;
        let (loan, token) = self.begin_attempt(Input::Connect, (remote, conn_qual))?;
        let connect = Connect {
            token,
            remote,
            conn_qual,
            private_data,
            timeout,
        };
        let called = T::connect(&adapter, &loan.qp, &connect);
        if let Some(mut side) = self.settle(&loan, called)? {
            side.connects += 1;
        }
        ia.count(IaCounter::CmReqTx);
        if let Some(timeout) = timeout {
            timer::after(timeout, move || Self::input(token, Input::TimedOut, None));
        }
        Ok(())
    }

    /// An input that is no event of a connection: of service points and requests.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`, `DAT_INVALID_HANDLE`.
    pub(crate) fn service(&'static self, input: Input) -> Result<EpState> {
        let mut side = self.lock_alive()?;
        Ok(self.apply(&mut side, input)?.next)
    }

    /// For dat_ep_connect and dat_cr_accept: the queue pair to make the connection on, and the token of the connection to
    /// be. `settle` takes what the transport says.
    pub(crate) fn begin_attempt(
        &'static self,
        input: Input,
        remote: (IpAddr, u64),
    ) -> Result<(Loan<T>, Token)> {
        let mut side = self.lock_alive()?;
        let next = state::step(self.current_state(), input)?;
        let loan = Self::lend(&mut side).ok_or(Error::state(Subtype::InvalidStateEpPz))?;
        let feed = side.connect_feed.as_ref().filter(|feed| feed.valid());
        side.expected = feed.and_then(|feed| feed.evd().expect());
        self.head.generation.fetch_add(1, Ordering::AcqRel);
        self.drained_srq.store(false, Ordering::Release);
        self.commit(next);
        side.remote = Some(remote);
        Ok((loan, self.head.token(self.index())))
    }

    /// dat_ep_disconnect.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` in Unconnected, Reserved, Passive and Tentative Connection Pending.
    pub fn disconnect(&'static self, how: Close) -> Result<()> {
        let input = match how {
            Close::Abrupt => Input::DisconnectAbrupt,
            Close::Graceful => Input::DisconnectGraceful,
        };
        let mut side = self.lock_alive()?;
        let was = self.current_state();
        let step = self.apply(&mut side, input)?;
        let token = self.head.token(self.index());
        side.disconnects += 1;
        if matches!(was, EpState::Connected | EpState::DisconnectPending) && step.next != was {
            self.ia().count(IaCounter::CmDreqTx);
        }
        self.finish(side, was, step);
        if step.effect == Effect::AwaitDrain {
            self.mark_end_of_requests();
            Self::await_drain(token);
        }
        Ok(())
    }

    /// Looks whether the outstanding requests of the connection `token` are done, now and again.
    fn await_drain(token: Token) {
        let Some(ep) = Self::of_connection(token) else {
            return;
        };
        if ep.current_state() != EpState::DisconnectPending {
            return;
        }
        let evd = {
            let side = ep.connection.lock();
            side.parts.request_evd.or(side.unheard.0)
        };
        if let Some(evd) = evd {
            evd.drain();
        }
        if ep.requests_outstanding() == 0 {
            Self::input(token, Input::Drained, None);
        } else {
            timer::after(DRAIN_INTERVAL, move || Self::await_drain(token));
        }
    }

    /// Private data of the event that told of the present connection, or of the peer's refusal: stays at its
    /// address until the endpoint's next connection.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Takes what a transport reports of the connection `token`.
    pub(crate) fn transport_outcome(token: Token, outcome: ConnOutcome, private_data: &[u8]) {
        let private_data = outcome.has_private_data().then_some(private_data);
        Self::input(token, Input::Transport(outcome), private_data);
    }

    /// Breaks the present connection from the timer's thread: for callers that hold locks.
    pub(super) fn break_later(&'static self) {
        let token = self.head.token(self.index());
        timer::soon(move || Self::input(token, Input::Transport(ConnOutcome::Broken), None));
    }

    /// Breaks the present connection.
    pub(crate) fn break_now(&'static self) {
        Self::input(
            self.head.token(self.index()),
            Input::Transport(ConnOutcome::Broken),
            None,
        );
    }

    /// The endpoint whose present connection, or attempt, `token` names.
    fn of_connection(token: Token) -> Option<&'static Self> {
        let ep = T::arenas().ep.get(token.index())?;
        (ep.head.alive() && ep.head.token(token.index()) == token).then_some(ep)
    }

    /// Breaks the connection that `token` names, or that of the queue pair made with `token`.
    pub(crate) fn broken(token: Token) {
        let Some(ep) = T::arenas().ep.get(token.index()) else {
            return;
        };
        let token = if ep.is_queue_pair(token) {
            ep.head.token(token.index())
        } else {
            token
        };
        Self::input(token, Input::Transport(ConnOutcome::Broken), None);
    }

    /// The transport says that the endpoint takes no more receives from its SRQ.
    pub(crate) fn last_receive(token: Token) {
        let Some(ep) = T::arenas().ep.get(token.index()) else {
            return;
        };
        if ep.is_queue_pair(token) || Self::of_connection(token).is_some() {
            ep.announce_srq_drained();
        }
    }

    fn input(token: Token, input: Input, private_data: Option<&[u8]>) {
        let Some(ep) = Self::of_connection(token) else {
            tracing::debug!(?token, ?input, "of a connection that is gone");
            return;
        };
        let Ok(mut side) = ep.lock_alive() else {
            return;
        };
        // Again, now that nothing can change any more.
        if ep.head.token(token.index()) != token {
            return;
        }
        let was = ep.current_state();
        let Ok(step) = ep.apply(&mut side, input) else {
            return;
        };
        if let (Some(data), Some(_)) = (private_data, step.event) {
            ep.private_data.set(data);
        }
        for counter in told_of(was, input) {
            ep.ia().count(*counter);
        }
        ep.finish(side, was, step);
    }

    /// The connection side, if the endpoint is alive.
    pub(super) fn lock_alive(&'static self) -> Result<Locked<T>> {
        let side = self.connection.lock();
        if self.head.alive() {
            Ok(side)
        } else {
            Err(DEAD)
        }
    }

    /// Takes the step that `input` makes. The caller does what the step's effect asks for.
    pub(super) fn apply(&'static self, side: &mut Locked<T>, input: Input) -> Result<Step> {
        let was = self.current_state();
        let step = state::step(was, input)?;
        if step.next != was {
            tracing::debug!(ep = self.index(), ?input, from = %was, to = %step.next, "endpoint");
        }
        self.commit(step);
        if !step.next.is_attempt() {
            side.expected = None;
        }
        Ok(step)
    }

    pub(super) fn commit(&self, step: Step) {
        let was = self.state.swap(step.next as u32, Ordering::AcqRel);
        if was != step.next as u32 {
            // The next post looks at the state; one that is under way is over when the locks are free.
            let mut send = self.send.lock();
            send.limit = send.head;
            drop(send);
            let mut recv = self.recv.lock();
            recv.limit = recv.head;
        }
    }

    /// Tears down and tells, as `step` wants it.
    fn finish(&'static self, mut side: Locked<T>, was: EpState, step: Step) {
        if step.effect == Effect::Teardown
            && let Some(loan) = Self::lend(&mut side)
        {
            // The transport may take its time; and what it flushes should come before the event.
            drop(side);
            T::disconnect(&loan.qp);
            let Some(back) = self.returned(&loan) else {
                return;
            };
            side = back;
        }
        if let Some(event) = step.event {
            side.pending.push_back(event);
            self.post_events(side);
        } else {
            drop(side);
        }
        if step.next == EpState::Disconnected
            && matches!(was, EpState::Connected | EpState::DisconnectPending)
        {
            self.announce_srq_drained();
        }
    }

    /// Takes pending events to the connect EVD, in the order of the transitions, without holding a lock over
    /// the EVD's consumers.
    fn post_events(&'static self, mut side: Locked<T>) {
        if side.posting {
            return;
        }
        side.posting = true;
        let life = side.life;
        while let Some(number) = side.pending.pop_front() {
            let feed = side.connect_feed.as_ref().filter(|feed| feed.valid());
            let evd = feed.map(Feed::evd);
            drop(side);
            if let Some(evd) = evd {
                evd.post(Event::Connection {
                    number,
                    ep: self.handle(),
                });
            }
            side = self.connection.lock();
            if side.life != life {
                // Freed meanwhile.
                return;
            }
        }
        side.posting = false;
    }

    /// dtestsrq and others wait for this event after each disconnect of an endpoint on an SRQ: it says that no
    /// receive of the SRQ is in the endpoint's hands. Not every transport tells (rxe does not), so core does,
    /// once a connection; a transport that does comes second and is not repeated.
    fn announce_srq_drained(&'static self) {
        let on_srq = {
            let side = self.connection.lock();
            side.parts.srq.is_some() && self.head.alive()
        };
        if on_srq && !self.drained_srq.swap(true, Ordering::AcqRel) {
            self.ia()
                .post_async(AsyncEvent::EpBroken, self.handle(), EP_TRANSFER_TO_ERROR);
        }
    }
}

/// What the connection manager told of, when `input` moved an endpoint out of the state `was`.
const fn told_of(was: EpState, input: Input) -> &'static [IaCounter] {
    use ConnOutcome as O;
    use IaCounter as C;
    match (was, input) {
        (EpState::ActiveConnectionPending, Input::Transport(O::Established)) => {
            &[C::CmRepRx, C::CmRtuTx, C::CmActiveEst]
        }
        (_, Input::Transport(O::Established)) => &[C::CmRtuRx, C::CmPassiveEst],
        (_, Input::Transport(O::PeerRejected)) => &[C::CmUserRejRx],
        (_, Input::Transport(O::NonPeerRejected)) => &[C::CmErr, C::CmErrRejRx, C::CmErrRefused],
        (_, Input::TimedOut) => &[C::CmErr, C::CmErrTimeout],
        (_, Input::Transport(O::Unreachable | O::AcceptError)) => &[C::CmErr],
        (EpState::Connected, Input::Transport(O::Disconnected)) => &[C::CmDreqRx],
        _ => &[],
    }
}
