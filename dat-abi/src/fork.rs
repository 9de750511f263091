//! Invalidates handles after fork(2). A child inherits its parent's handles, but the device, the sockets and the connections
//! behind them belong to the parent. So every handle is dead in the child, which may open IAs of its own.

use std::sync::Mutex;

use dat_core::transport::Transport;
use dat_os::mutex::lock;

/// Registers the fork handler that invalidates the handles of `T` in children, once.
pub(crate) fn invalidate_in_children<T: Transport>() {
    static REGISTERED: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let child = disown::<T> as unsafe extern "C" fn();
    let mut registered = lock(&REGISTERED);
    if registered.contains(&(child as usize)) {
        return;
    }
    // SAFETY: the function stays mapped, because a provider of ours is not unmapped once an IA was open; it only stores.
    match unsafe { dat_os::fork::at_fork(None, None, Some(child)) } {
        Ok(()) => registered.push(child as usize),
        Err(error) => tracing::warn!(
            "pthread_atfork failed: {error}; a forked child must not use the handles of this process"
        ),
    }
}

/// Runs in the child before fork(2) returns. It only stores: it takes no locks and allocates no memory.
unsafe extern "C" fn disown<T: Transport>() {
    T::arenas().disown();
}
