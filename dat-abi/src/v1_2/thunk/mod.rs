//! Slots of the 1.2 table whose structures or arguments differ from 2.0's. Their contracts are those of [`crate::thunk`].

mod memory;
mod object;

pub(crate) use memory::*;
pub(crate) use object::*;

use dat_core::error::Result;

use crate::boundary::V1_2;

/// Runs [`crate::boundary::guard`] with 1.2's return codes.
#[inline(always)]
fn guard(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::guard::<V1_2>(body)
}

/// Runs [`crate::boundary::guard_allocating`] with 1.2's return codes.
fn guard_allocating(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::guard_allocating::<V1_2>(body)
}
