//! Registered memory of the user engine.

pub mod foreign;
pub mod guard;
mod keys;
pub mod loans;
mod probe;
pub mod regions;
