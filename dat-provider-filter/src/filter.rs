//! What a filter is told: the calls and events of an IA.

use std::fmt::Debug;
use std::time::Duration;

use dat_abi::types::{DatContext, DatHandle};
use dat_abi::v2_0::types::DatEvent;

use crate::posts::Posted;
use crate::slots::{Call, Slot};

/// A filter of one entry of dat.conf. Threads call it at the same time. It is never called while it could be cancelled
/// (pthread_cancel), and its panics end nothing.
pub(crate) trait Filter: Debug + Send + Sync {
    /// An IA of the entry was opened.
    fn opened(&self) {}

    /// A call begins. The inner provider is not called if there is a code, which the program gets.
    fn before(&self, call: &Call) -> Option<u32> {
        let _ = call;
        None
    }

    /// A call returned `code` after `time`; of a wait, the time includes the sleep.
    fn called(&self, slot: Slot, handle: DatHandle, code: u32, time: Duration) {
        let _ = (slot, handle, code, time);
    }

    /// Runs the post of a request or receive: `inner` posts it and returns its code, which is the result.
    fn post(&self, post: &Post, inner: &mut dyn FnMut() -> Posted<'static>) -> u32 {
        let _ = post;
        inner().code
    }

    /// The program gets this event of the EVD of `call`, unless it is dropped.
    fn event(&self, call: &Call, event: &mut DatEvent) -> Delivery;

    /// The endpoint has no posts any more, because it was reset.
    fn emptied(&self, ep: DatHandle) {
        let _ = ep;
    }

    /// The endpoint is about to be freed.
    fn freed(&self, ep: DatHandle) {
        let _ = ep;
    }

    /// An endpoint was created.
    fn created(&self, ep: DatHandle, endpoint: Endpoint) {
        let _ = (ep, endpoint);
    }

    /// The last IA was closed, or the process ends: the filter writes its report.
    fn report(&self) {}
}

/// What happens with an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Delivery {
    /// The program gets it.
    Pass,
    /// The program does not get it, but the next one.
    Drop,
}

/// `DAT_DTO_RECEIVE` and `DAT_DTO_RECEIVE_WITH_INVALIDATE`, the operations of a completion that end a receive.
pub(crate) const RECEIVES: [u32; 2] = [3, 4];

/// Where the completions of an endpoint go, and its receives come from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    /// EVD of its receives.
    pub(crate) recv_evd: DatHandle,
    /// EVD of its requests.
    pub(crate) request_evd: DatHandle,
    /// SRQ of its receives.
    pub(crate) srq: Option<DatHandle>,
}

/// The queue that a post goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Queue {
    /// Requests of an endpoint, or binds of an RMR.
    Requests(DatHandle),
    /// Receives of an endpoint or SRQ.
    Receives(DatHandle),
}

/// The kind of a post.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Send, with or without invalidation.
    Send,
    /// RDMA Write.
    Write,
    /// RDMA Read.
    Read,
    /// Bind of an RMR.
    Bind,
    /// Receive.
    Receive,
}

impl Operation {
    /// All of them, in the order of their numbers.
    pub(crate) const ALL: [Self; 5] = [
        Self::Send,
        Self::Write,
        Self::Read,
        Self::Bind,
        Self::Receive,
    ];

    /// Returns the word for reports.
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Write => "rdma_write",
            Self::Read => "rdma_read",
            Self::Bind => "rmr_bind",
            Self::Receive => "receive",
        }
    }
}

/// A request or receive that the program posts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Post {
    /// Slot of the call.
    pub(crate) slot: Slot,
    /// Where it goes.
    pub(crate) queue: Queue,
    /// Its kind.
    pub(crate) operation: Operation,
    /// The consumer's cookie, by which its completion is known.
    pub(crate) cookie: DatContext,
}
