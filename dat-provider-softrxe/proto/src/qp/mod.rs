//! Queue pairs.

mod state;
pub use state::{QpInput, QpState};
