//! The DAT object: consumer notification objects.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the consumer notification objects.
#[derive(Debug)]
#[repr(C)]
pub struct Cno<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Cno<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
