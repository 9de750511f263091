//! The reader of a receive ring: the order between ring and socket, and the switch between both.
//!
//! **Order.** The word of the memory holds a mode and a count. A run of the program adds 1 and reads the mode in one
//! atomic operation. In the mode "ring" it fills a slot, or sets the mode "socket" and passes its datagram to the socket.
//! In the mode "socket" all datagrams pass to the socket. So of the datagrams of one source, whose runs follow each other,
//! those in slots come before those in the socket:
//!
//! * The reader takes from slots first. After it has read a datagram from the socket it looks at the ring once more: a
//!   slot that was filled before that datagram was passed is visible then. The datagram is kept back until the slots
//!   are taken.
//! * Only the reader sets the mode "ring". It compares the count with the number of datagrams that it has received. If
//!   they are equal, no run is in progress, and nothing waits in the ring or in the socket. The word is set by an atomic
//!   exchange that fails if another run has begun.
//!
//! **Lost datagrams.** The socket drops what its buffer cannot hold, after the program has counted it. The count is then
//! higher than the number received, as it also is while a datagram is between program and socket. The reader stays with
//! the socket, as without a ring, and compares for a while: the smallest difference that it has seen at an empty socket
//! is the number of lost datagrams. (Should a datagram have been between program and socket at each of these looks, it
//! arrives nevertheless; it may then arrive after a later one, as on a network.)
//!
//! **Sleep.** Before a thread sleeps on the socket it sets the mode "socket", then looks at the ring once more. A run that
//! was in the mode "ring" publishes its slot, then reads the mode once more. Either the thread sees the slot, or the run
//! sees the mode and leaves an empty datagram in the socket, which ends the sleep. While a thread sleeps, no thread sets the
//! mode "ring".

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use super::layout::{ROOM, SLOTS, TO_SOCKET, UDP_HEADER};
use super::memory::Memory;
use crate::socket::Received;

/// Slots that are taken before the program learns that they are free. It reads that line for each datagram.
const FREE_INTERVAL: u64 = SLOTS / 4;
/// Looks at an empty ring until the socket is read once, for a datagram that was counted as lost.
const LOOKS_OF_A_READ: u32 = 1024;
/// Time after which datagrams that were counted and have not arrived are lost.
const LOST_AFTER: Duration = Duration::from_secs(1);
/// Empty datagrams that are skipped in one call.
const MAX_EMPTY: usize = 16;

/// The reading side of a ring and of the socket beside it.
#[derive(Debug)]
pub(super) struct Reader {
    ipv6: bool,
    /// Position of the next slot.
    next: u64,
    /// The mode is "ring" unless the program has changed it.
    uses_ring: bool,
    /// The program's turns to the socket when the mode was set.
    turns: u64,
    /// Datagrams of the word's count that were received or are lost. `None` before the socket was empty for the first
    /// time: it may hold datagrams from before the program.
    accounted: Option<u64>,
    /// When datagrams were first missing at an empty socket, and the smallest number of them since.
    missing: Option<(Instant, u64)>,
    /// A datagram of the socket that waits until the slots before it are taken.
    kept: Received,
    keeps: bool,
    /// The thread that watches the socket sleeps or is about to.
    watched: bool,
    /// Other threads that sleep on the socket for a short time.
    pausing: u32,
    /// The socket is read until it is empty before the mode "ring" is set: an empty datagram would end the next sleep.
    unread: bool,
    /// The program is detached: all datagrams pass to the socket.
    retired: bool,
    empty_looks: u32,
    counters: Counters,
}

/// Counters of a receive ring.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Reads that were taken from the ring.
    pub from_ring: u64,
    /// Reads of the socket that found a datagram.
    pub from_socket: u64,
}

impl Reader {
    /// Starts with the socket.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn new(ipv6: bool) -> io::Result<Self> {
        Ok(Self {
            ipv6,
            next: 0,
            uses_ring: false,
            turns: 0,
            accounted: None,
            missing: None,
            kept: Received::try_new()?,
            keeps: false,
            watched: false,
            pausing: 0,
            unread: true,
            retired: false,
            empty_looks: 0,
            counters: Counters::default(),
        })
    }

    /// Continues where another process stopped, and takes what it left. The program is detached.
    ///
    /// # Errors
    /// `OutOfMemory`.
    pub(super) fn of_predecessor(ipv6: bool, memory: &Memory) -> io::Result<Self> {
        memory.turn_to_socket();
        let mut reader = Self::new(ipv6)?;
        reader.next = memory.taken();
        reader.retired = true;
        Ok(reader)
    }

    pub(super) const fn counters(&self) -> Counters {
        self.counters
    }

    /// Returns the next read: from the ring, or what `read` takes from the socket. Returns false if nothing has arrived.
    ///
    /// # Errors
    /// As `read`.
    pub(super) fn look(
        &mut self,
        memory: &Memory,
        into: &mut Received,
        mut read: impl FnMut(&mut Received) -> io::Result<bool>,
    ) -> io::Result<bool> {
        for _ in 0..MAX_EMPTY {
            if self.take(memory, into) {
                self.counters.from_ring += 1;
                return Ok(true);
            }
            if std::mem::take(&mut self.keeps) {
                std::mem::swap(into, &mut self.kept);
                return Ok(true);
            }
            if self.uses_ring && memory.turns() != self.turns {
                self.uses_ring = false;
            }
            let word = if self.uses_ring {
                self.empty_looks = self.empty_looks.wrapping_add(1);
                if !self.empty_looks.is_multiple_of(LOOKS_OF_A_READ) {
                    return Ok(false);
                }
                None
            } else {
                let word = memory.word();
                if !self.unread && !self.is_watched() && self.turn_to_ring(memory, word) {
                    return Ok(false);
                }
                Some(word)
            };
            if !read(into)? {
                if let Some(word) = word {
                    self.found_empty(memory, word);
                }
                return Ok(false);
            }
            if into.length == 0 {
                // It is a wake-up, or was sent before the program was attached. It carries nothing.
                continue;
            }
            self.counters.from_socket += 1;
            if let (Some(_), Some(accounted)) = (word, &mut self.accounted) {
                *accounted += 1;
            }
            if !memory.is_filled(self.next) {
                return Ok(true);
            }
            std::mem::swap(into, &mut self.kept);
            self.keeps = true;
        }
        Ok(false)
    }

    /// Prepares the socket for a thread that is about to sleep on it: the one that watches it, or with `pause` another
    /// one. Returns false if something waits already.
    pub(super) fn arm(&mut self, memory: &Memory, pause: bool) -> bool {
        if pause {
            self.pausing += 1;
        } else {
            self.watched = true;
        }
        self.uses_ring = false;
        self.unread = true;
        memory.turn_to_socket();
        !self.keeps && !memory.is_filled(self.next)
    }

    /// Ends what [`arm`](Self::arm) began.
    pub(super) fn disarm(&mut self, pause: bool) {
        if pause {
            self.pausing = self.pausing.saturating_sub(1);
        } else {
            self.watched = false;
        }
    }

    fn is_watched(&self) -> bool {
        self.watched || self.pausing > 0
    }

    /// Takes the next slot if it is filled.
    fn take(&mut self, memory: &Memory, into: &mut Received) -> bool {
        while memory.is_filled(self.next) {
            let head = memory.head(self.next);
            let payload = head.length.checked_sub(UDP_HEADER);
            let payload = payload.filter(|length| (1..=ROOM - UDP_HEADER).contains(length));
            if let Some(length) = payload {
                memory.copy_payload(self.next, length, &mut into.bytes);
                into.length = length;
                into.segment = if head.segment == 0 {
                    length
                } else {
                    head.segment
                };
                into.from_ring = true;
                into.from = SocketAddr::new(self.address(head.source), head.port);
            }
            self.next += 1;
            memory.set_taken(self.next);
            if self.next.is_multiple_of(FREE_INTERVAL) {
                memory.free(self.next);
            }
            // A slot without a datagram: the program could not fill it, and passed the datagram to the socket.
            if payload.is_some() {
                if let Some(accounted) = &mut self.accounted {
                    *accounted += 1;
                }
                return true;
            }
        }
        false
    }

    fn address(&self, bytes: [u8; 16]) -> IpAddr {
        if self.ipv6 {
            Ipv6Addr::from(bytes).into()
        } else {
            let [a, b, c, d, ..] = bytes;
            Ipv4Addr::new(a, b, c, d).into()
        }
    }

    /// Sets the mode "ring" if all that entered the program was received. Returns whether it did.
    fn turn_to_ring(&mut self, memory: &Memory, word: u64) -> bool {
        let entered = word & !TO_SOCKET;
        let Some(accounted) = self.accounted.filter(|_| !self.retired) else {
            return false;
        };
        if accounted > entered {
            // What was counted as lost arrived.
            self.accounted = Some(entered);
        } else if accounted < entered {
            return false;
        }
        self.missing = None;
        // No run is in progress, so each turn of the past is counted.
        let turns = memory.turns();
        self.uses_ring = memory.turn_to_ring(word);
        if self.uses_ring {
            self.turns = turns;
            memory.free(self.next);
        }
        self.uses_ring
    }

    /// Handles that the socket was empty after the word had been read.
    fn found_empty(&mut self, memory: &Memory, word: u64) {
        self.unread = false;
        let entered = word & !TO_SOCKET;
        let accounted = *self.accounted.get_or_insert(entered);
        let now_missing = entered.saturating_sub(accounted);
        if now_missing == 0 {
            self.missing = None;
            if !self.is_watched() {
                self.turn_to_ring(memory, word);
            }
            return;
        }
        let now = Instant::now();
        let (since, least) = self.missing.unwrap_or((now, now_missing));
        let least = least.min(now_missing);
        if now.duration_since(since) >= LOST_AFTER {
            tracing::debug!(lost = least, "the socket's buffer was full");
            self.accounted = Some(accounted + least);
            self.missing = None;
        } else {
            self.missing = Some((since, least));
        }
    }
}

#[cfg(test)]
mod tests;
