//! The DAT object: local memory regions.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the local memory regions.
#[derive(Debug)]
#[repr(C)]
pub struct Lmr<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Lmr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
