//! A DAT provider whose IAs are those of another provider, of any origin, with each call and each event observed, delayed or
//! changed.
//!
//! The design is in docs/design/filters.md. In short: `ia.rs` opens the inner IA and writes the address of the filter's function table into the first
//! word of its handle. Handles stay those of the inner provider, so nothing in events or parameters is translated. `slots.rs` has
//! the table: each slot finds its instance by the handle (`instance.rs`), calls the inner slot, and tells the filter (`filter.rs`).
//! `nesting.rs` finds the filters that a filter wraps.
//! `posts.rs` and `events.rs` are the slots that move data. `trace/` and `fault/` are the filters; `outstanding.rs` finds the post
//! of a completion for both.
//!
//! The crate imports dat-abi (tables, C types), dat-core (errors), dat-registry (to open the inner IA) and dat-os.

mod entry;
mod events;
pub mod export;
mod fault;
mod filter;
mod ia;
mod inner;
mod instance;
mod nesting;
mod outstanding;
mod posts;
mod settings;
mod slots;
mod trace;
