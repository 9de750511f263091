//! Registered memory of the user engine.

pub mod foreign;
pub mod regions;
