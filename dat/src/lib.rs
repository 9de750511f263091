//! A safe Rust API for DAT: open an interface adapter by name, then move data without copies.
//!
//! ```no_run
//! use dat::{Access, Ia, Streams};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), dat::Error> {
//! let ia = Ia::open("softrxe")?; // a name from dat.conf
//! let pz = ia.create_pz()?;
//! let region = pz.allocate(4096, Access::all())?;
//! let events = ia.create_evd(64, Streams::DTO | Streams::CONNECTION)?;
//! let ep = ia.endpoint(&pz).recv_evd(&events).request_evd(&events).connect_evd(&events).create()?;
//! ep.connect("10.9.0.1".parse().unwrap(), 4000).private_data(b"hello").start()?;
//! let event = events.wait(Duration::from_secs(5))?;
//! region.write(0, b"some bytes");
//! ep.post_send(&[region.slice(0..10)], 1)?;
//! # Ok(()) }
//! ```
//!
//! **Lifetimes.** Every object keeps the objects that it uses alive. In whatever order a program drops them, an endpoint is freed
//! before its event dispatchers, and these before the adapter. **Memory.** A [`Region`] owns its bytes, because a peer may write them
//! at any time: a program copies them in and out and gets no reference. **Threads.** All types are `Send` and `Sync`. A name
//! with a `threadsafe` entry opens that one; of a provider that is only marked `nonthreadsafe`, as DAPL's are, this crate makes the
//! calls one after the other, and its waits poll. **Errors** contain the call and the DAT return code. The functions are those of the
//! uDAPL manual pages of the same names (dat_ep_post_send(3DAT) ...).
//!
//! **In the source** begin with `ia.rs`; each object has a file, with the method that creates it (`impl Ia { create_pz }` in `pz.rs`).
//! `sys.rs` calls a provider's function table, `extension.rs` the IB extension. Other unsafe code reads C structures
//! (`ia.rs`, `evd.rs`, `request.rs`, `common.rs`, `counters.rs`) or copies memory (`region.rs`). The crate imports dat-registry (opening by name), dat-abi (C types), dat-core (enums and flags) and dat-os.
//!
//! **Not in this API** are these functions of uDAPL 2.0. C programs call them through libdat2, on the same providers:
//!
//! | objects | functions |
//! |---|---|
//! | IA | dat_ia_ha_related, dat_registry_list_providers ([`configured`] is similar), dat_registry_providers_related |
//! | EVD | dat_evd_resize, _query, _enable, _disable, _set_unwaitable, _clear_unwaitable, _modify_cno; a threshold above 1 in dat_evd_wait |
//! | CNO | all: notification of several dispatchers at once, agents, descriptors (dat_cno_fd_create) |
//! | EP | dat_ep_query, _modify, _dup_connect, _recv_query, _set_watermark, _post_rdma_read_to_rmr; quality of service other than best effort |
//! | SRQ, RSP | all; dat_cr_handoff |
//! | LMR, RMR | regions of existing memory, of another region, or shared between processes; dat_lmr_query, dat_lmr_sync_*, dat_rmr_query |
//! | any | consumer contexts, dat_get_handle_type |
//! | IB extension | immediate data, atomics, datagrams; queries of adapters that are not open |

mod common;
mod counters;
mod ep;
mod error;
mod evd;
mod extension;
mod ia;
mod listener;
mod pz;
mod region;
mod request;
mod rmr;
mod serial;
mod sys;

// `log::install` writes the messages that `DAT_LOG` requests to standard error.
pub use common::CommonListener;
pub use counters::{Counter, CounterType, Counters, EpCounter, EvdCounter, IaCounter};
pub use dat_abi::log;
pub use dat_core::event::{AsyncEvent, ConnectionEvent, DtoOp, DtoStatus};
pub use dat_core::flags::{Close, CompletionFlags, EvdFlags as Streams, MemPriv as Access};
pub use ep::{Connect, Ep, EpBuilder, EpState};
pub use error::{Error, Result};
pub use evd::{Completion, Evd, Event};
pub use ia::{Attributes, Ia, configured};
pub use listener::Listener;
pub use pz::Pz;
pub use region::{Region, Remote, Slice};
pub use request::ConnRequest;
pub use rmr::Rmr;
