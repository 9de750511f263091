//! Memory windows. A window is in all lanes; the endpoint that binds it determines the lane in which the bind is executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_core::error::Result;
use dat_core::transport::WrId;
use softrxe_proto::{self as proto, Memory as _, MwBind, PostError, Rights, Time, WindowType};

use super::convert::{FULL, post_error};
use super::objects::{Pz, Qp};
use crate::adapter::hub::Hub;
use crate::adapter::lanes::Lanes;
use crate::adapter::state::State;
use crate::memory::entries::Window;

/// A memory window.
pub struct Rmr {
    lanes: Arc<Lanes>,
    kind: WindowType,
    /// Its name in each lane.
    names: Vec<Window>,
    /// Binds that were posted; wraps.
    binds: AtomicU32,
}

/// What a bind asks for, besides its window.
pub(super) struct Wanted {
    pub(super) id: WrId,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    pub(super) lkey: u32,
    pub(super) address: u64,
    pub(super) length: u64,
    pub(super) rights: Rights,
}

/// Another lane than that of the endpoint that binds, and the name of the window there.
type Other<'a> = (&'a Arc<Hub>, Window);

impl Rmr {
    pub(super) fn create(pz: &Pz, kind: WindowType) -> Result<Self> {
        let mut rmr = Self {
            lanes: Arc::clone(&pz.lanes),
            kind,
            names: Vec::new(),
            binds: AtomicU32::new(0),
        };
        for hub in pz.lanes.all() {
            let state = hub.state.lock();
            let created = state.engine.memory().create_window(kind, pz.pd);
            let (window, _) = created.ok_or(FULL)?;
            rmr.names.push(window);
        }
        Ok(rmr)
    }

    /// Posts a bind to `qp`, and returns the window's new key. Core serialises the binds of a window.
    pub(super) fn post_bind(&self, qp: &Qp, wanted: &Wanted) -> Result<u32> {
        let mut window = MwBind {
            window: self.names[qp.lane].value(),
            order: self.binds.fetch_add(1, Ordering::Relaxed).wrapping_add(1),
            new_key: 0,
            lkey: wanted.lkey,
            address: wanted.address,
            length: wanted.length,
            rights: wanted.rights,
            kind: self.kind,
        };
        let post = |state: &mut State, now: Time, window: MwBind| -> Result<(), PostError> {
            let mut request = proto::SendRequest::new(wanted.id.0, proto::Op::Bind(window), &[]);
            request.signaled = wanted.signaled;
            request.fence = wanted.fence;
            state.engine.post_send(now, qp.qpn, &request)
        };
        let others: Vec<Other<'_>> = self.outside(qp.lane).collect();
        let posted = if others.is_empty() {
            qp.hub.with(|state, now| {
                window.new_key = state.engine.memory().draw_key();
                post(state, now, window)
            })
        } else {
            let _alone = self.lanes.order_binds();
            if self.belongs_to(&others) {
                // The bind fails, as that of a window that another queue pair of this lane has bound.
                window.window = Window::NONE.value();
            }
            // No completion can be taken before the other lanes know of the bind.
            qp.hub.with(|state, now| {
                window.new_key = draw_key(state, &others);
                post(state, now, window)?;
                self.bind_in(&others, qp, window);
                Ok(())
            })
        };
        posted.map_err(post_error)?;
        Ok(window.new_key)
    }

    /// Returns the other lanes than `lane`.
    fn outside(&self, lane: usize) -> impl Iterator<Item = Other<'_>> {
        let all = self.lanes.all().iter().zip(self.names.iter().copied());
        let numbered = all.enumerate().filter(move |(n, _)| *n != lane);
        numbered.map(|(_, other)| other)
    }

    /// Returns whether a queue pair of one of `others` has bound this window, and no other queue pair may.
    fn belongs_to(&self, others: &[Other<'_>]) -> bool {
        let bound = |(hub, name): &Other<'_>| hub.state.lock().engine.memory().is_bound(*name);
        self.kind == WindowType::Type2 && others.iter().any(bound)
    }

    /// Makes the bind `window`, which was posted to `qp`, known in `others`. A window of the PZ is bound there at once, one of an endpoint nowhere
    /// else; binds that were posted there earlier do not count any more.
    fn bind_in(&self, others: &[Other<'_>], qp: &Qp, mut window: MwBind) {
        for (hub, name) in others {
            let state = hub.state.lock();
            let memory = state.engine.memory();
            if self.kind == WindowType::Type1 {
                window.window = name.value();
                // Rights or a range that are refused here are refused in the endpoint's lane, and its completion says so.
                let _ = memory.bind(&window, qp.pd(), qp.qpn);
            } else if window.window != Window::NONE.value() {
                memory.supersede(*name, window.order);
            }
        }
    }
}

/// Draws a key that is free in all lanes.
fn draw_key(state: &State, others: &[Other<'_>]) -> u32 {
    loop {
        let key = state.engine.memory().draw_key();
        let in_use = |(hub, _): &Other<'_>| hub.state.lock().engine.memory().uses(key);
        if !others.iter().any(in_use) {
            return key;
        }
    }
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rmr")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}

impl Drop for Rmr {
    fn drop(&mut self) {
        for (hub, name) in self.lanes.all().iter().zip(&self.names) {
            let state = hub.state.lock();
            state.engine.memory().destroy_window(*name);
        }
    }
}
