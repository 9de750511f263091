//! Regions that were dropped while a post may still refer to them. Each stays registered until those posts are complete, because the
//! adapter would otherwise break the connection.
//!
//! A post adds nothing to a list: it sets a flag of the region and counts itself (`ids.rs`). When the last clone of a region with that
//! flag is dropped, the counts of the zone's endpoints say which posts are outstanding.
//!
//! Objects that were dropped before the provider may free them are here too.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use dat_os::mutex::lock;

use crate::error::{Code, Error, Kind, Result as CallResult};
use crate::ids::{Entry, EpId, Side};
use crate::sys::{Handle, call};

/// A registration of memory that was dropped.
pub(crate) trait Dropped: Send + std::fmt::Debug {
    /// Returns the handle of the protection zone.
    fn zone(&self) -> usize;

    /// Frees the registration. Returns it if the provider refuses.
    fn free(self: Box<Self>) -> Result<(), Box<dyn Dropped>>;
}

/// A live endpoint or SRQ of an adapter.
#[derive(Clone, Copy, Debug)]
struct Member {
    entry: &'static Entry,
    id: EpId,
    zone: usize,
    is_srq: bool,
}

/// The posts of one member that must be complete.
#[derive(Debug)]
struct Awaited {
    member: Member,
    requests: u64,
    receives: u64,
}

/// A registration, and the posts that it waits for.
#[derive(Debug)]
struct Kept {
    lmr: Box<dyn Dropped>,
    awaited: Vec<Awaited>,
    /// The counts tell when each of them is complete, which then stays so. Else a queue may be idle now, and busy at the next look.
    counted: bool,
}

/// The call that frees an object.
type Free = fn(Handle) -> CallResult<()>;

/// An object whose owner was dropped while its state forbade the free: an endpoint whose reserved service point has a request that
/// waits for an answer, and what that endpoint uses.
#[derive(Debug)]
struct Unfreed {
    handle: Handle,
    free: Free,
    /// The entry and the number of an endpoint or SRQ, whose posts are outstanding until it is freed.
    member: Option<(&'static Entry, EpId)>,
}

/// The registrations that wait.
#[derive(Debug, Default)]
struct Regions {
    kept: Vec<Kept>,
    unfreed: Vec<Unfreed>,
    /// A thread has taken them, to look which can be freed.
    taken: bool,
    /// Another thread wanted to look meanwhile. What it knows of may have come too late for the first one.
    again: bool,
}

/// What an adapter knows of posts that are outstanding.
#[derive(Debug, Default)]
pub(crate) struct Limbo {
    members: Mutex<Vec<Member>>,
    regions: Mutex<Regions>,
    /// `regions` has something, or had it a moment ago. Each empty poll tests it, without a lock.
    is_any: AtomicBool,
}

impl Member {
    /// Returns whether neither queue has an outstanding post. The member is alive.
    fn is_idle(&self) -> bool {
        if self.is_srq {
            // Nothing else tells. So with counts that are not exact it is busy until it is freed.
            return self.entry.is_exact()
                && self.entry.done(Side::Receives) >= self.entry.posted(Side::Receives);
        }
        let (mut state, mut receives, mut requests) = (0, 0, 0);
        let status = call!(
            Handle(self.entry.handle()),
            ep_get_status(&raw mut state, &raw mut receives, &raw mut requests)
        );
        status.is_ok() && receives != 0 && requests != 0
    }

    /// Returns the posts that are outstanding now.
    fn awaited(&self) -> Option<Awaited> {
        let awaited = Awaited {
            member: *self,
            requests: self.entry.posted(Side::Requests),
            receives: self.entry.posted(Side::Receives),
        };
        (!awaited.is_complete()).then_some(awaited)
    }
}

impl Awaited {
    fn is_complete(&self) -> bool {
        let Member {
            entry, id, is_srq, ..
        } = self.member;
        if !entry.lives(id) {
            return true;
        }
        if is_srq || !entry.is_exact() {
            return !entry.is_being_freed(id) && self.member.is_idle();
        }
        // A post that was counted may have been refused since.
        let left = |side, posted: u64| posted.min(entry.posted(side)) > entry.done(side);
        !left(Side::Requests, self.requests) && !left(Side::Receives, self.receives)
    }
}

impl Kept {
    fn new(lmr: Box<dyn Dropped>, awaited: Vec<Awaited>) -> Self {
        let counted = awaited.iter().all(|awaited| {
            let Member { entry, is_srq, .. } = awaited.member;
            !is_srq && entry.is_exact()
        });
        Self {
            lmr,
            awaited,
            counted,
        }
    }

    /// Forgets posts that are complete: as many as it takes to see whether all are. A program that ends drops thousands of regions, each of which waits for
    /// thousands of endpoints.
    fn look(&mut self) {
        if !self.counted {
            self.awaited.retain(|awaited| !awaited.is_complete());
            return;
        }
        while self.awaited.pop_if(|last| last.is_complete()).is_some() {}
    }
}

impl Limbo {
    /// Adds an endpoint or SRQ of the protection zone with handle `zone`.
    pub(crate) fn add(&self, entry: &'static Entry, zone: usize, is_srq: bool) {
        let id = entry.id();
        lock(&self.members).push(Member {
            entry,
            id,
            zone,
            is_srq,
        });
    }

    /// Moves an endpoint to another protection zone.
    pub(crate) fn change_zone(&self, entry: &'static Entry, zone: usize) {
        let mut members = lock(&self.members);
        let of_entry = members.iter_mut().filter(|m| std::ptr::eq(m.entry, entry));
        of_entry.for_each(|member| member.zone = zone);
    }

    /// Says that an endpoint or SRQ is freed next. Its posts are outstanding until it is [removed](Self::remove). Returns its number.
    pub(crate) fn begin_free(&self, entry: &'static Entry) -> EpId {
        // Not while its status is queried.
        let _members = lock(&self.members);
        entry.begin_free();
        entry.id()
    }

    /// Removes an endpoint or SRQ, which was freed. Another one may have its handle already.
    pub(crate) fn remove(&self, entry: &'static Entry, id: EpId) {
        lock(&self.members).retain(|member| member.id != id);
        entry.end(id);
    }

    /// Frees an endpoint or SRQ whose free has [begun](Self::begin_free). If the provider does not free it yet, its posts stay
    /// outstanding: a request may still be accepted on it.
    pub(crate) fn free_member(&self, entry: &'static Entry, id: EpId, free: Free) {
        let handle = Handle(entry.handle());
        let member = Some((entry, id));
        if self.try_free(handle, free, member) {
            self.remove(entry, id);
        } else {
            // Whether its queues are empty when it is freed is not known then.
            entry.add_late();
        }
    }

    /// Frees another object than an endpoint or SRQ.
    pub(crate) fn free(&self, handle: Handle, free: Free) {
        self.try_free(handle, free, None);
    }

    /// Returns whether the object is freed. If its state forbids that, it is tried again by [`Self::collect`].
    fn try_free(&self, handle: Handle, free: Free, member: Option<(&'static Entry, EpId)>) -> bool {
        match free(handle) {
            Ok(()) => return true,
            Err(error) if is_of_state(&error) => {
                tracing::debug!(%error, handle = handle.0, "an object is still in use: it is freed later");
                let unfreed = Unfreed {
                    handle,
                    free,
                    member,
                };
                lock(&self.regions).unfreed.push(unfreed);
                self.is_any.store(true, Ordering::Release);
            }
            Err(error) => crate::sys::not_freed(handle, &error),
        }
        false
    }

    /// Tries to free what was refused before, and returns what is refused again.
    fn free_again(&self, unfreed: Vec<Unfreed>) -> Vec<Unfreed> {
        let is_refused = |one: &Unfreed| match (one.free)(one.handle) {
            Ok(()) => {
                if let Some((entry, id)) = one.member {
                    self.remove(entry, id);
                }
                false
            }
            Err(error) => is_of_state(&error),
        };
        unfreed.into_iter().filter(is_refused).collect()
    }

    /// Returns whether a post of a member of `zone` is outstanding.
    pub(crate) fn is_busy(&self, zone: usize) -> bool {
        let members = lock(&self.members);
        members
            .iter()
            .any(|member| member.zone == zone && member.awaited().is_some())
    }

    /// Takes a region that was posted, and frees it when the posts that are outstanding now are complete.
    pub(crate) fn keep(&self, lmr: Box<dyn Dropped>) {
        let members = lock(&self.members);
        let of_zone = members.iter().filter(|member| member.zone == lmr.zone());
        let awaited: Vec<_> = of_zone.filter_map(Member::awaited).collect();
        drop(members);
        lock(&self.regions).kept.push(Kept::new(lmr, awaited));
        self.is_any.store(true, Ordering::Release);
        self.collect();
    }

    /// Frees the regions whose posts are complete.
    #[inline]
    pub(crate) fn collect(&self) {
        if self.is_any() {
            self.collect_kept();
        }
    }

    /// Returns true if something may be kept.
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.is_any.load(Ordering::Acquire)
    }

    fn collect_kept(&self) {
        while let Some((all, unfreed)) = self.take_kept() {
            let unfreed = self.free_again(unfreed);
            let left = self.free_complete(all);
            let mut regions = lock(&self.regions);
            regions.kept.extend(left);
            regions.unfreed.extend(unfreed);
            regions.taken = false;
            if !std::mem::take(&mut regions.again) {
                return;
            }
        }
    }

    /// Takes what is kept; `None` if there is nothing, or if another thread has taken it, which looks once more then.
    fn take_kept(&self) -> Option<(Vec<Kept>, Vec<Unfreed>)> {
        let mut regions = lock(&self.regions);
        if regions.taken {
            regions.again = true;
            return None;
        }
        if regions.kept.is_empty() && regions.unfreed.is_empty() {
            // Under the lock: a thread that adds something later sets it again.
            self.is_any.store(false, Ordering::Relaxed);
            return None;
        }
        regions.taken = true;
        let kept = std::mem::take(&mut regions.kept);
        Some((kept, std::mem::take(&mut regions.unfreed)))
    }

    /// Frees the registrations whose posts are complete, and returns the others.
    fn free_complete(&self, mut all: Vec<Kept>) -> Vec<Kept> {
        // The members must not be freed while their status is queried.
        let members = lock(&self.members);
        all.iter_mut().for_each(Kept::look);
        drop(members);
        let (ready, mut left): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|kept| kept.awaited.is_empty());
        // A window may still be bound to a region: it is tried again.
        let refused = ready.into_iter().filter_map(|kept| kept.lmr.free().err());
        left.extend(refused.map(|lmr| Kept::new(lmr, Vec::new())));
        left
    }
}

/// Returns true for the error of a free that the state of the object, or another object that uses it, forbids.
fn is_of_state(error: &Error) -> bool {
    error.code().and_then(Code::kind) == Some(Kind::InvalidState)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;

    use super::*;

    #[derive(Debug)]
    struct Registration(Arc<AtomicU32>);

    impl Dropped for Registration {
        fn zone(&self) -> usize {
            1
        }

        fn free(self: Box<Self>) -> Result<(), Box<dyn Dropped>> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }
    }

    /// The last endpoint is freed while another thread looks what can be freed. After that no thread may look again.
    #[test]
    fn the_end_of_an_endpoint_is_seen_beside_another_thread_that_looks() {
        const ROUNDS: u32 = 20_000;
        let freed = Arc::new(AtomicU32::new(0));
        let entry = crate::ids::entry(0x5800_0000_0000);
        let limbo = Limbo::default();
        let (turn, mut missed) = (AtomicU32::new(0), 0);
        let await_turn = |number| {
            while turn.load(Ordering::Acquire) != number {
                std::thread::yield_now();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 1..=ROUNDS {
                    await_turn(2 * round - 1);
                    limbo.collect();
                    turn.store(2 * round, Ordering::Release);
                }
            });
            for round in 1..=ROUNDS {
                entry.begin(None);
                limbo.add(entry, 1, false);
                entry.post(Side::Receives);
                limbo.keep(Box::new(Registration(Arc::clone(&freed))));
                turn.store(2 * round - 1, Ordering::Release);
                let id = limbo.begin_free(entry);
                limbo.remove(entry, id);
                limbo.collect();
                await_turn(2 * round);
                missed += round - freed.load(Ordering::Relaxed);
                // For the next round.
                limbo.collect();
            }
        });
        assert_eq!(missed, 0);
    }

    /// A region is dropped while another thread's post is being refused.
    #[test]
    fn a_post_that_was_refused_is_not_waited_for() {
        let freed = Arc::new(AtomicU32::new(0));
        let entry = crate::ids::entry(0x5900_0000_0000);
        let limbo = Limbo::default();
        entry.begin(None);
        limbo.add(entry, 1, false);
        for side in [Side::Requests, Side::Receives] {
            freed.store(0, Ordering::Relaxed);
            entry.post(side);
            limbo.keep(Box::new(Registration(Arc::clone(&freed))));
            assert_eq!(freed.load(Ordering::Relaxed), 0);
            entry.unpost(side);
            limbo.collect();
            assert_eq!(freed.load(Ordering::Relaxed), 1, "{side:?}");
        }
    }

    /// A server that ends drops its regions and its endpoints, each with receives outstanding. That took minutes where a look at the regions
    /// tested all that each of them waits for.
    #[test]
    fn regions_of_many_endpoints_are_freed_as_these_end() {
        const MANY: usize = 300;
        let freed = Arc::new(AtomicU32::new(0));
        let limbo = Limbo::default();
        let entry = |n| crate::ids::entry(0x5900_0000_0000 + n * 64);
        let entries: Vec<_> = (0..MANY).map(entry).collect();
        for entry in &entries {
            entry.begin(None);
            limbo.add(entry, 1, false);
            entry.post(Side::Receives);
        }
        for entry in &entries {
            limbo.keep(Box::new(Registration(Arc::clone(&freed))));
            assert_eq!(freed.load(Ordering::Relaxed), 0);
            let id = limbo.begin_free(entry);
            limbo.remove(entry, id);
        }
        limbo.collect();
        assert_eq!(freed.load(Ordering::Relaxed), MANY as u32);
        assert!(!limbo.is_busy(1));
    }
}
