//! Memory windows. A window is in all lanes; the endpoint that binds it determines the lane in which the bind is executed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use dat_core::error::Result;
use dat_core::transport::WrId;
use softrxe_proto::{self as proto, Memory as _, MwBind, PostError, Time, WindowType};

use super::convert::{FULL, post_error};
use super::objects::{Pz, Qp};
use crate::adapter::hub::{Hub, State};
use crate::adapter::lanes::Lanes;
use crate::memory::entries::Window;

/// A memory window.
pub struct Rmr {
    lanes: Arc<Lanes>,
    kind: WindowType,
    /// Its part in each lane.
    parts: Vec<Part>,
}

/// The part of a window in one lane.
#[derive(Debug)]
struct Part {
    window: Window,
    /// Its key after all posted binds.
    key: AtomicU32,
}

/// What a bind asks for, besides its window.
pub(super) struct Wanted {
    pub(super) id: WrId,
    pub(super) signaled: bool,
    pub(super) fence: bool,
    /// `old_key`, `new_key` and `kind` are not known yet.
    pub(super) window: MwBind,
}

impl Rmr {
    pub(super) fn create(pz: &Pz, kind: WindowType) -> Result<Self> {
        let mut rmr = Self {
            lanes: Arc::clone(&pz.lanes),
            kind,
            parts: Vec::new(),
        };
        for hub in pz.lanes.all() {
            let state = hub.state.lock();
            let created = state.engine.memory().create_window(kind, pz.pd);
            let (window, key) = created.ok_or(FULL)?;
            let key = AtomicU32::new(key);
            rmr.parts.push(Part { window, key });
        }
        Ok(rmr)
    }

    /// Posts a bind to `qp`, and returns the window's new key. Core serialises the binds of a window, so that its key changes in the order of
    /// posting.
    pub(super) fn post_bind(&self, qp: &Qp, wanted: &Wanted) -> Result<u32> {
        let part = &self.parts[qp.lane];
        let mut window = wanted.window;
        window.kind = self.kind;
        window.old_key = part.key.load(Ordering::Acquire);
        let post = |state: &mut State, now: Time, window: MwBind| -> Result<(), PostError> {
            let mut request = proto::SendRequest::new(wanted.id.0, proto::Op::Bind(window), &[]);
            request.signaled = wanted.signaled;
            request.fence = wanted.fence;
            state.engine.post_send(now, qp.qpn, &request)
        };
        let others: Vec<(&Arc<Hub>, &Part)> = self.outside(qp.lane).collect();
        let posted = if others.is_empty() {
            qp.hub.with(|state, now| {
                window.new_key = state.engine.memory().draw_key();
                post(state, now, window)
            })
        } else {
            let _alone = self.lanes.order_binds();
            if self.is_bound_in(&others) {
                // As a window that another queue pair of this lane has bound: the bind fails.
                window.old_key = 0;
            }
            // No completion can be taken before the other lanes know the key.
            qp.hub.with(|state, now| {
                window.new_key = self.draw_key(state, &others);
                post(state, now, window)?;
                self.bind_in(&others, qp, window);
                Ok(())
            })
        };
        posted.map_err(post_error)?;
        part.key.store(window.new_key, Ordering::Release);
        Ok(window.new_key)
    }

    /// Returns the parts in other lanes than `lane`.
    fn outside(&self, lane: usize) -> impl Iterator<Item = (&Arc<Hub>, &Part)> {
        let all = self.lanes.all().iter().zip(&self.parts).enumerate();
        all.filter(move |(n, _)| *n != lane).map(|(_, part)| part)
    }

    /// Returns whether a queue pair of one of `others` has bound this window, which belongs to a queue pair.
    fn is_bound_in(&self, others: &[(&Arc<Hub>, &Part)]) -> bool {
        self.kind == WindowType::Type2
            && others
                .iter()
                .any(|(hub, part)| hub.state.lock().engine.memory().is_bound(part.window))
    }

    /// Draws a key that is free in all lanes.
    fn draw_key(&self, state: &State, others: &[(&Arc<Hub>, &Part)]) -> u32 {
        loop {
            let key = state.engine.memory().draw_key();
            let in_use = self.kind == WindowType::Type1
                && others
                    .iter()
                    .any(|(hub, _)| hub.state.lock().engine.memory().uses(key));
            if !in_use {
                return key;
            }
        }
    }

    /// Binds a window of the PZ in `others` as well, at once. If the posted bind fails because the endpoint is not connected, they keep the new
    /// key, which the consumer has told to no peer.
    fn bind_in(&self, others: &[(&Arc<Hub>, &Part)], qp: &Qp, mut window: MwBind) {
        if self.kind == WindowType::Type2 {
            return;
        }
        for (hub, part) in others {
            window.old_key = part.key.load(Ordering::Acquire);
            let state = hub.state.lock();
            // What is refused here is refused in the endpoint's lane, and its completion says so.
            let bound = state.engine.memory().bind(&window, qp.pd(), qp.qpn);
            if bound.is_ok() {
                part.key.store(window.new_key, Ordering::Release);
            }
        }
    }
}

impl std::fmt::Debug for Rmr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rmr")
            .field("parts", &self.parts)
            .finish_non_exhaustive()
    }
}

impl Drop for Rmr {
    fn drop(&mut self) {
        for (hub, part) in self.lanes.all().iter().zip(&self.parts) {
            let state = hub.state.lock();
            state.engine.memory().destroy_window(part.window);
        }
    }
}
