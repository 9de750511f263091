//! Registered memory of the user engine.

pub mod foreign;
mod keys;
pub mod loans;
mod probe;
pub mod regions;
