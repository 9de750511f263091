//! Endpoints.

mod builder;
mod connect;
mod info;
mod post;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

pub use builder::EpBuilder;
pub use connect::Connect;
pub use dat_core::ep::EpState;
use dat_core::error::{Error as Code, Kind};
pub use info::{Changes, EpInfo, EpLimits, ReceiveUse};

use crate::Close;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::hot::Hot;
use crate::ids::{Entry, EpId, Side};
use crate::post_error::{PostCall, PostError};
use crate::pz::Pz;
use crate::srq::Srq;
use crate::sys::{Handle, call};

/// An endpoint: one end of a connection. Clones are the same endpoint; dropping the last one disconnects and frees it. It has no events
/// after that: a thread that waits for them hears of [`Ep::disconnect`], and not of a drop.
///
/// ```
/// use std::time::Duration;
/// use udapl::{Close, EpState, Event, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let patience = Duration::from_secs(60);
/// let ia = Ia::open("softrxe-lo")?;
/// let pz = ia.create_pz()?;
/// let events = ia.create_evd(64, Streams::DTO | Streams::CONNECTION)?;
/// let ep = ia.endpoint(&pz).recv_evd(&events).request_evd(&events).connect_evd(&events).create()?;
///
/// // Nothing listens there. After a reset the endpoint can try another address.
/// ep.connect(ia.attributes()?.address, 31_998).start()?;
/// let ended = events.wait(patience)?;
/// assert!(matches!(ended, Event::Ended { ep: id, .. } if id == ep.id()));
/// ep.reset()?;
/// assert_eq!(ep.state()?, EpState::Unconnected);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Ep {
    // What a post needs is here, and not behind another pointer.
    handle: Handle,
    entry: &'static Entry,
    hot: &'static Hot,
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    entry: &'static Entry,
    /// Handle of the zone, with which regions of receives are compared; 0 if the endpoint takes none.
    receive_zone: AtomicUsize,
    /// Maximum number of segments of a request and of a receive.
    segments: [AtomicUsize; 2],
    parts: Mutex<Parts>,
}

/// The objects that an endpoint uses.
#[derive(Clone, Debug)]
struct Parts {
    /// For receives, requests and connections.
    evds: [Option<Evd>; 3],
    /// Dispatchers that it used before a change, in which late events may be.
    earlier: Vec<Evd>,
    srq: Option<Srq>,
    pz: Pz,
}

impl Parts {
    /// Returns the zone of receives, 0 if none can be posted.
    fn receive_zone(&self) -> usize {
        if self.evds[0].is_some() && self.srq.is_none() {
            self.pz.handle().0
        } else {
            0
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let parts = self.parts.get_mut();
        let parts = parts.unwrap_or_else(std::sync::PoisonError::into_inner);
        let ia = parts.pz.ia().clone();
        let id = ia.limbo().begin_free(self.entry);
        // Marked before the free, after which the provider may use the handle again; and after it, because a queue that was empty before
        // may have got an event since.
        let had_events = self.entry.had_events();
        let mark = || {
            let parts = had_events.then_some(&*parts);
            let evds = parts
                .iter()
                .flat_map(|p| p.evds.iter().flatten().chain(&p.earlier));
            evds.for_each(|evd| evd.add_late(self.entry));
        };
        mark();
        let limbo = ia.limbo();
        limbo.free_member(self.entry, id, |handle| call!(handle, ep_free()));
        mark();
        ia.limbo().collect();
    }
}

impl Ep {
    fn own(handle: Handle, parts: Parts, segments: [u32; 2]) -> Self {
        let entry = crate::ids::entry(handle.0);
        entry.begin(parts.srq.as_ref().map(Srq::entry));
        let zone = parts.pz.handle().0;
        parts.pz.ia().limbo().add(entry, zone, false);
        let ep = Self {
            handle,
            entry,
            hot: Hot::of(handle),
            inner: Arc::new(Inner {
                entry,
                receive_zone: AtomicUsize::new(0),
                segments: segments.map(|count| AtomicUsize::new(count as usize)),
                parts: Mutex::new(parts),
            }),
        };
        ep.set_zones(&ep.parts());
        ep
    }

    /// Says in which zones the segments of quick posts must be: those with one segment.
    fn set_zones(&self, parts: &Parts) {
        let one = |side: Side, zone| match self.most_segments(side) {
            0 => 0,
            _ => zone,
        };
        let zone = parts.pz.handle().0;
        let receives = parts.receive_zone();
        self.inner.receive_zone.store(receives, Ordering::Relaxed);
        let receives = one(Side::Receives, receives);
        self.entry.set_zones(one(Side::Requests, zone), receives);
    }

    /// Returns the maximum number of segments of a post.
    #[inline]
    fn most_segments(&self, side: Side) -> usize {
        self.inner.segments[side as usize].load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    fn parts(&self) -> Parts {
        let parts = self.inner.parts.lock();
        parts
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .clone()
    }

    /// Returns the number that identifies the endpoint in events.
    #[must_use]
    pub fn id(&self) -> EpId {
        self.inner.entry.id()
    }

    /// Returns the protection zone.
    #[must_use]
    pub fn pz(&self) -> Pz {
        self.parts().pz
    }

    /// Returns the state (dat_ep_get_status).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn state(&self) -> Result<EpState> {
        self.status().map(|(state, ..)| state)
    }

    /// Returns the state, whether no receive is posted, and whether no request is outstanding (dat_ep_get_status).
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn status(&self) -> Result<(EpState, bool, bool)> {
        let (mut state, mut receives, mut requests) = (0, 0, 0);
        call!(
            self.handle(),
            ep_get_status(&raw mut state, &raw mut receives, &raw mut requests)
        )?;
        let state = EpState::from_number(state).ok_or(Error::Call {
            call: "dat_ep_get_status",
            code: Code::of(Kind::InternalError),
        })?;
        Ok((state, receives != 0, requests != 0))
    }

    /// Ends the connection (dat_ep_disconnect).
    ///
    /// ```
    /// use udapl::{Access, Close};
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let (pz, (client, sent), (server, received)) = pair()?;
    /// // `client` is a connected endpoint.
    /// # let message = pz.allocate(64, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
    /// # server.post_recv(&[message.slice(32..64)], 2)?;
    /// client.post_send(&[message.slice(0..10)], 1)?;
    /// client.disconnect(Close::Graceful)?; // after the message was sent; Close::Abrupt drops it
    /// # let done = received.wait_completion(std::time::Duration::from_secs(60))?;
    /// # assert_eq!(done.length, 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn disconnect(&self, how: Close) -> Result<()> {
        call!(
            self.handle(),
            ep_disconnect(u32::from(how == Close::Graceful))
        )
    }

    /// Resets the endpoint to unconnected (dat_ep_reset), for another connection.
    ///
    /// # Errors
    /// [`Error::Call`].
    pub fn reset(&self) -> Result<()> {
        // Completions of earlier posts may be dropped, so that counts say no more what is outstanding.
        self.inner.entry.inexact();
        call!(self.handle(), ep_reset())
    }

    /// Returns why a receive cannot be posted.
    #[cold]
    fn receive_refused(&self, call: PostCall) -> PostError {
        let parts = self.parts();
        match (&parts.srq, &parts.evds[0]) {
            (Some(_), _) => PostError::HasSrq { call },
            (None, None) => PostError::NoEvd { call },
            _ => PostError::OtherZone { call },
        }
    }

    /// Says that the endpoint begins to connect.
    pub(crate) fn begin_connection(&self) {
        self.inner.entry.connect();
    }

    #[inline]
    fn zone(&self) -> usize {
        self.entry.zone()
    }
}
