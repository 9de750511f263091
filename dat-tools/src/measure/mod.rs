//! Measurements between `dat perf` or `dat ping` and `dat serve`.
//!
//! ```text
//! protocol   what the two processes say when they connect      pattern    bytes that are recognised
//! plan       what is measured, from the arguments              histogram  durations and their percentiles
//! session    the client's connections                          latency, bandwidth   the two ways to measure on them
//! service    the server's side of one connection
//! report     text, comma-separated values, JSON                chart, svg, axis    plots      progress   the bar
//! events     polling for completions, or waiting            interrupt  Ctrl-C
//! ```
//!
//! `protocol`, `pattern`, `plan`, `histogram`, `report`, `chart`, `svg` and `axis` are pure: they neither print nor transfer.

pub(crate) mod axis;
pub(crate) mod bandwidth;
pub(crate) mod chart;
pub(crate) mod events;
pub(crate) mod histogram;
pub(crate) mod interrupt;
pub(crate) mod latency;
pub(crate) mod pattern;
pub(crate) mod plan;
pub(crate) mod progress;
pub(crate) mod protocol;
pub(crate) mod report;
pub(crate) mod service;
pub(crate) mod session;
pub(crate) mod svg;
