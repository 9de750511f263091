//! Channels between the engines of a pair, and one of each engine to itself: records in virtual time, with limited room.
//!
//! [`over_both_links`](crate::over_both_links) runs tests over datagrams and over channels.

use std::cell::Cell;
use std::collections::VecDeque;
use std::time::Duration;

use softrxe_proto::wire::{Bth, packet};
use softrxe_proto::{Engine, NearId, NearOut, Op, Qpn, RecordPart, SendRequest, Time, near};

use super::memory::TestMemory;
use super::pair::{LATENCY, Packet, Pair};

/// The id in both engines of the channel between them.
pub const ID: NearId = NearId(3);
/// The id of an engine's channel to itself.
pub const LOOP: NearId = NearId(0);
/// Bytes of a direction.
pub const ROOM: usize = 64 << 10;

thread_local! {
    static IN_USE: Cell<bool> = const { Cell::new(false) };
    static POSTS_AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if pairs of this thread connect over channels.
pub fn in_use() -> bool {
    IN_USE.get()
}

/// Runs `test` with pairs that connect over channels.
pub fn run_over_channel(test: fn()) {
    IN_USE.set(true);
    test();
    IN_USE.set(false);
}

/// Returns true if posts of this thread make their records at once where they may.
pub fn posts_at_once() -> bool {
    POSTS_AT_ONCE.get()
}

/// Runs `test` with pairs that connect over channels, and whose posts make their records at once where they may.
pub fn run_at_once(test: fn()) {
    POSTS_AT_ONCE.set(true);
    run_over_channel(test);
    POSTS_AT_ONCE.set(false);
}

/// Defines tests that run functions of the file over datagrams, over channels, and over channels with posts that make their records.
#[macro_export]
macro_rules! over_both_links {
    ($($test:ident),* $(,)?) => {
        mod over_wire {
            $(#[test] fn $test() { super::$test(); })*
        }
        mod over_channel {
            $(#[test] fn $test() { super::common::channel::run_over_channel(super::$test); })*
        }
        mod over_channel_at_once {
            $(#[test] fn $test() { super::common::channel::run_at_once(super::$test); })*
        }
    };
}

/// A record on its way.
struct Record {
    at: Time,
    header: Vec<u8>,
    bytes: Vec<u8>,
    payload: RecordPart,
}

/// What one side sends to one side.
#[derive(Default)]
struct Direction {
    records: VecDeque<Record>,
    sent: u64,
    freed: u64,
    stopped: bool,
    full: bool,
}

/// All directions, by sender and receiver.
#[derive(Default)]
pub struct Channels {
    directions: [[Direction; 2]; 2],
    /// Room of a direction, if not [`ROOM`].
    pub room: Option<usize>,
    /// Least time between two records of a direction.
    pub pace: Duration,
    /// Lengths of the packets that posts of each side have made, and that no test has seen.
    posted: [Vec<usize>; 2],
}

impl Channels {
    /// Returns the time at which the next record arrives.
    pub fn next(&self) -> Option<Time> {
        let running = self.directions.iter().flatten().filter(|d| !d.stopped);
        let records = running.filter_map(|d| d.records.front());
        records.map(|record| record.at).min()
    }

    /// Stops or continues the consumer of what `from` sends to the other side.
    pub fn stop(&mut self, from: usize, stopped: bool) {
        self.directions[from][1 - from].stopped = stopped;
    }

    /// Takes all room for what `from` sends to the other side, or gives it back.
    pub fn set_full(&mut self, from: usize, full: bool) {
        self.directions[from][1 - from].full = full;
    }

    /// Returns the bytes of records that `from` has sent to the other side, and those that were consumed.
    pub fn progress(&self, from: usize) -> (u64, u64) {
        let direction = &self.directions[from][1 - from];
        (direction.sent, direction.freed)
    }

    fn room(&self, from: usize, to: usize) -> usize {
        let direction = &self.directions[from][to];
        if direction.full {
            return 0;
        }
        let used = (direction.sent - direction.freed) as usize;
        self.room.unwrap_or(ROOM) - used
    }
}

fn id(from: usize, to: usize) -> NearId {
    if from == to { LOOP } else { ID }
}

/// Delivers `record`, whose sender has the memory `lender`.
fn handle(
    engine: &mut Engine<TestMemory>,
    now: Time,
    id: NearId,
    record: &Record,
    lender: &TestMemory,
) {
    let memory = engine.memory().clone();
    if record.payload.lent {
        let described = &record.bytes[record.payload.at..];
        memory.set_borrowed(lender.lent_bytes(described));
        let payload = RecordPart {
            at: 0,
            ..record.payload
        };
        engine.handle_near(now, id, &record.header, payload);
        return;
    }
    memory.set_record(record.bytes.clone());
    engine.handle_near(now, id, &record.header, record.payload);
    memory.take_record();
}

impl Pair {
    /// Opens the channels, for connections that begin from now on.
    pub fn open_channels(&mut self, mtu: u16) {
        let guids = [0, 1].map(|side: usize| self.sides[side].engine.guid());
        let addresses = [0, 1].map(|side: usize| self.sides[side].address);
        for side in 0..2 {
            let engine = &mut self.sides[side].engine;
            let (own, peer) = (side, 1 - side);
            engine
                .near_up(ID, addresses[peer], guids[peer], mtu)
                .unwrap();
            engine
                .near_up(LOOP, addresses[own], guids[own], mtu)
                .unwrap();
        }
        self.channel_mtu = mtu;
        self.channels = Some(Channels::default());
    }

    /// Takes the next record from an engine, and its packet as a datagram would be, with an ICRC of 0.
    pub(super) fn take_record(
        &mut self,
        from: usize,
        id: NearId,
        room: usize,
    ) -> Option<(NearOut, Packet, Vec<u8>)> {
        self.make_record(from, room, |engine, now| {
            engine.poll_near(now, id, room, false)
        })
    }

    /// Returns the record that `make` makes in `room` bytes, and its packet.
    fn make_record(
        &mut self,
        from: usize,
        room: usize,
        make: impl FnOnce(&mut Engine<TestMemory>, Time) -> Option<NearOut>,
    ) -> Option<(NearOut, Packet, Vec<u8>)> {
        let side = &mut self.sides[from];
        side.memory.set_record(vec![0xee; room]);
        let out = make(&mut side.engine, self.now);
        let mut bytes = side.memory.take_record();
        let out = out?;
        assert!(out.record_length() <= room);
        let longest = if out.lent {
            near::MAX_LENT as usize
        } else {
            usize::from(self.channel_mtu)
        };
        assert!(out.payload_length <= longest);
        bytes.truncate(out.record_length());
        let pad = packet::pad(out.payload_length);
        let mut datagram = out.header().to_vec();
        assert_eq!(datagram[1] & 0x30, 0, "a record has no padding");
        datagram[1] |= pad << 4;
        if out.lent {
            let lent = side.memory.lent_bytes(&bytes[out.payload_at..]);
            datagram.extend(lent.expect("it was lent just now"));
        } else {
            datagram.extend(&bytes[out.payload_at..][..out.payload_length]);
        }
        datagram.extend(vec![0; usize::from(pad) + 4]);
        let packet = Packet {
            to: 1 - from,
            ip_id: 0,
            source: side.address,
            bytes: datagram,
        };
        Some((out, packet, bytes))
    }

    /// Puts records of both engines into their channels, as far as there is room.
    pub(super) fn send_records(&mut self) {
        for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            while self.send_record(from, to).is_some() {}
        }
    }

    fn send_record(&mut self, from: usize, to: usize) -> Option<usize> {
        let room = self.channels.as_ref()?.room(from, to);
        let made = self.take_record(from, id(from, to), room)?;
        self.put_record(from, to, made)
    }

    /// Posts a request. Its record is made at once where it may be, if the test asks for that.
    pub(super) fn post_at_once(&mut self, from: usize, qpn: Qpn, request: &SendRequest<'_>) {
        let length = request.sges.iter().map(|sge| u64::from(sge.length)).sum();
        if self.channels.is_some()
            && let Op::Datagram { to, .. } = request.op
            && to.address == self.sides[1 - from].address.ip()
        {
            self.post_datagram(from, qpn, request);
            return;
        }
        let engine = &mut self.sides[from].engine;
        let may = posts_at_once() && self.channels.is_some();
        let near = may.then(|| engine.near_for_post(qpn, length)).flatten();
        let Some(near) = near.filter(|near| near.channel == ID) else {
            engine.post_send(self.now, qpn, request).unwrap();
            return;
        };
        let to = 1 - from;
        let room = self.channels.as_ref().map_or(0, |c| c.room(from, to));
        let made = self.make_record(from, room, |engine, now| {
            let mut out = NearOut::EMPTY;
            let sent = engine.post_near(now, near, request, room, |packet| out = *packet);
            sent.unwrap().then_some(out)
        });
        if let Some(made) = made
            && let Some(length) = self.put_record(from, to, made)
            && let Some(channels) = &mut self.channels
        {
            channels.posted[from].push(length);
        }
    }

    /// Posts a datagram for the other side.
    fn post_datagram(&mut self, from: usize, qpn: Qpn, request: &SendRequest<'_>) {
        let room = self.channels.as_ref().map_or(0, |c| c.room(from, 1 - from));
        let made = self.make_record(from, room, |engine, now| {
            let mut out = NearOut::EMPTY;
            let sent = engine.post_near_datagram(now, ID, qpn, request, room, &mut out);
            sent.unwrap().then_some(out)
        });
        if let Some(made) = made {
            self.put_record(from, 1 - from, made);
        }
    }

    fn put_record(
        &mut self,
        from: usize,
        to: usize,
        (out, packet, bytes): (NearOut, Packet, Vec<u8>),
    ) -> Option<usize> {
        self.sent += 1;
        if (self.filter)(&packet) {
            let channels = self.channels.as_mut()?;
            let direction = &mut channels.directions[from][to];
            let earliest = direction.records.back().map(|last| last.at + channels.pace);
            direction.sent += bytes.len() as u64;
            direction.records.push_back(Record {
                at: earliest.unwrap_or(self.now).max(self.now + LATENCY),
                header: out.header().to_vec(),
                bytes,
                payload: RecordPart {
                    at: out.payload_at,
                    length: out.payload_length,
                    lent: out.lent,
                },
            });
        }
        Some(packet.bytes.len())
    }

    /// Delivers the records that have arrived by now.
    pub(super) fn deliver_records(&mut self) {
        for (from, to) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
            while let Some(channels) = &mut self.channels {
                let direction = &mut channels.directions[from][to];
                let due = direction.records.front().is_some_and(|r| r.at <= self.now);
                if direction.stopped || !due {
                    break;
                }
                let record = direction.records.pop_front().expect("one is due");
                direction.freed += record.bytes.len() as u64;
                let freed = direction.freed;
                let id = id(from, to);
                self.sides[from].engine.near_freed(id, freed);
                let lender = self.sides[from].memory.clone();
                handle(&mut self.sides[to].engine, self.now, id, &record, &lender);
            }
        }
    }

    pub(super) fn hand_over_records(&mut self, from: usize) -> Vec<usize> {
        let posted = self.channels.as_mut().map(|c| &mut c.posted[from]);
        let mut lengths = posted.map(std::mem::take).unwrap_or_default();
        lengths.extend(std::iter::from_fn(|| self.send_record(from, 1 - from)));
        assert!(!lengths.is_empty());
        self.now += LATENCY;
        self.deliver_records();
        lengths
    }

    /// Delivers a packet to side 1 as a record of side 0; `bytes` are BTH to padding.
    pub(super) fn inject_record(&mut self, mut bytes: Vec<u8>) {
        let mut datagram = bytes.clone();
        datagram.extend([0; 4]);
        let (mut header, payload) = match softrxe_proto::wire::Packet::parse(&datagram) {
            Ok(packet) => {
                let length = Bth::LEN + packet.headers.length();
                (bytes[..length].to_vec(), packet.payload.to_vec())
            }
            Err(_) => {
                let payload = bytes.split_off(bytes.len().min(near::MAX_HEADER));
                (bytes, payload)
            }
        };
        header[1] &= !0x30;
        let at = near::payload_at(header.len(), payload.len());
        let mut bytes = vec![0; at];
        bytes.extend(&payload);
        let length = payload.len();
        let payload = RecordPart {
            at,
            length,
            lent: false,
        };
        let record = Record {
            at: self.now,
            header,
            bytes,
            payload,
        };
        let lender = self.sides[0].memory.clone();
        handle(&mut self.sides[1].engine, self.now, ID, &record, &lender);
    }
}
