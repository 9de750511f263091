//! Registered memory of the user engine.

pub mod foreign;
pub mod loans;
pub mod regions;
