//! Release of ids whose request has no answer yet.
//!
//! Over iWARP, `rdma_destroy_id` waits in the kernel for the peer's answer, or for the driver's own limit (10 s in siw):
//! `destroy_cm_id` in Linux' `drivers/infiniband/core/iwcm.c` waits until the connect has ended. The caller is often
//! core's timer thread, where that would delay the timeouts of all other connections. So the wait has a thread of its
//! own.

use std::thread::JoinHandle;

use dat_arena::Mutex;

use crate::cm::rdma::id::CmId;

/// The threads that release ids. The adapter waits for them when it closes: the provider may be unloaded then.
#[derive(Default)]
pub(crate) struct Retired(Mutex<Vec<JoinHandle<()>>>);

impl Retired {
    /// Drops `id` on a thread of its own; here if there is no memory for a thread.
    pub(crate) fn add(&self, id: CmId) {
        if !dat_core::reserve::has_thread_room() {
            return drop(id);
        }
        // A thread that cannot start drops its closure, and the id with it.
        let builder = std::thread::Builder::new().name("dat cm end".into());
        let started = dat_os::signals::spawn(builder, move || drop(id));
        match started {
            Ok(thread) => {
                let mut threads = self.0.lock();
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread);
            }
            Err(e) => tracing::debug!("no thread to destroy an id: it was waited for ({e})"),
        }
    }

    /// Waits until all ids are released.
    pub(crate) fn join(&self) {
        let threads = std::mem::take(&mut *self.0.lock());
        for thread in threads {
            thread.join().ok();
        }
    }
}
