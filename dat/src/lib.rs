//! RDMA by name: open an interface adapter, then move data without copies.
//!
//! ```
//! use std::time::Duration;
//! use udapl::{Access, Event, Ia, Streams};
//!
//! # fn main() -> Result<(), udapl::Error> {
//! # let server = Ia::open("softrxe-lo")?;
//! # let (pz, requests) = (server.create_pz()?, server.create_evd(8, Streams::CR | Streams::CONNECTION | Streams::DTO)?);
//! # let listener = server.listen(None, &requests)?;
//! # let (address, qualifier) = (server.attributes()?.address, listener.conn_qual());
//! # let accepts = std::thread::spawn(move || {
//! #     let Ok(Event::Request(request)) = requests.wait(Duration::from_secs(60)) else { panic!("no request") };
//! #     let ep = server.endpoint(&pz).recv_evd(&requests).request_evd(&requests).connect_evd(&requests).create().unwrap();
//! #     let memory = pz.allocate(64, Access::LOCAL_WRITE).unwrap();
//! #     ep.post_recv(&[memory.slice(0..64)], 1).unwrap();
//! #     request.accept(&ep, b"").unwrap();
//! #     while !matches!(requests.wait(Duration::from_secs(60)), Ok(Event::Completion(_))) {}
//! #     assert_eq!(memory.to_vec(0..10), b"some bytes");
//! # });
//! let ia = Ia::open("softrxe-lo")?; // a name of dat.conf, or a built-in one
//! let pz = ia.create_pz()?;
//! let region = pz.allocate(4096, Access::ALL)?;
//! let events = ia.create_evd(64, Streams::DTO | Streams::CONNECTION)?;
//! let ep = ia.endpoint(&pz).recv_evd(&events).request_evd(&events).connect_evd(&events).create()?;
//! ep.connect(address, qualifier).private_data(b"hello").start()?; // where a peer listens
//! let Event::Established { .. } = events.wait(Duration::from_secs(60))? else { panic!("refused") };
//! region.write(0, b"some bytes");
//! ep.post_send(&[region.slice(0..10)], 1)?;
//! let Event::Completion(done) = events.wait(Duration::from_secs(60))? else { panic!("no completion") };
//! done.result()?;
//! # accepts.join().unwrap();
//! # Ok(()) }
//! ```
//!
//! **Lifetimes.** Every object keeps the objects that it uses alive. In whatever order a program drops them, an endpoint is freed before
//! its event dispatchers, and these before the adapter. **Memory.** A [`Region`] owns its bytes, because a peer may write them at any time:
//! a program copies them in and out and gets no reference. **Threads.** All types are `Send` and `Sync`. If a name has a `threadsafe`
//! entry, that one is opened. If it has `nonthreadsafe` ones only, as DAPL's are, this crate makes the provider's calls one after the
//! other, and its waits poll. For high rates from several threads see the [tutorial](tutorial#9-several-threads). **Errors** are variants
//! of [`Error`] with the call and the DAT return code. The functions are those of the uDAPL manual pages of the same names
//! (dat_ep_post_send(3DAT) ...).
//!
//! **Begin** with the [`tutorial`].
//!
//! **Futures** are in [`aio`]: the rest of the crate maps calls one to one, and allocates nothing when it posts or polls.
//!
//! **In the source** begin with `ia.rs`; each object has a file, with the method that creates it (`impl Ia { create_pz }` in `pz.rs`).
//! `sys.rs` calls a provider's function table, `extension.rs` the IB extension, `memory` has regions and what keeps them while they are
//! posted. The table of C functions and Rust items is FUNCTIONS.md of the package; the decisions are docs/design/rust-api.md of the
//! repository.

mod agents;
pub mod aio;
mod attributes;
mod builtin;
mod cno;
mod common;
mod contain;
mod counters;
mod datagram;
mod ep;
mod error;
mod evd;
mod event;
mod extension;
mod fields;
#[doc(hidden)]
pub mod handles;
mod hot;
mod ia;
mod ids;
mod limits;
mod listener;
mod memory;
mod names;
mod object;
mod peer;
mod post_error;
mod pz;
mod registry;
mod request;
mod reserved;
mod rmr;
mod segments;
mod serial;
mod srq;
mod sys;
pub mod tutorial;
mod words;

pub use attributes::Attributes;
pub use cno::{Cno, NotifyFd, Proxy, Woken};
pub use common::CommonListener;
/// Groups of counters that are started and stopped together.
///
/// Example: [`Ia::run_counters`].
pub use counters::CounterType;
pub use counters::{Counter, Counters};
/// Names of counters.
///
/// Examples: [`Counters`], [`Counter`].
pub use counters::{EpCounter, EvdCounter, IaCounter};
/// `log::install` writes the messages that `DAT_LOG` requests to standard error.
pub use dat_abi::log;
/// Kinds of asynchronous errors.
///
/// Examples: [`Ia::async_evd`], [`Srq::set_low_watermark`].
pub use dat_core::event::AsyncEvent;
/// Ends of connections and of attempts to connect.
///
/// Examples: [`Connect`], [`aio::Connection::closed`].
pub use dat_core::event::ConnectionEvent;
/// Results of an attempt to find a peer for datagrams.
///
/// Example: [`Ep::post_send_datagram`].
pub use dat_core::event::DatagramEvent;
/// Operations that complete.
///
/// Examples: [`Completion`], [`Ep::post_rdma_write_immediate`].
pub use dat_core::event::DtoOp;
/// Results of operations.
///
/// Examples: [`Completion`], [`Error::is_connection_gone`].
pub use dat_core::event::DtoStatus;
/// Ways to end a connection.
///
/// Example: [`Ep::disconnect`].
pub use dat_core::flags::Close;
/// Flags of posts, and of the completions that notify.
///
/// Examples: [`Ep::post_send_with`], [`Ep::post_rdma_read`], [`EpBuilder`].
pub use dat_core::flags::CompletionFlags;
/// Event streams that a dispatcher takes.
///
/// ```
/// use udapl::{Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let evd = ia.create_evd(16, Streams::DTO | Streams::CONNECTION)?;
/// assert!(evd.post(7).is_err()); // it takes no Streams::SOFTWARE
/// # Ok(())
/// # }
/// ```
pub use dat_core::flags::EvdFlags as Streams;
/// Rights of a region or window. [`Access::ALL`] is the specification's set (`DAT_MEM_PRIV_ALL_FLAG`): local and remote reads and
/// writes, **without atomics**. A peer's atomics need `Access::ALL | Access::REMOTE_ATOMIC`, which is what `Access::all()` returns.
/// Adapters may send from a region without `LOCAL_READ`; they check the other rights.
///
/// ```
/// use udapl::Access;
///
/// let for_readers = Access::LOCAL_WRITE | Access::REMOTE_READ;
/// assert!(!for_readers.contains(Access::REMOTE_WRITE));
/// assert!(!Access::ALL.contains(Access::REMOTE_ATOMIC));
/// assert_eq!(Access::all(), Access::ALL | Access::REMOTE_ATOMIC);
/// ```
pub use dat_core::flags::MemPriv as Access;
pub use datagram::DATAGRAM_HEADER;
/// States of an endpoint.
///
/// Examples: [`Ep`], [`EpInfo`].
pub use ep::EpState;
pub use ep::{Changes, Connect, Ep, EpBuilder, EpInfo, EpLimits, ReceiveUse};
/// Reasons why a name cannot be opened.
///
/// Example: [`Ia::open`].
pub use error::LookupError;
/// Return codes of the specification: kind and subtype.
///
/// Example: [`Error::code`].
pub use error::{Code, Kind, Subtype};
pub use error::{Error, Queue, Result};
pub use evd::{Evd, EvdInfo};
pub use event::{Completion, Event};
pub use fields::{AllAttributes, Field};
pub use ia::{Ia, attributes_of};
pub use ids::EpId;
pub use listener::Listener;
pub use memory::region::{Region, RegionInfo, Slice};
pub use memory::remote::Remote;
pub use memory::source::Memory;
pub use names::{built_in, configured};
pub use object::{Object, ObjectKind};
pub use peer::Peer;
pub use post_error::{PollError, PostCall, PostError};
pub use pz::Pz;
pub use request::ConnRequest;
pub use reserved::ReservedListener;
pub use rmr::{Rmr, RmrInfo};
pub use srq::{Srq, SrqInfo};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
