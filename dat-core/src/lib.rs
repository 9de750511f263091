//! The DAT object model, state machines and the transport trait.
#![forbid(unsafe_code)]
