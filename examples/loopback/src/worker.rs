//! The thread that makes all upcalls of the loopback. One queue keeps the upcalls of a connection in order.

use crate::transport::Loopback;
use dat_provider_parts::worker;

/// An upcall that the worker will make.
pub(crate) type Upcall = worker::Upcall<Loopback>;

/// The thread.
pub(crate) static WORKER: worker::Worker<Loopback> = worker::Worker::new("dat-loopback");

/// Queues an upcall for the worker; never blocks.
pub(crate) fn enqueue(upcall: Upcall) {
    WORKER.enqueue(upcall);
}
