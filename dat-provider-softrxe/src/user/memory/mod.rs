//! Registered memory of the user engine.

pub mod foreign;
pub mod loans;
mod probe;
pub mod regions;
