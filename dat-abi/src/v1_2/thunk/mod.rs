//! Slots of the 1.2 table whose structures or arguments differ from 2.0's. Contracts as in [`crate::thunk`].

mod memory;
mod object;

pub(crate) use memory::*;
pub(crate) use object::*;

use dat_core::error::Result;

use crate::boundary::V1_2;

/// [`crate::boundary::guard`] with 1.2's numbers.
#[inline(always)]
fn guard(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::guard::<V1_2>(body)
}

/// [`crate::boundary::making`] with 1.2's numbers.
fn making(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::making::<V1_2>(body)
}
