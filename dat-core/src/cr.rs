//! The DAT object: connection requests.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the connection requests.
#[derive(Debug)]
#[repr(C)]
pub struct Cr<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Cr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
