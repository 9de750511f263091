//! The DAT object: shared receive queues.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the shared receive queues.
#[derive(Debug)]
#[repr(C)]
pub struct Srq<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Srq<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
