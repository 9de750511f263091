//! The DAT object: service points: PSP and RSP.

use std::marker::PhantomData;

use crate::head::Head;
use crate::transport::Transport;

/// One of the service points: PSP and RSP.
#[derive(Debug)]
#[repr(C)]
pub struct Sp<T: Transport> {
    /// Table, liveness, generation, uses.
    pub head: Head,
    transport: PhantomData<fn() -> T>,
}

impl<T: Transport> Default for Sp<T> {
    fn default() -> Self {
        Self {
            head: Head::default(),
            transport: PhantomData,
        }
    }
}
