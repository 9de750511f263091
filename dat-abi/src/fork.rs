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
    // SAFETY: the function is of the type that pthread_atfork wants, and stays: providers of ours are not unmapped
    // once an IA was open.
    let code = unsafe { libc::pthread_atfork(None, None, Some(child)) };
    if code == 0 {
        watched.push(child as usize);
    } else {
        tracing::warn!(
            "pthread_atfork: {}; a forked child must not use this process's handles",
            std::io::Error::from_raw_os_error(code)
        );
    }
}

/// In the child, before fork(2) returns: stores only, no locks and no memory.
unsafe extern "C" fn disown<T: Transport>() {
    T::arenas().disown();
}
