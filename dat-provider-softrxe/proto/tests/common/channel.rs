//! A channel between the engines of a pair: records in virtual time, with limited room.
//!
//! [`over_both_links`](crate::over_both_links) runs tests over datagrams and over a channel.

use std::cell::Cell;
use std::collections::VecDeque;

use softrxe_proto::{NearId, NearOut, RecordPart, Time, near};

use super::pair::{LATENCY, Packet, Pair};

/// The channel's id in both engines.
pub const ID: NearId = NearId(3);
/// Bytes of each direction.
pub const ROOM: usize = 32 << 10;
/// Payload of a record.
pub const MTU: u16 = 4096;

thread_local! {
    static IN_USE: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if pairs of this thread connect over a channel.
pub fn in_use() -> bool {
    IN_USE.get()
}

/// Runs `test` with pairs that connect over a channel.
pub fn run_over_channel(test: fn()) {
    IN_USE.set(true);
    test();
    IN_USE.set(false);
}

/// Defines tests that run functions of the file over datagrams and over a channel.
#[macro_export]
macro_rules! over_both_links {
    ($($test:ident),* $(,)?) => {
        mod over_wire {
            $(#[test] fn $test() { super::$test(); })*
        }
        mod over_channel {
            $(#[test] fn $test() { super::common::channel::run_over_channel(super::$test); })*
        }
    };
}

/// A record on its way.
struct Record {
    at: Time,
    bytes: Vec<u8>,
    header_length: usize,
    payload: RecordPart,
}

/// One direction.
#[derive(Default)]
struct Direction {
    records: VecDeque<Record>,
    sent: u64,
    freed: u64,
    /// The receiver takes nothing.
    stopped: bool,
}

/// Both directions, by sender.
#[derive(Default)]
pub struct Channel {
    directions: [Direction; 2],
}

impl Channel {
    /// Returns the time at which the next record arrives.
    pub fn next(&self) -> Option<Time> {
        let running = self.directions.iter().filter(|d| !d.stopped);
        running
            .filter_map(|d| d.records.front())
            .map(|r| r.at)
            .min()
    }

    /// Stops or continues the consumer of what `from` sends.
    pub fn stop(&mut self, from: usize, stopped: bool) {
        self.directions[from].stopped = stopped;
    }

    fn room(&self, from: usize) -> usize {
        let direction = &self.directions[from];
        ROOM - (direction.sent - direction.freed) as usize
    }

    fn put(&mut self, from: usize, now: Time, bytes: Vec<u8>, out: &NearOut) {
        let direction = &mut self.directions[from];
        direction.sent += out.record_length() as u64;
        direction.records.push_back(Record {
            at: now + LATENCY,
            bytes,
            header_length: out.header_length,
            payload: RecordPart {
                at: out.payload_at,
                length: out.payload_length,
            },
        });
    }
}

impl Pair {
    /// Opens a channel between the engines, for connections that begin from now on.
    pub fn open_channel(&mut self) {
        let guids = [0, 1].map(|side: usize| self.sides[side].engine.guid());
        for side in 0..2 {
            let engine = &mut self.sides[side].engine;
            engine.near_up(ID, guids[1 - side], MTU).unwrap();
        }
        self.channel = Some(Channel::default());
    }

    /// Puts records of both engines into the channel, as far as there is room.
    pub(super) fn send_records(&mut self) {
        for from in 0..2 {
            while self.send_record(from) {}
        }
    }

    fn send_record(&mut self, from: usize) -> bool {
        let Some(channel) = &mut self.channel else {
            return false;
        };
        let room = channel.room(from);
        let side = &mut self.sides[from];
        side.memory.set_record(vec![0xee; room]);
        let Some(out) = side.engine.poll_near(self.now, ID, room, false) else {
            return false;
        };
        let mut bytes = side.memory.take_record();
        assert!(out.record_length() <= room);
        assert!(out.payload_length <= usize::from(MTU));
        bytes.truncate(out.record_length());
        bytes[near::RECORD_HEAD..][..out.header_length].copy_from_slice(out.header());
        let packet = Packet {
            to: 1 - from,
            ip_id: 0,
            source: side.address,
            bytes: [out.header(), &bytes[out.payload_at..][..out.payload_length]].concat(),
        };
        self.sent += 1;
        if (self.filter)(&packet) {
            channel.put(from, self.now, bytes, &out);
        }
        true
    }

    /// Delivers the records that have arrived by now.
    pub(super) fn deliver_records(&mut self) {
        for from in 0..2 {
            while let Some(channel) = &mut self.channel {
                let direction = &mut channel.directions[from];
                let due = direction.records.front().is_some_and(|r| r.at <= self.now);
                if direction.stopped || !due {
                    break;
                }
                let record = direction.records.pop_front().expect("one is due");
                direction.freed += record.bytes.len() as u64;
                let freed = direction.freed;
                self.sides[from].engine.near_freed(ID, freed);
                let side = &mut self.sides[1 - from];
                let header = record.bytes[near::RECORD_HEAD..][..record.header_length].to_vec();
                side.memory.set_record(record.bytes);
                side.engine
                    .handle_near(self.now, ID, &header, record.payload);
                side.memory.take_record();
            }
        }
    }
}
