//! The DAT object: protection zones.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the protection zones.
#[derive(Debug)]
#[repr(C)]
pub struct Pz<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Pz<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
