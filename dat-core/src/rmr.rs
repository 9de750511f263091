//! The DAT object: remote memory regions (windows).

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the remote memory regions (windows).
#[derive(Debug)]
#[repr(C)]
pub struct Rmr<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Rmr<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
