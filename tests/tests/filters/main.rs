//! The filters over other providers: C programs, Debian's dtest and the conformance suite get from a wrapped IA what they get
//! from the IA itself; `dat trace` says what they called, and each kind of fault of `dat fault` has its effect.
//!
//! Begin reading here: `common.rs` has the dat.conf of the tests.

mod common;
mod fault;
mod nested;
mod trace;
