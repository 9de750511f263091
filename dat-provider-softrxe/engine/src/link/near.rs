//! The link through shared memory: records to and from one engine of this host, or this engine itself.
//!
//! A record has no ICRC, and is neither lost nor reordered. Its payload is copied between the ring and registered memory by the engine's
//! [`Regions`], which know the record at hand. A long payload is lent instead ([`lending`](crate::memory::lending)): the receiver
//! copies it out of the sender's memory.

use std::cell::RefCell;
use std::io;

use dat_os::processor::is_amd;
use softrxe_near::{Channel, Lent, Record, Sender, Violation, layout};
use softrxe_proto::near::{self, MIN_LENT, RecordPart};
use softrxe_proto::{Engine, NearId, NearOut, NearPoster, PostError, Qpn, SendRequest, Time};

use crate::adaptive::pull_choice::{PullChoice, Way};
use crate::adaptive::ring_copies::RingCopies;
use crate::adaptive::stream_pace::StreamPace;
use crate::clock;
use crate::memory::lending::Loans;
use crate::memory::record_bytes::RecordBytes;
use crate::memory::regions::{MIN_LONG, Regions};

/// Records, and bytes of payload, that are received before the answers to them are transmitted.
const MAX_RECORDS: usize = 64;
const MAX_BYTES: usize = 256 << 10;

/// Bytes of payload that are sent before other threads get the adapter's lock.
const MAX_SENT: usize = 2 << 20;

// The layout of a record is in the crates of the rings and of the protocol, which do not know each other.
const _: () = {
    assert!(layout::HEADER_AT == near::RECORD_HEAD);
    assert!(layout::MAX_HEADER == near::MAX_HEADER);
    assert!(layout::ALIGNMENT == near::RECORD_ALIGN);
    assert!(layout::MAX_LENT == near::MAX_LENT as usize);
    assert!(layout::LENT_LEN == near::LENT_LEN);
    assert!(layout::MAX_MTU == *near::MTU_RANGE.end() as usize);
    let mut header = 0;
    while header <= layout::MAX_HEADER {
        // Every length at which a payload may move, and those around.
        let mut payload = 0;
        while payload <= 1024 {
            let at = layout::payload_at(header, payload);
            assert!(at == near::payload_at(header, payload));
            assert!(layout::record_length(at, payload) == near::record_length(header, payload));
            payload += 1;
        }
        header += 4;
    }
};

/// What a transmission left to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Sent {
    /// The peer sleeps and has to be woken.
    pub(crate) wake: bool,
    /// The next call sends the rest.
    pub(crate) unfinished: bool,
}

/// What a post has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Posted {
    /// The request waits for the next transmission.
    Waits,
    /// The record is made.
    Sent {
        /// The peer sleeps and has to be woken.
        wake: bool,
    },
}

/// A channel of an engine.
#[derive(Debug)]
pub(crate) struct NearLink {
    id: NearId,
    channel: Channel,
    /// The engine has packets for which there was no room.
    starved: bool,
    pulls: Pulls,
    copies: RingCopies,
    /// The pace of the looks; `None` if every look is made.
    pace: Option<StreamPace>,
}

/// Whether long payloads are copied out of the peer's memory.
#[derive(Clone, Copy, Debug)]
enum Pulls {
    /// They are not.
    Never,
    /// The peer's memory is to be tried.
    Untried,
    /// They may be.
    Chosen(PullChoice),
}

/// What a look at the ring of a link found.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Look {
    /// Records that were received.
    pub(crate) records: usize,
    /// The peer waits for room and sleeps; it has to be woken.
    pub(crate) wake: bool,
}

impl Pulls {
    /// Returns the time before a record with a long payload is handled, if that decides on the payloads that follow.
    #[inline(never)]
    fn begin(&self, payload: RecordPart) -> Option<Time> {
        let Self::Chosen(choice) = self else {
            return None;
        };
        choice.measures(way(payload)).then(clock::now)
    }

    /// Records that a record with a long payload was handled, from `begin` on if that was taken. Tells the peer of `channel` what to do with
    /// the payloads that follow, if that has changed.
    #[inline(never)]
    fn end(
        &mut self,
        loans: &RefCell<Loans>,
        channel: NearId,
        payload: RecordPart,
        begin: Option<Time>,
    ) {
        let Self::Chosen(choice) = self else {
            return;
        };
        let mut loans = loans.borrow_mut();
        let before = choice.pulls();
        let took = begin.map(elapsed);
        let copy_time = took.map_or(0, |_| loans.copy_time_of_peer(channel));
        choice.took(way(payload), payload.length, took, copy_time);
        let now = choice.pulls();
        if now != before {
            loans.announce(channel, now);
        }
    }
}

/// Returns the time since `begin` in nanoseconds.
fn elapsed(begin: Time) -> u64 {
    clock::now().since(begin).as_nanos() as u64
}

/// Records that `length` bytes of payload were copied into the ring of channel `id`, from `begin` on if that was taken, and tells the peer how
/// long such copies take.
#[inline(never)]
fn end_copy(
    engine: &Engine<Regions>,
    id: NearId,
    copies: &mut RingCopies,
    length: usize,
    begin: Option<Time>,
) {
    if let Some(nanos) = copies.took(length, begin.map(elapsed)) {
        let mut loans = engine.memory().loans().borrow_mut();
        loans.report_copy_time(id, nanos);
    }
}

/// Returns how a payload gets into the memory of this process.
const fn way(payload: RecordPart) -> Way {
    if payload.lent {
        Way::Pulled
    } else {
        Way::Copied
    }
}

impl NearLink {
    /// Makes the link of the channel `id`. `looped`: the peer is this engine itself.
    pub(crate) fn new(id: NearId, channel: Channel, looped: bool) -> Self {
        Self {
            id,
            channel,
            starved: false,
            pulls: Pulls::Never,
            copies: RingCopies::new(is_amd()),
            // What an engine sends to itself arrives in the same call.
            pace: (!looped).then(StreamPace::new),
        }
    }

    /// Begins to lend memory to the peer, and to copy out of its memory, where the kernel allows both. `pid` is the peer's process.
    ///
    /// # Errors
    /// As `getrandom`; `OutOfMemory`. Everything is copied twice then.
    pub(crate) fn lend(&mut self, engine: &Engine<Regions>, pid: i32) -> io::Result<()> {
        let lender = self.channel.sender.lender()?;
        let puller = self.channel.receiver.puller(pid);
        let mut loans = engine.memory().loans().borrow_mut();
        loans.open(self.id, lender, puller)?;
        self.pulls = Pulls::Untried;
        Ok(())
    }

    /// Returns the largest payload of a packet.
    pub(crate) const fn mtu(&self) -> usize {
        self.channel.sender.mtu()
    }

    /// Passes records that have arrived to `engine`, up to a bound. In a stream of long records some calls do nothing.
    ///
    /// # Errors
    /// [`Violation`]: the channel is to end.
    #[inline]
    pub(crate) fn receive(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
    ) -> Result<Look, Violation> {
        if self.pace.as_ref().is_some_and(|pace| pace.rests(now)) {
            return Ok(Look::default());
        }
        self.receive_now(engine, now)
    }

    /// Passes records that have arrived to `engine`, up to a bound.
    ///
    /// # Errors
    /// [`Violation`]: the channel is to end.
    fn receive_now(&mut self, engine: &mut Engine<Regions>, now: Time) -> Result<Look, Violation> {
        if let Pulls::Untried = self.pulls {
            self.try_to_pull(engine);
        }
        let mut look = Look::default();
        let begin = self.channel.receiver.position();
        let received = self.receive_run(engine, now, &mut look);
        if look.records > 0 {
            if let Some(pace) = &mut self.pace {
                let bytes = self.channel.receiver.position() - begin;
                pace.found(now, look.records, bytes);
            }
            engine.memory().set_record(RecordBytes::NONE);
        }
        received?;
        // Also after a look that found nothing: the peer may have run out of room since the last one.
        look.wake = self.channel.receiver.flush();
        Ok(look)
    }

    /// Passes records to `engine` and counts them in `look`. The last one stays at hand.
    #[inline(always)]
    fn receive_run(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        look: &mut Look,
    ) -> Result<(), Violation> {
        let receiver = &mut self.channel.receiver;
        let mut bytes = 0;
        let mut record = Record::NONE;
        while look.records < MAX_RECORDS && bytes < MAX_BYTES {
            if !receiver.next_into(&mut record)? {
                break;
            }
            let lent = record.lent;
            let mut payload = RecordPart {
                at: record.payload_at,
                length: record.payload_length,
                lent: lent.is_some(),
            };
            if lent.is_some() {
                borrow(engine, self.id, lent);
                payload.at = 0;
            } else {
                let length = record.payload_at + record.payload_length;
                // SAFETY: the receiver checked the record's length. It stays mapped until it is released, after its use, and only raw
                // pointers lead there.
                let place = unsafe { RecordBytes::new(record.at, length) };
                engine.memory().set_record(place);
            }
            let is_long = record.payload_length >= MIN_LENT as usize;
            let begin = if is_long {
                self.pulls.begin(payload)
            } else {
                None
            };
            engine.handle_record(now, self.id, &record.header, record.header_length, &payload);
            if is_long {
                let loans = engine.memory().loans();
                self.pulls.end(loans, self.id, payload, begin);
            }
            if lent.is_some() {
                borrow(engine, self.id, None);
            }
            receiver.release();
            look.records += 1;
            bytes += record.payload_length;
        }
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn rest_until(&mut self, end: Time) {
        if let Some(pace) = &mut self.pace {
            pace.rest_until(end);
        }
    }

    /// Passes all records that are there at the time of the call to `engine`, and some of those that arrive meanwhile.
    ///
    /// # Errors
    /// As [`receive`](Self::receive).
    pub(crate) fn drain(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
    ) -> Result<Look, Violation> {
        let end = self.channel.receiver.end_of_published();
        let mut all = Look::default();
        while self.channel.receiver.position() < end {
            let look = self.receive_now(engine, now)?;
            all.records += look.records;
            all.wake |= look.wake;
            if look.records == 0 {
                break;
            }
        }
        Ok(all)
    }

    #[cold]
    fn try_to_pull(&mut self, engine: &Engine<Regions>) {
        let mut loans = engine.memory().loans().borrow_mut();
        match loans.probe(self.id) {
            None => {}
            Some(false) => self.pulls = Pulls::Never,
            Some(true) => {
                let choice = PullChoice::new();
                loans.announce(self.id, choice.pulls());
                self.pulls = Pulls::Chosen(choice);
            }
        }
    }

    /// Reports to `engine` how much the peer has consumed.
    ///
    /// # Errors
    /// [`Violation`]: the channel is to end.
    pub(crate) fn report_progress(
        &mut self,
        engine: &mut Engine<Regions>,
    ) -> Result<(), Violation> {
        let freed = self.channel.sender.freed()?;
        engine.near_freed(self.id, freed);
        Ok(())
    }

    /// Transmits what `engine` has to send on this link as far as there is room, except acknowledgements that may wait if `hold`.
    /// A peer that keeps up with a long message makes room all the time, so the bytes are bounded, too.
    ///
    /// # Errors
    /// [`Violation`]: the channel is to end.
    pub(crate) fn transmit(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        hold: bool,
    ) -> Result<Sent, Violation> {
        let lends = engine.memory().loans().borrow().is_used(self.id);
        let mut sent = Sent::default();
        engine.memory().set_past_caches(self.copies.pass_caches());
        let transmitted = self.transmit_run(engine, now, hold, lends, &mut sent);
        engine.memory().set_past_caches(false);
        engine.memory().set_record(RecordBytes::NONE);
        if lends {
            lend(engine, None);
        }
        transmitted?;
        sent.wake |= self.channel.sender.publish();
        Ok(sent)
    }

    /// Makes records, and adds to `sent`. The last one stays at hand, and marked as one that may lend if the channel `lends`.
    fn transmit_run(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        hold: bool,
        lends: bool,
        sent: &mut Sent,
    ) -> Result<(), Violation> {
        let sender = &mut self.channel.sender;
        let mut bytes = 0;
        self.starved = false;
        while engine.has_near(self.id) || !hold && engine.holds_near(self.id) {
            let space = sender.space()?;
            // SAFETY: the sender's space is mapped as long as the channel, and only raw pointers lead there.
            let place = unsafe { RecordBytes::new(space.at, space.room) };
            engine.memory().set_record(place);
            if lends {
                lend(engine, Some((self.id, sender.position())));
            }
            let begin = self.copies.measures().then(clock::now);
            if let Some(out) = engine.poll_near(now, self.id, space.room, hold) {
                if out.lent {
                    sender.commit_lent(
                        &out.header,
                        out.header_length,
                        out.payload_at,
                        out.payload_length,
                    );
                } else {
                    bytes += out.payload_length;
                    commit(sender, &out);
                    if out.payload_length >= MIN_LONG {
                        end_copy(engine, self.id, &mut self.copies, out.payload_length, begin);
                    }
                }
                if bytes >= MAX_SENT {
                    sent.unfinished = true;
                    // Without the shared flag: a thread that is about to sleep finds room, and goes on.
                    self.starved = true;
                    break;
                }
            } else if !engine.has_near(self.id) {
                break;
            } else {
                sent.wake |= sender.publish();
                if !sender.starve()? {
                    self.starved = true;
                    break;
                }
            }
        }
        Ok(())
    }

    /// Posts a request that may make its record at once; or else it waits for [`transmit`](Self::transmit). Without `publish`, the record
    /// waits for that, too.
    ///
    /// # Errors
    /// [`Violation`]: the channel is to end, and nothing was posted.
    #[inline]
    pub(crate) fn post(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        poster: NearPoster,
        request: &SendRequest<'_>,
        publish: bool,
    ) -> Result<Result<Posted, PostError>, Violation> {
        let sender = &mut self.channel.sender;
        let space = sender.space()?;
        // SAFETY: as in `transmit`.
        let place = unsafe { RecordBytes::new(space.at, space.room) };
        engine.memory().set_record(place);
        let posted = engine.post_near(now, poster, request, space.room, |out| {
            commit(sender, out);
            if publish {
                sender.expose();
            }
        });
        engine.memory().set_record(RecordBytes::NONE);
        Ok(posted.map(|sent| match sent {
            true if publish => Posted::Sent {
                wake: sender.publish(),
            },
            true => {
                sender.prepare_next();
                Posted::Sent { wake: false }
            }
            false => Posted::Waits,
        }))
    }

    /// Like [`post`](Self::post), for a request of [`MIN_LONG`] or more.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    #[inline(never)]
    pub(crate) fn post_long(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        poster: NearPoster,
        request: &SendRequest<'_>,
        publish: bool,
    ) -> Result<Result<Posted, PostError>, Violation> {
        let begin = self.copies.measures().then(clock::now);
        engine.memory().set_past_caches(self.copies.pass_caches());
        let posted = self.post(engine, now, poster, request, publish);
        engine.memory().set_past_caches(false);
        if let Ok(Ok(Posted::Sent { .. })) = posted {
            let length = request.sges.iter().map(|sge| sge.length as usize).sum();
            end_copy(engine, self.id, &mut self.copies, length, begin);
        }
        posted
    }

    /// Posts a datagram, which takes this link if there is room, and UDP otherwise.
    ///
    /// # Errors
    /// As [`post`](Self::post).
    pub(crate) fn post_datagram(
        &mut self,
        engine: &mut Engine<Regions>,
        now: Time,
        qpn: Qpn,
        request: &SendRequest<'_>,
    ) -> Result<Result<Posted, PostError>, Violation> {
        let sender = &mut self.channel.sender;
        let space = sender.space()?;
        // SAFETY: as in `transmit`.
        let place = unsafe { RecordBytes::new(space.at, space.room) };
        engine.memory().set_record(place);
        let mut out = NearOut::EMPTY;
        let posted = engine.post_near_datagram(now, self.id, qpn, request, space.room, &mut out);
        engine.memory().set_record(RecordBytes::NONE);
        Ok(posted.map(|sent| {
            if !sent {
                return Posted::Waits;
            }
            commit(sender, &out);
            Posted::Sent {
                wake: sender.publish(),
            }
        }))
    }

    /// Prepares for a sleeping thread. Returns `false` if it must not sleep, as a record has arrived or there is room again.
    ///
    /// # Errors
    /// [`Violation`]: the channel is to end.
    pub(crate) fn arm(&mut self) -> Result<bool, Violation> {
        let arrived = self.channel.receiver.arm();
        let room = self.starved && self.channel.sender.starve()?;
        Ok(!arrived && !room)
    }

    /// Reports room to the peer after [`arm`](Self::arm). Returns whether the peer has to be woken.
    pub(crate) fn flush(&mut self) -> bool {
        self.channel.receiver.flush()
    }

    /// Ends the preparation for a sleep.
    pub(crate) fn disarm(&self) {
        self.channel.receiver.disarm();
    }
}

/// Adds the record of a packet whose payload is in the sender's space.
#[inline]
fn commit(sender: &mut Sender, out: &NearOut) {
    sender.commit_header(
        &out.header,
        out.header_length,
        out.payload_at,
        out.payload_length,
    );
}

/// Says that the record that is made lends at this position, or nothing.
#[inline]
fn lend(engine: &Engine<Regions>, record: Option<(NearId, u64)>) {
    engine.memory().loans().borrow_mut().set_lending(record);
}

/// Says that the record at hand lends this, or nothing.
#[cold]
fn borrow(engine: &Engine<Regions>, id: NearId, lent: Option<Lent>) {
    let record = lent.map(|lent| (id, lent));
    engine.memory().loans().borrow_mut().set_borrowing(record);
}
