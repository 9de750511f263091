//! Slots of the 2.0 table whose structures or arguments differ from 1.2's. Their contracts are those of [`crate::thunk`].

mod cno;
mod counters;
mod csp;
mod ep;
mod extension;
mod ia;
mod memory;
mod post;

pub(crate) use cno::*;
pub(crate) use csp::*;
pub(crate) use ep::*;
pub(crate) use extension::*;
pub(crate) use ia::*;
pub(crate) use memory::*;
pub(crate) use post::*;

use dat_core::error::Result;

use crate::boundary::V2_0;

/// Runs [`crate::boundary::guard`] with 2.0's return codes.
#[inline(always)]
fn guard(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::guard::<V2_0>(body)
}

/// Runs [`crate::boundary::guard_allocating`] with 2.0's return codes.
fn guard_allocating(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::guard_allocating::<V2_0>(body)
}
