//! Slots of the 2.0 table whose structures or arguments 1.2 does not share. Contracts as in [`crate::thunk`].

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

/// [`crate::boundary::guard`] with 2.0's numbers.
#[inline(always)]
fn guard(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::guard::<V2_0>(body)
}

/// [`crate::boundary::making`] with 2.0's numbers.
fn making(body: impl FnOnce() -> Result<()>) -> u32 {
    crate::boundary::making::<V2_0>(body)
}
