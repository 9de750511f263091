//! The DAT object: event dispatchers.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the event dispatchers.
#[derive(Debug)]
#[repr(C)]
pub struct Evd<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Evd<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
