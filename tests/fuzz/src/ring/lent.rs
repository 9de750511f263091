//! Records that lend their payload: the other end copies it out of the memory of this process, with process_vm_readv(2).
//!
//! As long as nothing was scribbled, a copy has the lender's bytes, or fails since they were taken back or are not mapped. After that
//! the address, the nonce and the position are the attacker's. A copy writes nothing but its destination in any case.

use std::sync::LazyLock;

use softrxe_near::layout::{LENT_LEN, MAX_HEADER, MAX_LENT, payload_at, record_length};
use softrxe_near::{Channel, Lender, PullError, Puller, Record, Violation};

use super::{Body, End, Payload, SIZE, Sent, address, write};
use crate::reached::{Reached, note};

/// Failed copies after which an end says that it reads no more.
const MAX_FAILURES: u32 = 8;
/// Longest part of a payload that is copied at once, and the bytes beside the destination that stay as they are.
const MAX_PART: usize = 4096;
const GUARD: usize = 64;
/// An address that is never mapped.
const HOLE: u64 = 64;

/// What records lend.
static SOURCE: LazyLock<Vec<u8>> =
    LazyLock::new(|| (0..2 * MAX_LENT).map(|n| (n % 251) as u8).collect());

/// A payload that a record lends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Loan {
    address: u64,
    length: usize,
    position: u64,
}

/// The lending of the ring that an end writes, and the copying from the one that it reads.
pub(super) struct Lending {
    lender: Lender,
    puller: Puller,
    /// The kernel lets this process read its own memory; some sandboxes do not.
    readable: bool,
    failures: u32,
    /// What records before this position lend is taken back.
    withdrawn: u64,
}

impl Lending {
    pub(super) fn new(channel: &Channel) -> Self {
        let pid = std::process::id().cast_signed();
        Self {
            lender: channel.sender.lender().expect("random bytes"),
            puller: channel.receiver.puller(pid),
            readable: false,
            failures: 0,
            withdrawn: 0,
        }
    }
}

/// Lets each end try the memory of the other one.
pub(super) fn introduce(mut ends: [End; 2]) -> [End; 2] {
    for end in &mut ends {
        let probed = end.lending.puller.probe().expect("a nonce is shown");
        end.lending.readable = probed.is_ok();
        end.lending.puller.announce(end.lending.readable);
    }
    ends
}

impl Body<'_> {
    pub(super) fn send_lent(&mut self, at: usize) -> Result<(), Violation> {
        let header = self.input.below(MAX_HEADER + 1);
        let length = usize::from(self.input.u16()) * 5 % (MAX_LENT + 1);
        let start = self.input.below(256) * 8;
        let is_hole = self.input.below(8) == 7;
        let end = &mut self.ends[at];
        let space = end.channel.sender.space()?;
        let payload_at = payload_at(header, LENT_LEN);
        let record = record_length(payload_at, LENT_LEN);
        if record > space.room {
            return Ok(());
        }
        let lent = match is_hole {
            true => HOLE,
            false => SOURCE[start..].as_ptr() as u64,
        };
        let offset = address(space.at) - end.sends_at;
        write(
            &self.file,
            end.data,
            offset + payload_at,
            &lent.to_ne_bytes(),
        );
        let fill = end.tail as u8;
        let position = end.channel.sender.position();
        let sender = &mut end.channel.sender;
        sender.commit_lent(&[fill; MAX_HEADER], header, payload_at, length);
        end.tail += record;
        assert_eq!(
            end.tail as u64 % SIZE as u64,
            sender.position() % SIZE as u64
        );
        end.sent.push_back(Sent {
            header: vec![fill; header],
            payload: Payload::Lent(Loan {
                address: lent,
                length,
                position,
            }),
        });
        Ok(())
    }

    /// Takes back what the end lends: all, or what older records lend.
    pub(super) fn withdraw(&mut self, at: usize) {
        let back = u64::from(self.input.u8()) * 64;
        let end = &mut self.ends[at];
        let until = end.channel.sender.position().saturating_sub(back);
        end.lending.lender.withdraw(until);
        end.lending.withdrawn = end.lending.withdrawn.max(until);
        note(Reached::Withdrawal);
    }

    /// Copies a part of what a record lends.
    pub(super) fn borrow(&mut self, at: usize, record: &Record) {
        let lent = record.lent.expect("it lends");
        assert!(record.payload_length <= MAX_LENT);
        let offset = (self.input.below(64) * MAX_PART).min(record.payload_length);
        let length = (record.payload_length - offset).min(MAX_PART);
        let tail = length.min(8);
        let mut room = vec![0xee; GUARD + length + GUARD];
        let to = room[GUARD..].as_mut_ptr() as usize;
        let parts = [(to, length - tail), (to + length - tail, tail)];
        let puller = &mut self.ends[at].lending.puller;
        // SAFETY: both parts are in `room`, to which no reference is used meanwhile.
        let pulled = unsafe { puller.pull(lent, offset, parts) };
        assert!(room[..GUARD].iter().all(|byte| *byte == 0xee));
        assert!(room[GUARD + length..].iter().all(|byte| *byte == 0xee));
        if !self.scribbled {
            let copied = &room[GUARD..GUARD + length];
            self.check_pull(at, record, offset, copied, &pulled);
        }
    }

    fn check_pull(
        &mut self,
        at: usize,
        record: &Record,
        offset: usize,
        copied: &[u8],
        pulled: &Result<(), PullError>,
    ) {
        let sent = self.ends[1 - at].sent.front().expect("it was sent");
        let Payload::Lent(loan) = sent.payload.clone() else {
            panic!("the record lends nothing");
        };
        assert_eq!(sent.header, record.header());
        assert_eq!(loan.length, record.payload_length);
        let withdrawn = loan.position < self.ends[1 - at].lending.withdrawn;
        let own = &mut self.ends[at].lending;
        let readable = own.readable && (loan.address != HOLE || copied.is_empty());
        match pulled {
            Ok(()) => {
                assert!(readable && !withdrawn, "a copy that cannot succeed");
                if !copied.is_empty() {
                    let start = loan.address as usize - SOURCE.as_ptr() as usize + offset;
                    assert!(copied == &SOURCE[start..start + copied.len()]);
                    note(Reached::Pulled);
                }
            }
            Err(PullError::Withdrawn) => {
                assert!(withdrawn, "nothing was taken back");
                note(Reached::Withdrawn);
            }
            Err(error) => {
                assert!(!withdrawn && !readable, "{error}");
                own.failures += 1;
                note(Reached::Unreadable);
            }
        }
        let used = own.readable && own.failures < MAX_FAILURES;
        assert_eq!(self.ends[1 - at].lending.lender.is_used(), used);
    }
}

/// Returns an input that lends, copies, takes back, and lends what is not mapped until the other end reads no more.
pub(super) fn seed() -> Vec<u8> {
    // End 0: a record with 28 bytes of headers that lends 20,000 bytes; published.
    let lend = [0, 10, 28, 160, 15, 3, 0, 0, 4];
    let lend_hole = [0, 10, 28, 160, 15, 3, 7, 0, 4];
    // End 1: the record is received, released, and a part of it copied.
    let receive = [1, 2, 0, 1, 1, 5];
    let withdraw = [0, 12, 0];
    let mut seed = [&lend[..], &receive].concat().repeat(3);
    // A copy of what was taken back, and of what was lent afterwards.
    seed.extend([&lend[..], &withdraw, &lend, &receive, &receive].concat());
    seed.extend([&lend_hole[..], &receive].concat().repeat(9));
    // The words of lent memory are scribbled: nonce, flag, position.
    for word in 4..7 {
        seed.extend([&lend[..], &[0, 8, 0, 0, word, 0, 255], &receive].concat());
    }
    seed
}
