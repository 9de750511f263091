//! Memory windows: created unbound, opened by a bind, closed by an invalidation or with their region or queue pair.

use softrxe_proto::{AccessError, MwBind, Pd, Qpn, Rights, WindowType};

use super::entries::{Bound, Entry, Target, Window, offset_inside};
use super::table::{Current, Table};

impl Table {
    /// Creates an unbound window and returns it with its key, or `None` if the table is full or has no memory.
    pub(super) fn create_window(&mut self, kind: WindowType, pd: Pd) -> Option<(Window, u32)> {
        self.windows.try_reserve(1).ok()?;
        let window = Window(self.last_window + 1);
        let unbound = Target::Window { kind, bound: None };
        let key = self.add(pd, unbound)?;
        self.last_window = window.0;
        self.windows.insert(window, Current { key, order: 0 });
        self.any_type2 |= kind == WindowType::Type2;
        Some((window, key))
    }

    /// Removes a window, bound or not. Returns its key.
    pub(super) fn destroy_window(&mut self, window: Window) -> Option<u32> {
        let Current { key, .. } = self.windows.remove(&window)?;
        self.remove(key);
        Some(key)
    }

    /// Returns whether `window` makes memory accessible.
    pub(super) fn is_bound(&self, window: Window) -> bool {
        let current = self.windows.get(&window);
        let entry = current.and_then(|current| self.entries.get(current.key));
        let target = entry.map(|entry| &entry.target);
        matches!(target, Some(Target::Window { bound: Some(_), .. }))
    }

    /// Makes binds of `window` that were posted before the one with number `order` without effect.
    pub(super) fn supersede(&mut self, window: Window, order: u32) {
        if let Some(current) = self.windows.get_mut(&window) {
            current.order = order;
        }
    }

    /// Unbinds the windows that belong to `qpn`.
    pub(super) fn unbind_windows_of(&mut self, qpn: Qpn) {
        if self.any_type2 {
            self.unbind_windows(|bound| bound.qpn == Some(qpn));
        }
    }

    /// Unbinds the windows for which `unbinds` returns true.
    pub(super) fn unbind_windows(&mut self, unbinds: impl Fn(&Bound) -> bool) {
        for current in self.windows.values() {
            if let Some(entry) = self.entries.get_mut(current.key)
                && let Target::Window { bound, .. } = &mut entry.target
                && bound.as_ref().is_some_and(&unbinds)
            {
                *bound = None;
            }
        }
    }

    /// Executes a bind that was posted to `qpn`. Calls `withdraw` with the key that the window had until now, also if the bind fails.
    ///
    /// # Errors
    /// The window, its region or a right is missing. A bind that a later one has superseded has no effect; of a window of type 2 it fails.
    pub(super) fn bind(
        &mut self,
        bind: &MwBind,
        pd: Pd,
        qpn: Qpn,
        withdraw: impl FnOnce(u32),
    ) -> Result<(), AccessError> {
        let window = Window(bind.window);
        let current = self.windows.get_mut(&window);
        let current = current.ok_or(AccessError::Window(bind.new_key))?;
        let old_key = current.key;
        let refused = AccessError::Window(old_key);
        // The numbers wrap.
        if bind.order.wrapping_sub(current.order).cast_signed() < 0 {
            // A later one opened the window already, and to all queue pairs if it is of type 1.
            return match bind.kind {
                WindowType::Type1 => Ok(()),
                WindowType::Type2 => Err(refused),
            };
        }
        current.order = bind.order;
        withdraw(old_key);
        let entry = self.entries.get(old_key).ok_or(refused)?;
        let Target::Window {
            kind, bound: old, ..
        } = entry.target
        else {
            return Err(refused);
        };
        if entry.pd != pd
            || kind != bind.kind
            || self.entries.contains(bind.new_key)
            || old.is_some_and(|old| old.qpn.is_some_and(|owner| owner != qpn))
        {
            return Err(refused);
        }
        let new = self.bound_by(bind, pd, qpn)?;
        self.entries.try_reserve_one().map_err(|_| refused)?;
        self.remove(old_key);
        let target = Target::Window { kind, bound: new };
        self.entries.insert(bind.new_key, Entry { pd, target });
        let current = Current {
            key: bind.new_key,
            order: bind.order,
        };
        self.windows.insert(window, current);
        Ok(())
    }

    /// Returns what a bind makes accessible, if its region grants that; `None` for a bind of no bytes, which closes the window.
    fn bound_by(&self, bind: &MwBind, pd: Pd, qpn: Qpn) -> Result<Option<Bound>, AccessError> {
        if bind.length == 0 {
            return Ok(None);
        }
        let lkey = bind.lkey;
        let region = self.entries.get(lkey).ok_or(AccessError::Key(lkey))?;
        if region.pd != pd {
            return Err(AccessError::Scope(lkey));
        }
        let Target::Region {
            range,
            start,
            rights,
        } = &region.target
        else {
            return Err(AccessError::Key(lkey));
        };
        let bounds = AccessError::Bounds {
            key: lkey,
            va: bind.address,
            length: bind.length,
        };
        offset_inside(bind.address, bind.length, *start, range.length()).ok_or(bounds)?;
        let writes = bind
            .rights
            .intersects(Rights::REMOTE_WRITE | Rights::REMOTE_ATOMIC);
        if !rights.contains(Rights::WINDOW_BIND) {
            return Err(AccessError::Right {
                key: lkey,
                need: Rights::WINDOW_BIND,
            });
        }
        if writes && !rights.contains(Rights::LOCAL_WRITE) {
            return Err(AccessError::Right {
                key: lkey,
                need: Rights::LOCAL_WRITE,
            });
        }
        Ok(Some(Bound {
            region: lkey,
            start: bind.address,
            length: bind.length,
            rights: bind.rights,
            qpn: (bind.kind == WindowType::Type2).then_some(qpn),
        }))
    }

    /// Ends what the window of `key` makes accessible, for queue pair `qpn` or, if `remote`, for its peer.
    pub(super) fn invalidate(
        &mut self,
        key: u32,
        pd: Pd,
        qpn: Qpn,
        remote: bool,
    ) -> Result<(), AccessError> {
        let entry = self.entries.get_mut(key).ok_or(AccessError::Key(key))?;
        if entry.pd != pd {
            return Err(AccessError::Scope(key));
        }
        let Target::Window { kind, bound, .. } = &mut entry.target else {
            return Err(AccessError::Window(key));
        };
        let Some(now) = *bound else {
            return Err(AccessError::Window(key));
        };
        if remote && *kind != WindowType::Type2 {
            return Err(AccessError::Window(key));
        }
        if now.qpn.is_some_and(|owner| owner != qpn) {
            return Err(AccessError::Scope(key));
        }
        *bound = None;
        Ok(())
    }
}
