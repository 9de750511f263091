//! A channel in shared memory whose peer writes anything anywhere at any time.
//!
//! Both ends belong to the body, which reads and writes the memory through its file. As long as nothing was scribbled, records
//! arrive whole and in order. After that an end may report a violation; but no record and no space is ever out of bounds, and
//! nothing panics. [`lent`] has the payloads that records lend.

mod lent;

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

use softrxe_near::layout::{CONTROL, LINE, MAX_HEADER, payload_at, record_length};
use softrxe_near::{Channel, Record, Violation, mtu};

use self::lent::{Lending, Loan};
use crate::input::Input;

/// Size of a ring: the smallest one, so that inputs go around it.
const SIZE: usize = 4096;
const MTU: usize = mtu(SIZE);
/// Offsets of the words in a control page: the secret, index and flags.
const WORDS: [usize; 7] = [0, LINE, 2 * LINE, 3 * LINE, 4 * LINE, 5 * LINE, 6 * LINE];

/// A record that was sent.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Sent {
    header: Vec<u8>,
    payload: Payload,
}

#[derive(Clone, PartialEq, Eq, Debug)]
enum Payload {
    InRecord(Vec<u8>),
    Lent(Loan),
}

/// One end, and the ring that it writes.
struct End {
    channel: Channel,
    /// Offset of the data of the ring in the file.
    data: usize,
    /// Where the data of the own ring, and of the peer's, is mapped.
    sends_at: usize,
    receives_at: Option<usize>,
    /// Bytes ever sent.
    tail: usize,
    sent: VecDeque<Sent>,
    lending: Lending,
    is_over: bool,
}

struct Body<'a> {
    input: Input<'a>,
    file: File,
    ends: [End; 2],
    scribbled: bool,
}

fn address(at: NonNull<u8>) -> usize {
    at.as_ptr() as usize
}

/// Runs the body.
///
/// # Panics
/// When a promise is broken.
pub fn ring(bytes: &[u8]) {
    let (one, memory) = Channel::create(SIZE).expect("memory for a channel");
    let file = File::from(memory.try_clone().expect("a descriptor"));
    let other = Channel::adopt(&memory, SIZE).expect("the same memory");
    let mut number = 0;
    let ends = [one, other].map(|mut channel| {
        let space = channel.sender.space().expect("nothing is scribbled");
        let data = number * (CONTROL + SIZE) + CONTROL;
        number += 1;
        End {
            sends_at: address(space.at),
            receives_at: None,
            lending: Lending::new(&channel),
            channel,
            data,
            tail: 0,
            sent: VecDeque::new(),
            is_over: false,
        }
    });
    let ends = lent::introduce(ends);
    let mut body = Body {
        input: Input::new(bytes),
        file,
        ends,
        scribbled: false,
    };
    while !body.input.is_empty() {
        body.step();
    }
}

impl Body<'_> {
    fn step(&mut self) {
        let at = usize::from(self.input.flag());
        let what = self.input.below(13);
        if what == 8 || what == 9 {
            return self.scribble();
        }
        if self.ends[at].is_over {
            return;
        }
        let done = match what {
            0 | 1 => self.send(at),
            2 | 3 => self.receive(at),
            4 => {
                self.ends[at].channel.sender.publish();
                Ok(())
            }
            5 => {
                self.ends[at].channel.receiver.flush();
                Ok(())
            }
            6 => {
                self.sleep(at);
                Ok(())
            }
            10 | 11 => self.send_lent(at),
            12 => {
                self.withdraw(at);
                Ok(())
            }
            _ => self.ends[at].channel.sender.starve().map(|_| ()),
        };
        if let Err(violation) = done {
            assert!(self.scribbled, "nothing was scribbled: {violation}");
            self.ends[at].is_over = true;
        }
    }

    fn send(&mut self, at: usize) -> Result<(), Violation> {
        let header = self.input.below(MAX_HEADER + 1);
        let length = usize::from(self.input.u16()) % (MTU + 1);
        let end = &mut self.ends[at];
        let space = end.channel.sender.space()?;
        let offset = address(space.at) - end.sends_at;
        assert_eq!(offset, end.tail % SIZE, "the place of a record");
        assert!(space.room <= SIZE);
        let payload_at = payload_at(header, length);
        if record_length(payload_at, length) > space.room {
            assert!(space.room < end.channel.sender.largest_record());
            return Ok(());
        }
        let fill = end.tail as u8;
        let (header, payload) = (vec![fill; header], vec![fill ^ 0x55; length]);
        for (index, byte) in payload.chunks(512).enumerate() {
            write(
                &self.file,
                end.data,
                offset + payload_at + index * 512,
                byte,
            );
        }
        end.channel.sender.commit(&header, payload_at, length);
        end.tail += record_length(payload_at, length);
        let payload = Payload::InRecord(payload);
        end.sent.push_back(Sent { header, payload });
        Ok(())
    }

    fn receive(&mut self, at: usize) -> Result<(), Violation> {
        let keep = self.input.below(8) == 7;
        let end = &mut self.ends[at];
        let Some(record) = end.channel.receiver.next()? else {
            return Ok(());
        };
        // The first record is at position 0.
        let base = *end.receives_at.get_or_insert(address(record.at));
        let offset = address(record.at).wrapping_sub(base);
        assert!(offset < SIZE && offset.is_multiple_of(64), "at {offset}");
        let header = record.header_length;
        assert!(header <= MAX_HEADER && record.header().len() == header);
        if record.lent.is_some() {
            self.borrow(at, &record);
        } else {
            self.read_payload(at, &record, offset);
        }
        if !keep {
            self.ends[at].channel.receiver.release();
            self.ends[1 - at].sent.pop_front();
        }
        Ok(())
    }

    fn read_payload(&self, at: usize, record: &Record, offset: usize) {
        let length = record.payload_length;
        assert!(length <= MTU && record.payload_at + length <= SIZE);
        assert_eq!(
            address(record.payload()),
            address(record.at) + record.payload_at
        );
        let data = self.ends[1 - at].data;
        let payload = read(&self.file, data, offset + record.payload_at, length);
        let received = Sent {
            header: record.header().to_vec(),
            payload: Payload::InRecord(payload),
        };
        if !self.scribbled {
            assert_eq!(self.ends[1 - at].sent.front(), Some(&received));
        }
    }

    fn sleep(&mut self, at: usize) {
        let receiver = &mut self.ends[at].channel.receiver;
        receiver.arm();
        receiver.flush();
        receiver.disarm();
    }

    /// Writes into the shared memory: an index or a flag, the beginning of a record, or anything.
    fn scribble(&mut self) {
        self.scribbled = true;
        let ring = usize::from(self.input.flag()) * (CONTROL + SIZE);
        let offset = match self.input.below(4) {
            0 | 1 => ring + self.input.pick(&WORDS),
            // The seal, or the lengths.
            2 => {
                let word = self.input.below(128);
                ring + CONTROL + word / 2 * 64 + word % 2 * 8
            }
            _ => usize::from(self.input.u16()) % (2 * (CONTROL + SIZE)),
        };
        let mut old = [0; 8];
        let known = self.file.read_at(&mut old, offset as u64);
        known.expect("the memory is readable");
        let new = match self.input.below(4) {
            0 => u64::from_ne_bytes(old).wrapping_add(64 * u64::from(self.input.u8())),
            1 => u64::from_ne_bytes(old).wrapping_sub(64 * u64::from(self.input.u8())),
            2 => u64::from_ne_bytes(old) ^ 1 << self.input.below(64),
            _ => u64::from(self.input.u16()) << self.input.below(49),
        };
        let length = (2 * (CONTROL + SIZE) - offset).min(8);
        let new = &new.to_ne_bytes()[..length];
        let written = self.file.write_at(new, offset as u64);
        written.expect("the memory is writable");
    }
}

/// Writes `bytes` at `offset` of the data, which goes around.
fn write(file: &File, data: usize, offset: usize, bytes: &[u8]) {
    for (index, part) in pieces(offset, bytes.len()) {
        let at = (data + index) as u64;
        file.write_all_at(&bytes[part], at).expect("memory");
    }
}

/// Reads `length` bytes at `offset` of the data, which goes around.
fn read(file: &File, data: usize, offset: usize, length: usize) -> Vec<u8> {
    let mut bytes = vec![0; length];
    for (index, part) in pieces(offset, length) {
        let at = (data + index) as u64;
        file.read_exact_at(&mut bytes[part], at).expect("memory");
    }
    bytes
}

/// Divides `length` bytes at `offset` where the data ends: offsets, and the ranges of the bytes.
fn pieces(offset: usize, length: usize) -> [(usize, std::ops::Range<usize>); 2] {
    let offset = offset % SIZE;
    let first = length.min(SIZE - offset);
    [(offset, 0..first), (0, first..length)]
}

/// Inputs that reach most of the body.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let exchange = [0, 0, 12, 8, 0, 0, 4, 1, 2, 0, 1, 5, 1, 6, 0, 7];
    let large = [0, 1, 28, 0, 2, 0, 4, 1, 3, 0, 1, 5];
    let fill = [0, 0, 40, 255, 1].repeat(16);
    let words = [0, 8, 0, 0, 0, 0, 1, 1, 3, 0, 0, 8, 1, 0, 1, 1, 200, 0, 0, 5];
    let record = [0, 0, 9, 64, 0, 0, 4, 0, 9, 0, 2, 1, 2, 33, 1, 2, 0];
    vec![
        exchange.repeat(20),
        large.repeat(20),
        [
            &fill[..],
            &[0, 4, 0, 7, 1, 6],
            &[1, 2, 0].repeat(16),
            &[1, 5],
        ]
        .concat(),
        [&exchange[..], &words, &exchange].concat(),
        record.repeat(4),
        lent::seed(),
    ]
}
