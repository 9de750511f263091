//! fork(2): a child gets copies of its parent's handles, but the device, the sockets and the peers behind them are the
//! parent's. So in the child every handle that was open is dead, and it opens IAs of its own if it wants any.

use std::sync::{Mutex, PoisonError};

use dat_core::transport::Transport;

/// From now on children have none of the handles of `T`.
pub(crate) fn watch<T: Transport>() {
    static WATCHED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let child = disown::<T> as unsafe extern "C" fn();
    let mut watched = WATCHED.lock().unwrap_or_else(PoisonError::into_inner);
    if watched.contains(&(child as usize)) {
        return;
    }
    // SAFETY: the function stays mapped, because a provider of this project is not unmapped once an IA was open; it only stores.
    match unsafe { dat_os::fork::at_fork(None, None, Some(child)) } {
        Ok(()) => watched.push(child as usize),
        Err(error) => tracing::warn!(
            "pthread_atfork: {error}; a forked child must not use this process's handles"
        ),
    }
}

/// In the child, before fork(2) returns: stores only, no locks and no memory.
unsafe extern "C" fn disown<T: Transport>() {
    T::arenas().disown();
}
