//! The DAT object: interface adapters.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the interface adapters.
#[derive(Debug)]
#[repr(C)]
pub struct Ia<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Ia<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
