//! Agreement on channels with other engines of this user and host: which one dials, which one answers, and which connections stay on UDP.
//!
//! The passive side of a connection dials when the request arrives, and its acceptance states the result. So the engine that listens for
//! connections is the one that dials. Likewise for datagrams: the side that was asked for a queue pair dials, and answers afterwards.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::time::Duration;

use dat_handshake::{Agreement as Handshake, Capabilities};
use softrxe_near::agreement::{
    ANY_GUID, Action, Agreed, AnswerError, Call, Dial, DialError, Door, End, Event, Precedence,
    State, hello::Reason,
};
use softrxe_near::{Channel, MapError};
use softrxe_port::liveness::LocalPeer;
use softrxe_port::poll_set::PollSet;
use softrxe_port::slot::slot_of_qpn;
use softrxe_proto::{CmId, Engine, Time};

use super::near::Near;
use super::near_fallback::{Fallbacks, Reason as Fallback, is_of_this_host};
use crate::memory::regions::Regions;

/// How long a peer that could not be dialled is left alone.
const RETRY_AFTER: Duration = Duration::from_secs(5);
/// Peers of which that is remembered.
const MAX_FAILED: usize = 1024;
/// How long a call waits for its answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// Own calls without an answer. Each takes a descriptor.
const MAX_CALLS: usize = 64;
/// Calls of others that are answered before other threads get the adapter's lock.
const MAX_ANSWERED: usize = 64;

/// Reason why connections to an engine of this host stay on UDP.
#[derive(Debug, thiserror::Error)]
enum Refusal {
    #[error("this process has as many channels as it can have")]
    TooMany,
    #[error("{MAX_CALLS} other processes have not answered yet")]
    TooManyCalls,
    #[error("the peer has not answered; it may be stopped or very busy")]
    Expired,
    #[error(transparent)]
    Dial(#[from] DialError),
    #[error(transparent)]
    Answer(#[from] AnswerError),
    #[error(transparent)]
    Memory(#[from] MapError),
    #[error("the channel cannot be added: {0}")]
    Watch(#[from] io::Error),
}

impl Refusal {
    /// Returns the reason for which connections with the engine at `ip` are counted.
    fn reason(&self, ip: IpAddr) -> Fallback {
        match self {
            Self::TooMany | Self::TooManyCalls | Self::Watch(_) => Fallback::Resources,
            Self::Expired => Fallback::Silent,
            Self::Dial(error) => Fallback::of_dial(error, ip),
            Self::Answer(error) => Fallback::of_answer(error),
            Self::Memory(error) => Fallback::of_memory(error),
        }
    }
}

/// An agreement that is under way.
#[derive(Debug)]
struct Agreement {
    state: State,
    guid: u64,
    /// When the peer is to have answered.
    until: Time,
    /// The own call.
    dial: Option<Dial>,
}

/// What the agreement on a channel changes.
pub(crate) struct Context<'a> {
    pub(crate) engine: &'a mut Engine<Regions>,
    pub(crate) near: &'a mut Near,
    pub(crate) now: Time,
}

/// Channels that are being agreed on.
#[derive(Debug)]
pub(crate) struct NearDial {
    own: End,
    /// This is the only lane of its adapter, so the endpoint that accepts a request will be here.
    alone: bool,
    /// Takes the calls of other engines. `None` if shared memory is off, or this process lacks descriptors.
    door: Option<Door>,
    agreements: HashMap<LocalPeer, Agreement>,
    /// The own calls.
    calls: PollSet,
    /// GUIDs of peers that could not be dialled, and until when they are left alone. Any user of the host can name a peer in a request, but
    /// not the GUID of a process that has not started.
    failed: HashMap<LocalPeer, (u64, Time)>,
    fallbacks: Fallbacks,
}

impl NearDial {
    /// Takes calls to `own` if `on`; `alone` says that the adapter has one lane. Without a door this engine offers no shared memory.
    ///
    /// # Errors
    /// As `epoll_create1`.
    pub(crate) fn open(own: End, on: bool, alone: bool) -> io::Result<Self> {
        let listen = || {
            Door::listen(own).inspect_err(|error| {
                let End { ip, slot, .. } = own;
                tracing::warn!(%error, %ip, slot, "no shared memory with other processes: connections stay on UDP");
            })
        };
        Ok(Self {
            own,
            alone,
            door: on.then(listen).and_then(Result::ok),
            agreements: HashMap::new(),
            calls: PollSet::new()?,
            failed: HashMap::new(),
            fallbacks: Fallbacks::default(),
        })
    }

    /// Returns the descriptor that is readable when a peer has answered.
    pub(crate) fn answers(&self) -> RawFd {
        self.calls.as_raw_fd()
    }

    /// Returns the door, unless this engine offers no shared memory.
    pub(crate) const fn door(&self) -> Option<&Door> {
        self.door.as_ref()
    }

    /// Returns whether the agreement on a channel begins when a request arrives, and not when it is accepted.
    pub(crate) const fn dials_at_requests(&self) -> bool {
        self.alone
    }

    /// Begins to agree on a channel with the peer of the request `id`, unless there is one or the peer does not offer it.
    pub(crate) fn dial(&mut self, context: &mut Context<'_>, id: CmId) {
        let Some(peer) = offer(context.engine, id) else {
            if self.door.is_some()
                && let Some(peer) = project_peer(context.engine, id)
            {
                let now = context.now;
                self.fallbacks.remember(now, peer, Fallback::Peer, false);
            }
            return;
        };
        if self.may_dial(context, peer) {
            self.begin(context, peer);
        }
    }

    /// Begins to agree on a channel with `peer`, which asks for a queue pair of datagrams. Its request does not say whether it offers
    /// one: UDP leads to the same process, the engine of this address and slot.
    pub(crate) fn dial_for_datagrams(&mut self, context: &mut Context<'_>, peer: LocalPeer) {
        let own = self.own;
        let (ip, slot) = peer;
        let guid = match (own.ip, own.slot) == peer {
            true => own.guid,
            false => ANY_GUID,
        };
        let peer = End { ip, slot, guid };
        if self.may_dial(context, peer) && is_of_this_host(ip) {
            self.begin(context, peer);
        }
    }

    /// Returns whether `peer` may be dialled: there is neither a channel to it, nor an agreement under way, nor one that failed a moment ago.
    fn may_dial(&mut self, context: &Context<'_>, peer: End) -> bool {
        let name = (peer.ip, peer.slot);
        // No packet ends an agreement whose peer refused the own call for its own, and then dropped that.
        let agreement = self.agreements.get(&name);
        if agreement.is_some_and(|agreement| agreement.until <= context.now) {
            self.expire(context.now, name);
        }
        let failed = self.failed.get(&name);
        let is_left_alone =
            failed.is_some_and(|(guid, until)| *guid == peer.guid && context.now < *until);
        self.door.is_some()
            && !context.near.is_up(name)
            && !self.agreements.contains_key(&name)
            && !is_left_alone
    }

    fn begin(&mut self, context: &mut Context<'_>, peer: End) {
        if let Err(refusal) = self.start(context, peer) {
            self.refuse(context.now, peer, &refusal);
        }
    }

    fn start(&mut self, context: &mut Context<'_>, peer: End) -> Result<(), Refusal> {
        self.end_old_calls(context.now);
        if self.agreements.len() >= MAX_CALLS {
            return Err(Refusal::TooManyCalls);
        }
        let count = context.near.count() + self.agreements.len();
        let offer = context.near.offer(count).ok_or(Refusal::TooMany)?;
        let name = (peer.ip, peer.slot);
        if peer == self.own {
            let channel = Channel::looped(offer.ring)?;
            let Context { engine, near, now } = context;
            let whose = (peer.guid, offer.port);
            near.add(engine, *now, name, whose, channel, None)?;
            return Ok(());
        }
        let (state, _) = State::Down.step(Event::Wanted, Precedence::between(&self.own, &peer));
        let dial = Dial::start(self.own, peer, offer)?;
        self.calls.add(dial.as_raw_fd())?;
        let agreement = Agreement {
            state,
            guid: peer.guid,
            until: context.now + ANSWER_WITHIN,
            dial: Some(dial),
        };
        self.agreements.insert(name, agreement);
        Ok(())
    }

    /// Gives up the agreements that take too long. A call whose request was refused has no other end, if the peer does not answer.
    fn end_old_calls(&mut self, now: Time) {
        let all = self.agreements.iter();
        let old = all.filter(|(_, agreement)| agreement.until <= now);
        let old: Vec<_> = old.map(|(name, _)| *name).collect();
        old.into_iter().for_each(|peer| self.expire(now, peer));
    }

    fn expire(&mut self, now: Time, peer: LocalPeer) {
        let guid = self.agreements.get(&peer).map_or(ANY_GUID, |a| a.guid);
        let (ip, slot) = peer;
        self.forget(peer);
        self.refuse(now, End { ip, slot, guid }, &Refusal::Expired);
    }

    fn refuse(&mut self, now: Time, peer: End, refusal: &Refusal) {
        let reason = refusal.reason(peer.ip);
        let why = reason.text();
        let (ip, slot) = (peer.ip, peer.slot);
        tracing::info!(%ip, slot, %refusal, "connections to another process stay on UDP: {why}");
        let name = (peer.ip, peer.slot);
        self.fallbacks.remember(now, name, reason, true);
        if self.failed.len() == MAX_FAILED {
            // A peer that is forgotten is dialled again, which costs less than a search for the oldest.
            self.failed.clear();
        }
        self.failed.insert(name, (peer.guid, now + RETRY_AFTER));
    }

    /// Returns the descriptor on which the agreement with `peer` goes on, if it is under way.
    pub(crate) fn awaited(&self, peer: LocalPeer) -> Option<RawFd> {
        let agreement = self.agreements.get(&peer)?;
        let door = self.door.as_ref().map(AsRawFd::as_raw_fd);
        agreement.dial.as_ref().map(AsRawFd::as_raw_fd).or(door)
    }

    /// Gives up the agreement with `peer`, which takes too long.
    pub(crate) fn give_up(&mut self, context: &mut Context<'_>, peer: LocalPeer) {
        self.expire(context.now, peer);
    }

    /// Counts and logs the connection `id`, which is established, if it stayed on UDP and its peer is an engine of this project, on
    /// whatever host.
    pub(crate) fn note_established(&mut self, engine: &Engine<Regions>, now: Time, id: CmId) {
        if engine.agreement(id).is_none_or(uses_near) {
            return;
        }
        let Some(peer) = project_peer(engine, id) else {
            return;
        };
        let otherwise = match self.door.is_some() {
            _ if !is_of_this_host(peer.0) => Fallback::Elsewhere,
            true => Fallback::Peer,
            false => Fallback::Off,
        };
        self.fallbacks.count(now, peer, otherwise);
    }

    /// Returns names and values of the counters of connections that stayed on UDP, in an order that stays the same.
    pub(crate) fn counters(&self) -> Vec<(&'static str, u64)> {
        self.fallbacks.counters()
    }

    /// Forgets what is known of a peer, and drops the own call to it: the peer has ended, calls itself, or does not answer.
    pub(crate) fn forget(&mut self, peer: LocalPeer) {
        self.failed.remove(&peer);
        self.fallbacks.forget(peer);
        if let Some(agreement) = self.agreements.remove(&peer) {
            agreement.drop_dial(&self.calls);
        }
    }

    /// Reads what other engines have said, and adds the channels that are agreed on.
    pub(crate) fn serve(&mut self, context: &mut Context<'_>) {
        // Calls first: a peer that calls as well refuses the own call.
        let mut left = MAX_ANSWERED;
        while let Some(door) = &mut self.door {
            if left == 0 {
                door.leave();
                break;
            }
            let Some(call) = door.take() else {
                break;
            };
            self.answer(context, call);
            left -= 1;
        }
        self.read_answers(context);
    }

    /// Reads the answers to own calls. The peer sends one before it accepts a connection over the channel, so this comes before each
    /// message of the connection manager.
    pub(crate) fn read_answers(&mut self, context: &mut Context<'_>) {
        if self.agreements.is_empty() {
            return;
        }
        for (name, mut agreement) in std::mem::take(&mut self.agreements) {
            let Some(dial) = &mut agreement.dial else {
                self.agreements.insert(name, agreement);
                continue;
            };
            match dial.poll() {
                Ok(None) => {
                    self.agreements.insert(name, agreement);
                }
                Ok(Some(agreed)) => {
                    self.calls.remove(agreed.bell.as_raw_fd());
                    // The peer uses no channel before this side does.
                    let watched = context.near.watch(&agreed.bell).map_err(Refusal::from);
                    let added = watched.and_then(|()| add(context, dial.peer(), agreed));
                    if let Err(refusal) = added {
                        self.refuse(context.now, dial.peer(), &refusal);
                    }
                }
                Err(error) => {
                    let peer = dial.peer();
                    self.dial_failed(context.now, peer, agreement, error);
                }
            }
        }
    }

    fn dial_failed(&mut self, now: Time, peer: End, agreement: Agreement, error: DialError) {
        let event = match error {
            DialError::Refused(Reason::Crossed) => Event::Crossed,
            _ => Event::Failed,
        };
        let precedence = Precedence::between(&self.own, &peer);
        let (state, action) = agreement.state.step(event, precedence);
        let until = agreement.until;
        agreement.drop_dial(&self.calls);
        if action == Action::GiveUp {
            self.refuse(now, peer, &error.into());
        } else {
            let awaits_call = Agreement {
                state,
                guid: peer.guid,
                until,
                dial: None,
            };
            let name = (peer.ip, peer.slot);
            self.agreements.insert(name, awaits_call);
        }
    }

    /// Answers or refuses the call of another engine.
    fn answer(&mut self, context: &mut Context<'_>, call: Call) {
        let peer = call.peer();
        let name = (peer.ip, peer.slot);
        let state = match self.agreements.get(&name) {
            Some(agreement) => agreement.state,
            None if context.near.is_up(name) => State::Up,
            None => State::Down,
        };
        let precedence = Precedence::between(&self.own, &peer);
        let (_, action) = state.step(Event::Called, precedence);
        if action != Action::Answer {
            if let Action::Refuse(reason) = action {
                call.refuse(reason);
            }
            return;
        }
        self.forget(name);
        let done = match context.near.offer(context.near.count()) {
            Some(offer) => call
                .answer(offer, |bell| context.near.watch(bell))
                .map_err(Refusal::from),
            None => {
                call.refuse(Reason::Full);
                Err(Refusal::TooMany)
            }
        };
        if let Err(refusal) = done.and_then(|agreed| add(context, peer, agreed)) {
            self.refuse(context.now, peer, &refusal);
        }
    }
}

impl Agreement {
    fn drop_dial(self, calls: &PollSet) {
        // A call that is over has closed its descriptor, which left the set with that.
        if let Some(dial) = self.dial
            && dial.as_raw_fd() >= 0
        {
            calls.remove(dial.as_raw_fd());
        }
    }
}

/// Returns the engine that sent the request `id` if it offers shared memory, and so does this engine.
fn offer(engine: &Engine<Regions>, id: CmId) -> Option<End> {
    if !uses_near(engine.agreement(id)?) {
        return None;
    }
    let (ip, qpn, _) = engine.peer(id)?;
    Some(End {
        ip,
        slot: slot_of_qpn(qpn.value()),
        guid: engine.peer_guid(id)?,
    })
}

/// Returns the peer of the request `id` if it offers shared memory, and so does this engine.
pub(crate) fn offering(engine: &Engine<Regions>, id: CmId) -> Option<LocalPeer> {
    offer(engine, id).map(|peer| (peer.ip, peer.slot))
}

/// Returns true if both sides offer shared memory; once a connection is established, if it uses it.
const fn uses_near(agreement: Handshake) -> bool {
    agreement.has(Capabilities::NEAR)
}

/// Returns the peer of `id` if it is an engine of this project.
fn project_peer(engine: &Engine<Regions>, id: CmId) -> Option<LocalPeer> {
    let (ip, qpn, is_own) = engine.peer(id)?;
    is_own.then(|| (ip, slot_of_qpn(qpn.value())))
}

/// Adds a channel that both sides agreed on.
fn add(context: &mut Context<'_>, peer: End, agreed: Agreed) -> Result<(), Refusal> {
    let Agreed {
        channel,
        bell,
        port,
    } = agreed;
    tracing::debug!(?peer, "connections use shared memory");
    let Context { engine, near, now } = context;
    let (name, whose) = ((peer.ip, peer.slot), (peer.guid, port));
    near.add(engine, *now, name, whose, channel, Some(bell))?;
    Ok(())
}

#[cfg(test)]
mod tests;
