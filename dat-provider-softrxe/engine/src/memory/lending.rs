//! Long payloads over channels, with one copy: which memory of this process is lent to which peer, and copies out of the memory of peers.
//!
//! A peer that can read this process's memory copies the payload itself ([`softrxe_near::Lender`]). What is lent is taken back before a
//! deregistration, an unbind or the end of a queue pair returns.

use std::collections::VecDeque;
use std::io;

use softrxe_near::{Lender, Lent, PullError, Puller};
use softrxe_proto::{NearId, Qpn};

use super::guard::CopyMethod;
use super::range::{Failed, PullFailed, Range};

/// Payloads that are lent to a peer at a time.
const MAX_LOANS: usize = 128;

/// A payload that the record at `position` lends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Loan {
    pub(crate) position: u64,
    /// Key of the region.
    pub(crate) region: u32,
    /// Key of the access: of the region, or of a window.
    pub(crate) key: u32,
    pub(crate) qpn: Qpn,
}

/// Both directions of a channel.
#[derive(Debug)]
struct Lending {
    lender: Lender,
    loans: VecDeque<Loan>,
    puller: Puller,
}

/// Counts of long payloads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct LendingCounters {
    /// Payloads that were lent to peers.
    pub(crate) lent: u64,
    /// Payloads that were copied out of the memory of peers.
    pub(crate) pulled: u64,
    /// Copies that failed.
    pub(crate) failed: u64,
    /// Channels whose peer's memory cannot be read.
    pub(crate) refused: u64,
}

/// What channels lend and borrow.
#[derive(Debug, Default)]
pub(crate) struct Loans {
    /// By [`NearId`].
    all: Vec<Option<Lending>>,
    /// The channel and the position of the record that is being written, if it may lend its payload.
    writing: Option<(NearId, u64)>,
    /// The channel, and what the record that is being handled lends.
    borrowing: Option<(NearId, Lent)>,
    counters: LendingCounters,
}

impl Loans {
    /// Adds channel `id`.
    ///
    /// # Errors
    /// `OutOfMemory`: every message is copied twice.
    pub(crate) fn open(&mut self, id: NearId, lender: Lender, puller: Puller) -> io::Result<()> {
        let mut loans = VecDeque::new();
        loans.try_reserve_exact(MAX_LOANS)?;
        let index = usize::from(id.0);
        if index >= self.all.len() {
            self.all.try_reserve(index + 1 - self.all.len())?;
            self.all.resize_with(index + 1, || None);
        }
        self.all[index] = Some(Lending {
            lender,
            loans,
            puller,
        });
        Ok(())
    }

    /// Removes channel `id`, if it is there.
    pub(crate) fn close(&mut self, id: NearId) {
        if let Some(lending) = self.all.get_mut(usize::from(id.0)) {
            *lending = None;
        }
    }

    fn get(&mut self, id: NearId) -> Option<&mut Lending> {
        self.all.get_mut(usize::from(id.0))?.as_mut()
    }

    /// Returns the counters.
    pub(crate) const fn counters(&self) -> LendingCounters {
        self.counters
    }

    /// Tries once to read the memory of the peer of channel `id`, when the peer has shown how. Returns whether that works, and `None` before.
    pub(crate) fn probe(&mut self, id: NearId) -> Option<bool> {
        let Some(lending) = self.get(id) else {
            return Some(false);
        };
        let read = lending.puller.probe()?;
        if let Err(error) = &read {
            self.counters.refused += 1;
            tracing::info!(%error, "long messages of a process of this host are copied twice");
        }
        Some(read.is_ok())
    }

    /// Tells the peer of channel `id` whether to lend its payloads.
    pub(crate) fn announce(&mut self, id: NearId, pulls: bool) {
        if let Some(lending) = self.get(id) {
            lending.puller.announce(pulls);
        }
    }

    /// Returns how long the peer of channel `id` says that it takes to copy a MiB into the ring, in nanoseconds; 0 if it does not know.
    pub(crate) fn copy_time_of_peer(&mut self, id: NearId) -> u32 {
        self.get(id).map_or(0, |lending| lending.puller.copy_time())
    }

    /// Tells the peer of channel `id` how long this process takes to copy a MiB into the ring, in nanoseconds.
    pub(crate) fn report_copy_time(&mut self, id: NearId, nanos: u32) {
        if let Some(lending) = self.get(id) {
            lending.lender.report_copy_time(nanos);
        }
    }

    /// Says that the record at this position of a channel is being written: [`lends`](Self::lends) answers for it. `None`: a record
    /// that lends nothing.
    pub(crate) const fn set_lending(&mut self, record: Option<(NearId, u64)>) {
        self.writing = record;
    }

    /// Says that a record of a channel is being handled whose payload is lent, or none.
    pub(crate) const fn set_borrowing(&mut self, lent: Option<(NearId, Lent)>) {
        self.borrowing = lent;
    }

    /// Returns whether the peer of channel `id` reads this process's memory.
    #[inline]
    pub(crate) fn is_used(&self, id: NearId) -> bool {
        let lending = self.all.get(usize::from(id.0)).and_then(Option::as_ref);
        lending.is_some_and(|lending| lending.lender.is_used())
    }

    /// Returns whether the payload of the record at hand is in the peer's memory.
    pub(crate) const fn is_borrowing(&self) -> bool {
        self.borrowing.is_some()
    }

    /// Returns whether the record that is being written may lend its payload.
    pub(crate) fn lends(&mut self) -> bool {
        let lending = self.writing.and_then(|(id, _)| self.get(id));
        lending.is_some_and(|lending| lending.lender.is_used() && lending.has_room())
    }

    /// Adds the loan that `of` makes of the position of the record that is being written.
    pub(crate) fn add(&mut self, of: impl FnOnce(u64) -> Loan) {
        if let Some((id, position)) = self.writing
            && let Some(lending) = self.get(id)
        {
            lending.loans.push_back(of(position));
            self.counters.lent += 1;
        }
    }

    /// Takes back all loans of each channel that has one for which `of` returns true. The peer gets the others once more, copied.
    pub(crate) fn withdraw(&mut self, of: impl Fn(&Loan) -> bool) {
        for lending in self.all.iter_mut().flatten() {
            if lending.loans.is_empty() {
                continue;
            }
            lending.drop_consumed();
            if lending.loans.iter().any(&of)
                && let Some(last) = lending.loans.back()
            {
                lending.lender.withdraw(last.position + 1);
                lending.loans.clear();
            }
        }
    }

    /// Copies `length` bytes from position `at` of what the record at hand lends to `offset` of `range`.
    ///
    /// # Errors
    /// [`PullFailed`].
    pub(crate) fn pull(
        &mut self,
        range: &Range,
        method: CopyMethod,
        offset: u64,
        at: usize,
        length: usize,
    ) -> Result<(), PullFailed> {
        let Some((id, lent)) = self.borrowing else {
            return Err(PullFailed::Own(Failed::Outside));
        };
        // Unasked loans are tried as well; without a nonce the copy fails.
        let done = match self.get(id) {
            Some(lending) => {
                let from = (&mut lending.puller, lent, at);
                range.write_pulled(method, offset, length, from)
            }
            None => Err(PullFailed::Peer(PullError::Withdrawn)),
        };
        match &done {
            Ok(()) => self.counters.pulled += 1,
            Err(PullFailed::Peer(error)) => {
                self.counters.failed += 1;
                tracing::debug!(%error, "the peer is to repeat a message");
            }
            Err(PullFailed::Own(_)) => {}
        }
        done
    }
}

impl Lending {
    /// Returns whether another payload can be lent.
    fn has_room(&mut self) -> bool {
        if self.loans.len() == MAX_LOANS {
            self.drop_consumed();
        }
        self.loans.len() < MAX_LOANS
    }

    /// Forgets the loans whose records the peer has consumed.
    fn drop_consumed(&mut self) {
        let freed = self.lender.freed();
        while self.loans.front().is_some_and(|loan| loan.position < freed) {
            self.loans.pop_front();
        }
    }
}
