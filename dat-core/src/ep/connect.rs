//! Connection side of endpoints: starting to connect (dat_ep_connect, dat_ep_common_connect, dat_ep_dup_connect), state
//! transitions and their events. `disconnect` ends connections.

use std::collections::{HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dat_arena::MutexGuard;

use super::datagram::destroy_peers;
use super::early::receive_evd;
use super::state::{Effect, Input, Step};
use super::{DEAD, Ep, EpParts, EpState, QpCheckout};
use crate::attributes::EpAttr;
use crate::counters::{EpCounter, EpValues, IaCounter};
use crate::error::{Error, Kind, Result, Subtype};
use crate::evd::{Enqueued, Evd, ExpectedEvent, Feed, RequestWatch};
use crate::event::{ConnectionEvent, Event};
use crate::private_data::{PrivateData, check_length};
use crate::timer::{self, Pending};
use crate::transport::{Connect, Token, Transport};
use crate::upcall::ConnOutcome;
use crate::use_count::Claim;

/// Connection side of an endpoint, which posts do not need. The fields are dropped in this order.
pub(super) struct Connection<T: Transport> {
    pub(super) qp: Option<Arc<T::Qp>>,
    /// Transport calls that use `qp` at present, see [`QpCheckout`].
    pub(super) checkouts: u32,
    /// Number that differs for each object in the slot.
    pub(super) generation: u32,
    pub(super) parts: EpParts<T>,
    pub(super) attr: Option<EpAttr>,
    pub(super) claims: Vec<Claim>,
    pub(super) recv_feed: Option<Feed<T>>,
    pub(super) request_feed: Option<Feed<T>>,
    pub(super) connect_feed: Option<Feed<T>>,
    /// Announcement of the coming event to the connect EVD, during an attempt to connect.
    expected: Option<ExpectedEvent<T>>,
    /// Timeout of an attempt to connect.
    timeout: Option<Pending>,
    /// Watch on the completion queue of the requests during a graceful disconnect.
    pub(super) request_watch: Option<RequestWatch<T>>,
    /// Internal EVD for completions that need a completion queue, although the consumer gave no EVD for them.
    pub(super) internal_evd: InternalEvd<T>,
    /// Peer: address and qualifier (active side) or port (passive side).
    pub(super) remote: Option<(IpAddr, u64)>,
    /// Qualifier that the peer connected to; 0 on the active side and without a connection.
    pub(super) listened: u64,
    /// Address handles ([`Ah`](crate::ah::Ah)) of a datagram endpoint that the consumer has not freed.
    pub(super) peers: HashSet<Token>,
    /// The latest ones whose lookup or accept has failed.
    pub(super) failed: VecDeque<Token>,
    /// Address handles whose lookup or accept has no answer yet. A disconnect takes them out, and no event comes for them then.
    pub(super) lookups: Vec<Token>,
    /// Successful calls of dat_ep_connect and of dat_ep_disconnect.
    pub(super) connects: u64,
    pub(super) disconnects: u64,
    /// Counts before this object, or at the last reset of its counters.
    pub(super) counted_before: EpValues,
    /// Event of a teardown that a thread has the transport make; it follows the completions that this flushes.
    pub(super) held: Option<Held>,
    /// Events to be posted to the connect EVD, in order; one thread at a time posts them.
    pub(super) pending: VecDeque<Event>,
    posting: bool,
}

/// Time after which core looks first whether a device has flushed a queue pair, and whose double it waits before it looks again.
const FIRST_LOOK: Duration = Duration::from_millis(1);
/// Longest of these times: after a second the event is posted although completions are missing, as where the device is gone.
const LAST_LOOK: Duration = Duration::from_millis(512);

/// Event that waits for the end of a teardown, or of the flush.
pub(super) struct Held {
    /// Generation of the connection.
    generation: u32,
    event: Event,
    /// True if there was a connection, and not only an attempt.
    was_connected: bool,
}

/// Owner of the internal EVD.
pub(super) struct InternalEvd<T: Transport>(pub(super) Option<&'static Evd<T>>);

impl<T: Transport> Drop for InternalEvd<T> {
    fn drop(&mut self) {
        // Fails only if an abrupt close freed the EVD first.
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
            checkouts: 0,
            generation: 0,
            claims: Vec::new(),
            recv_feed: None,
            request_feed: None,
            connect_feed: None,
            expected: None,
            timeout: None,
            request_watch: None,
            internal_evd: InternalEvd(None),
            remote: None,
            listened: 0,
            peers: HashSet::new(),
            failed: VecDeque::new(),
            lookups: Vec::new(),
            connects: 0,
            disconnects: 0,
            counted_before: [0; EpCounter::ALL.len()],
            held: None,
            pending: VecDeque::new(),
            posting: false,
        }
    }
}

impl<T: Transport> Connection<T> {
    /// Returns the EVDs whose completion queues have the completions of the queue pair. When that has ended, they are to
    /// [gather](Evd::gather) what is left there: a consumer that takes no events would have the queues overflow, and after many
    /// generations an id is used again.
    pub(super) fn fed(&self) -> [Option<&'static Evd<T>>; 3] {
        let valid = |feed: &Option<Feed<T>>| feed.as_ref().filter(|f| f.valid()).map(Feed::evd);
        let (requests, receives) = (valid(&self.request_feed), valid(&self.recv_feed));
        [requests, receives, self.internal_evd.0]
    }

    /// Returns the EVD of the connection events, if it also has completions of the endpoint.
    fn shared_evd(&self) -> Option<&'static Evd<T>> {
        let connect = self
            .connect_feed
            .as_ref()
            .filter(|feed| feed.valid())?
            .evd();
        let is_shared =
            |evd: &Option<&'static Evd<T>>| evd.is_some_and(|evd| std::ptr::eq(evd, connect));
        [self.parts.recv_evd, self.parts.request_evd]
            .iter()
            .any(is_shared)
            .then_some(connect)
    }
}

/// Lock guard of the connection side.
pub(super) type Locked<T> = MutexGuard<'static, Connection<T>>;

impl<T: Transport> Ep<T> {
    /// Starts to connect (dat_ep_connect). A `timeout` of `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Unconnected, `DAT_INVALID_PARAMETER` (timeout 0 is argument 4, private data too
    /// long 5), `DAT_MODEL_NOT_SUPPORTED` for a quality of service or multipathing, `DAT_INVALID_ADDRESS`,
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub fn connect(
        &'static self,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
        qos: u32,
        flags: u32,
    ) -> Result<()> {
        // Only DAT_QOS_BEST_EFFORT and no DAT_MULTIPATH_FLAG.
        if qos != 0 || flags != 0 {
            return Err(Error::of(Kind::ModelNotSupported));
        }
        self.check_attempt(timeout, private_data, [4, 5])?;
        self.start(remote, conn_qual, timeout, private_data)
    }

    /// Starts to connect to a common service point, by its address and port (2.0 dat_ep_common_connect).
    ///
    /// # Errors
    /// As [`Ep::connect`], with this call's argument numbers; `DAT_INVALID_ADDRESS` for port 0.
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

    /// Starts to connect to the peer of `model` (dat_ep_dup_connect).
    ///
    /// # Errors
    /// As [`Ep::connect`], with this call's argument numbers; `DAT_INVALID_STATE` unless `model` is connected. If `model`
    /// accepted its connection, nothing listens on the qualifier of its peer, and the attempt ends in
    /// `DAT_CONNECTION_EVENT_NON_PEER_REJECTED`.
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

    /// Checks the timeout and the private data, whose argument numbers in the C prototype are `arguments`.
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

    /// Starts an attempt whose arguments are checked.
    fn start(
        &'static self,
        remote: IpAddr,
        conn_qual: u64,
        timeout: Option<Duration>,
        private_data: &[u8],
    ) -> Result<()> {
        let ia = self.ia();
        if self.is_datagram() {
            return self.look_up_peer(remote, conn_qual, timeout, private_data);
        }
        let adapter = ia.adapter()?;
        timer::ready()?;
        let (checkout, token) = self.begin_attempt(Input::Connect, (remote, conn_qual), 0)?;
        let connect = Connect {
            token,
            remote,
            conn_qual,
            private_data,
            timeout,
        };
        let called = T::connect(&adapter, &checkout.qp, &connect);
        if let Some(mut side) = self.finish_call(&checkout, called)? {
            side.connects += 1;
            // It may be over already, and another one begun.
            if self.state.is(EpState::ActiveConnectionPending)
                && self.head.token(self.index()) == token
            {
                let end = move || Self::handle_input(token, Input::TimedOut, None);
                side.timeout = timeout.map(|timeout| Pending::new(timeout, end));
            }
        }
        ia.count(IaCounter::CmReqTx);
        Ok(())
    }

    /// Applies an input of a service point or a connection request.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE`, `DAT_INVALID_HANDLE`.
    pub(crate) fn service_input(&'static self, input: Input) -> Result<EpState> {
        let mut side = self.lock_alive()?;
        let next = self.apply(&mut side, input)?.next;
        if next == EpState::Unconnected {
            (side.remote, side.listened) = (None, 0);
        }
        Ok(next)
    }

    /// Begins an attempt for dat_ep_connect or dat_cr_accept: returns the queue pair to connect and the token of the
    /// new connection. The caller passes the result of the transport's call to [`Ep::finish_call`]. `listened` is the qualifier of the
    /// service point, 0 for dat_ep_connect.
    pub(crate) fn begin_attempt(
        &'static self,
        input: Input,
        remote: (IpAddr, u64),
        listened: u64,
    ) -> Result<(QpCheckout<T>, Token)> {
        let mut side = self.lock_alive()?;
        self.state.preview(input)?;
        let checkout = Self::check_out(&mut side).ok_or(Error::state(Subtype::InvalidStateEpPz))?;
        let feed = side.connect_feed.as_ref().filter(|feed| feed.valid());
        side.expected = feed.and_then(|feed| feed.evd().expect_connection());
        self.head.generation.fetch_add(1, Ordering::AcqRel);
        self.srq_drain_announced.store(false, Ordering::Release);
        self.apply(&mut side, input)?;
        self.close_gate(&side);
        // That of an earlier connection, which the events of this attempt must not report.
        self.private_data.set(&[]);
        side.remote = Some(remote);
        side.listened = listened;
        Ok((checkout, self.head.token(self.index())))
    }

    /// Returns the private data of the event for the present connection or for the peer's rejection. The data stays
    /// at its address until the endpoint's next connection.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// Returns the private data of the peer that `event` comes with; `None` for an event that has none.
    pub fn private_data_of(&self, event: ConnectionEvent) -> Option<&PrivateData> {
        use ConnectionEvent::{Established, PeerRejected};
        matches!(event, Established | PeerRejected).then_some(&self.private_data)
    }

    /// Applies an outcome that the transport reports for the connection `token`.
    pub(crate) fn transport_outcome(token: Token, outcome: ConnOutcome, private_data: &[u8]) {
        let private_data = outcome.has_private_data().then_some(private_data);
        Self::handle_input(token, Input::Transport(outcome), private_data);
    }

    /// Returns the endpoint whose present connection or attempt has the token `token`.
    pub(super) fn of_connection(token: Token) -> Option<&'static Self> {
        let ep = T::arenas().ep.get(token.index())?;
        (ep.head.alive() && ep.head.token(token.index()) == token).then_some(ep)
    }

    pub(super) fn handle_input(token: Token, input: Input, private_data: Option<&[u8]>) {
        let Some(ep) = Self::of_connection(token) else {
            tracing::debug!(
                ?token,
                ?input,
                "ignored an outcome of a connection that has ended"
            );
            return;
        };
        let Ok(mut side) = ep.lock_alive() else {
            return;
        };
        // Checked again under the lock.
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
        for counter in cm_counters(was, input) {
            ep.ia().count(*counter);
        }
        ep.finish(side, was, step);
    }

    /// Locks the connection side.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint is dead.
    pub(super) fn lock_alive(&'static self) -> Result<Locked<T>> {
        let side = self.connection.lock();
        if self.head.alive() {
            Ok(side)
        } else {
            Err(DEAD)
        }
    }

    /// Takes the transition that `input` makes. The caller takes the action of the step's effect.
    pub(super) fn apply(&'static self, side: &mut Locked<T>, input: Input) -> Result<Step> {
        let was = self.current_state();
        let step = self.state.apply(input)?;
        if step.next != was {
            tracing::debug!(ep = self.index(), ?input, from = %was, to = %step.next, "the state of an endpoint changed");
            // The next post then checks the state. A post in progress is finished when these locks are taken.
            let mut send = self.send.lock();
            send.limit = send.head;
            drop(send);
            let mut recv = self.recv.lock();
            recv.limit = recv.head;
        }
        if !step.next.is_attempt() {
            side.expected = None;
            side.timeout = None;
        }
        if step.next != EpState::DisconnectPending {
            side.request_watch = None;
        }
        Ok(step)
    }

    /// Takes the teardown action of `step` and posts its event.
    pub(super) fn finish(&'static self, mut side: Locked<T>, was: EpState, step: Step) {
        // Under the lock of the transition: an answer that arrives from here on finds no lookup.
        let ended = match step.next {
            EpState::DisconnectPending | EpState::Disconnected => std::mem::take(&mut side.lookups),
            _ => Vec::new(),
        };
        let tears_down = step.effect == Effect::Teardown;
        let was_connected = step.next == EpState::Disconnected
            && matches!(was, EpState::Connected | EpState::DisconnectPending);
        let event = step.event.map(|number| Event::Connection {
            number,
            ep: self.handle(),
        });
        if (tears_down || !ended.is_empty())
            && let Some(checkout) = Self::check_out(&mut side)
        {
            let generation = self.head.generation.load(Ordering::Relaxed);
            side.held = event.map(|event| Held {
                generation,
                event,
                was_connected,
            });
            let token = self.head.token(self.index());
            let shared = side.shared_evd();
            // Unlocked, because the transport may take its time. The completions that it flushes come before the
            // event.
            drop(side);
            destroy_peers::<T>(&ended);
            if tears_down {
                T::disconnect(&checkout.qp);
                shared.into_iter().for_each(Evd::gather);
            }
            let Some(back) = self.check_in(&checkout) else {
                return;
            };
            side = back;
            let is_own = |held: &mut Held| held.generation == generation;
            let holds = side.held.as_mut().is_some_and(is_own);
            if event.is_some() && !holds {
                // dat_ep_reset of another thread has posted it.
                return;
            }
            if holds && was_connected && self.is_flush_due(&side) {
                drop(side);
                Self::post_when_flushed(token, FIRST_LOOK);
                return;
            }
            side.held.take_if(is_own);
        }
        if let Some(event) = event {
            side.pending.push_back(event);
            self.post_events(side);
        } else {
            drop(side);
        }
        if was_connected {
            self.announce_srq_drained();
        }
    }

    /// Posts the event that waits for the end of a teardown in another thread, or of the flush. dat_ep_reset does not wait for these: the
    /// event must not follow those of the next connection. Returns the lock again.
    ///
    /// # Errors
    /// `DAT_INVALID_HANDLE` if the endpoint was freed meanwhile.
    pub(super) fn post_held(&'static self, mut side: Locked<T>) -> Result<Locked<T>> {
        let Some(held) = side.held.take() else {
            return Ok(side);
        };
        side.pending.push_back(held.event);
        self.post_events(side);
        if held.was_connected {
            self.announce_srq_drained();
        }
        self.lock_alive()
    }

    /// Returns true if the queue pair, which has ended, owes the EVD of the connection events a completion. A device flushes a while after the
    /// call that has it flush: rdma_rxe in a tasklet. Suppressed requests do not count, because they may have succeeded.
    fn is_flush_due(&self, side: &Connection<T>) -> bool {
        let Some(shared) = side.shared_evd() else {
            return false;
        };
        self.send.lock().owes(shared, &self.request_ring)
            || self.recv.lock().owes(shared, &self.recv_ring)
    }

    /// Posts the event that is held back for the connection `token` when the device has flushed all, `delay` from now at the earliest.
    fn post_when_flushed(token: Token, delay: Duration) {
        timer::after(delay, move || {
            let present = || {
                let ep = Self::of_connection(token)?;
                let side = ep.lock_alive().ok()?;
                // Checked again under the lock.
                (ep.head.token(token.index()) == token).then_some((ep, side))
            };
            // dat_ep_reset has posted the event otherwise, and after dat_ep_free there is none.
            let Some((_, side)) = present() else { return };
            let shared = side.shared_evd();
            drop(side);
            // May run a consumer's agent.
            shared.into_iter().for_each(Evd::gather);
            let Some((ep, side)) = present() else { return };
            if delay < LAST_LOOK && ep.is_flush_due(&side) {
                drop(side);
                Self::post_when_flushed(token, delay * 2);
            } else {
                // Fails if the endpoint was freed meanwhile.
                drop(ep.post_held(side));
            }
        });
    }

    /// Posts the pending events to the connect EVD in the order of the transitions, holding no lock while consumers
    /// are woken. Received messages follow the event that the connection is established, and precede any other.
    pub(super) fn post_events(&'static self, mut side: Locked<T>) {
        if side.posting {
            return;
        }
        side.posting = true;
        let generation = side.generation;
        while let Some(event) = side.pending.pop_front() {
            let receives = receive_evd(&side);
            // A datagram endpoint has no gate.
            let established = matches!(
                event,
                Event::Connection {
                    number: ConnectionEvent::Established,
                    ..
                }
            );
            if !established {
                drop(side);
                self.open_gate(receives);
                side = self.connection.lock();
                if side.generation != generation {
                    // The endpoint was freed meanwhile, and the consumer expects no more events of it.
                    return;
                }
            }
            // Queued under the lock: dat_ep_free takes it, and after that call the EVD may be freed, too.
            let feed = side.connect_feed.as_ref().filter(|feed| feed.valid());
            let queued = feed.map(|feed| feed.evd().enqueue(event));
            drop(side);
            queued.map(Enqueued::finish);
            if established {
                self.open_gate(receives);
            }
            side = self.connection.lock();
            if side.generation != generation {
                return;
            }
        }
        side.posting = false;
    }
}

/// Returns the connection manager's counters that `input` increments in the state `was`.
const fn cm_counters(was: EpState, input: Input) -> &'static [IaCounter] {
    use ConnOutcome as O;
    use IaCounter as C;
    match (was, input) {
        (EpState::ActiveConnectionPending, Input::Transport(O::Established)) => {
            &[C::CmRepRx, C::CmRtuTx, C::CmActiveEst]
        }
        (EpState::CompletionPending, Input::Transport(O::Established)) => {
            &[C::CmRtuRx, C::CmPassiveEst]
        }
        (EpState::CompletionPending, Input::MessageReceived) => &[C::CmPassiveEst],
        (_, Input::Transport(O::Established)) => &[C::CmRtuRx],
        (_, Input::Transport(O::PeerRejected)) => &[C::CmUserRejRx],
        (_, Input::Transport(O::NonPeerRejected)) => &[C::CmErr, C::CmErrRejRx, C::CmErrRefused],
        (_, Input::TimedOut) => &[C::CmErr, C::CmErrTimeout],
        (_, Input::Transport(O::Unreachable | O::AcceptError)) => &[C::CmErr],
        (EpState::Connected, Input::Transport(O::Disconnected)) => &[C::CmDreqRx],
        _ => &[],
    }
}
