//! How often a look reads the UDP socket and the mailbox while records arrive in shared memory. Pure.
//!
//! An empty read of the socket costs as much as half a message.

use std::time::Duration;

use softrxe_proto::Time;

/// Time without a record after which the socket is read at each look: longer than a peer takes to reply.
const RECORDS_END: Duration = Duration::from_micros(50);
/// Interval of the reads of the socket before [`RECORDS_END`].
const INTERVAL: Duration = Duration::from_micros(3);
/// The same while no queue pair uses UDP, so that only messages of the connection manager arrive there.
const RARE_INTERVAL: Duration = Duration::from_micros(50);
/// One of this number of reads at [`INTERVAL`] includes the mailbox. Each read at [`RARE_INTERVAL`] does.
const READS_FOR_MAILBOX: u32 = 16;

/// The cadence of one engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SocketCadence {
    /// Time of the last record, unless the records have ended.
    last_record: Option<Time>,
    /// Time of the last read while records arrived.
    last_read: Option<Time>,
    /// Number of these reads; wrapping.
    reads: u32,
    /// The last look was at [`RARE_INTERVAL`].
    is_rare: bool,
}

impl SocketCadence {
    /// Records that a record arrived.
    #[inline]
    pub(crate) const fn record_arrived(&mut self, now: Time) {
        self.last_record = Some(now);
    }

    /// Returns whether records arrived recently.
    #[inline]
    pub(crate) const fn is_busy(&self) -> bool {
        self.last_record.is_some()
    }

    /// Returns whether this look is to read the socket as well, and counts that it does. `wired`: a queue pair uses UDP.
    #[inline]
    pub(crate) fn is_socket_due(&mut self, now: Time, wired: bool) -> bool {
        let Some(record) = self.last_record else {
            return true;
        };
        if !now.is_within(RECORDS_END, record) {
            self.last_record = None;
            return true;
        }
        let interval = if wired { INTERVAL } else { RARE_INTERVAL };
        let due = self
            .last_read
            .is_none_or(|read| !now.is_within(interval, read));
        self.is_rare = !wired;
        if due {
            self.last_read = Some(now);
            self.reads = self.reads.wrapping_add(1);
        }
        due
    }

    /// Returns whether a look that reads the socket is to read the mailbox as well, although records keep arriving.
    #[inline]
    pub(crate) const fn is_mailbox_due(&self) -> bool {
        self.is_busy() && (self.is_rare || self.reads.is_multiple_of(READS_FOR_MAILBOX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: Duration = Duration::from_micros(1);

    /// Makes `looks` looks, 1 us apart, each of which finds a record. Returns the numbers of reads of socket and mailbox.
    fn reads(looks: u32, wired: bool) -> (u32, u32) {
        let mut cadence = SocketCadence::default();
        let mut now = Time::ZERO;
        let (mut socket, mut mailbox) = (0, 0);
        cadence.record_arrived(now);
        for _ in 0..looks {
            now += LOOK;
            if cadence.is_socket_due(now, wired) {
                socket += 1;
                mailbox += u32::from(cadence.is_mailbox_due());
            }
            cadence.record_arrived(now);
        }
        (socket, mailbox)
    }

    #[test]
    fn reads_are_few_while_records_arrive() {
        let (socket, mailbox) = reads(960, true);
        assert!((240..=320).contains(&socket), "{socket}");
        assert_eq!(mailbox, socket / READS_FOR_MAILBOX);
        let (socket, mailbox) = reads(960, false);
        assert!((18..=20).contains(&socket), "{socket}");
        assert_eq!(mailbox, socket);
    }

    #[test]
    fn each_look_reads_before_the_first_record_and_after_the_last() {
        let mut cadence = SocketCadence::default();
        let mut now = Time::ZERO;
        for wired in [false, true] {
            assert!(cadence.is_socket_due(now, wired));
            assert!(!cadence.is_busy() && !cadence.is_mailbox_due());
        }
        cadence.record_arrived(now);
        assert!(cadence.is_busy());
        now += RECORDS_END * 2;
        for _ in 0..3 {
            assert!(cadence.is_socket_due(now, true));
            assert!(!cadence.is_busy());
        }
    }
}
