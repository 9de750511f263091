//! The DAT object: endpoints.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the endpoints.
#[derive(Debug)]
#[repr(C)]
pub struct Ep<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Ep<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
