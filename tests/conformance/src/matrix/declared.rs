//! Declared refusals of our providers, and their exceptions to statements. [`super::put`] proves each line.

use dat_core::error::Kind;

use super::Provider;
use super::Provider::{Ibverbs, Kernel, Loopback, User};

/// Functions, or ways to call them, that providers refuse.
#[derive(Clone, Copy, Debug)]
pub struct Refusal {
    /// Names as in [`super::rows`].
    pub functions: &'static [&'static str],
    /// The providers that refuse.
    pub providers: &'static [Provider],
    /// `DAT_NOT_IMPLEMENTED` or `DAT_MODEL_NOT_SUPPORTED`.
    pub kind: Kind,
    /// The function that is refused first: the listed functions need its result and are never called.
    pub by: Option<&'static str>,
    /// The reason.
    pub why: &'static str,
}

/// A statement that does not hold on a provider.
#[derive(Clone, Copy, Debug)]
pub struct Exception {
    /// The statement's page.
    pub page: &'static str,
    /// The text of the statement.
    pub says: &'static str,
    /// The providers on which it does not hold.
    pub providers: &'static [Provider],
    /// The actual behaviour, and its reason.
    pub why: &'static str,
}

const EVERY: &[Provider] = &[Ibverbs, Kernel, User, Loopback];

/// Reason of the loopback for statements about two processes.
const ONE_PROCESS: &str = "the loopback connects endpoints of one process";

/// All refusals.
pub static REFUSALS: &[Refusal] = &[
    Refusal {
        functions: &["ep_post_rdma_read_to_rmr"],
        providers: EVERY,
        kind: Kind::ModelNotSupported,
        by: None,
        why: "an RDMA Read of InfiniBand and RoCE writes to a local segment, named by its lmr_context; windows are iWARP's",
    },
    Refusal {
        functions: &["a quality of service", "multipathing"],
        providers: EVERY,
        kind: Kind::ModelNotSupported,
        by: None,
        why: "the provider's attributes offer best effort and one path only",
    },
    Refusal {
        functions: &["a watermark"],
        providers: EVERY,
        kind: Kind::ModelNotSupported,
        by: None,
        why: "no transport reports how many receives an endpoint has taken from its SRQ; DAT_WATERMARK_INFINITE is accepted",
    },
    Refusal {
        functions: &["dat_ib_collective_*"],
        providers: EVERY,
        kind: Kind::NotImplemented,
        by: None,
        why: "collectives need hardware of Mellanox's FCA; the attributes DAT_COLL_* are absent",
    },
];

/// Exceptions that a statement itself allows: it concerns what the provider lacks.
pub(super) static LACKS: &[Exception] = &[
    Exception {
        page: "dat_ep_post_send",
        says: "Without that flag it does not wake that peer.",
        providers: &[Ibverbs, Kernel],
        why: "a verbs completion does not say whether its message was solicited, so a wait ends with each",
    },
    Exception {
        page: "dat_rmr_bind",
        says: "With DAT_VA_TYPE_ZB the peer's addresses begin at 0 in the range of the bind.",
        providers: &[Ibverbs, Kernel, User],
        why: "a window has the addresses of its LMR: DAT_MODEL_NOT_SUPPORTED",
    },
];

/// Exceptions to what a page demands: the statement is broken.
pub(super) static EXCEPTIONS: &[Exception] = &[
    Exception {
        page: "dat_lmr_free",
        says: "A DTO that uses a destroyed LMR fails with a protection violation.",
        providers: &[Ibverbs, Kernel],
        why: "rdma_rxe of Linux 6.1 completes the work request with IBV_WC_REM_OP_ERR: it fails as DAT_DTO_ERR_REMOTE_RESPONDER",
    },
    Exception {
        page: "dat_ep_post_send",
        says: "A message longer than its receive ends in DAT_DTO_ERR_LOCAL_LENGTH there, and the connection breaks.",
        providers: &[Ibverbs, Kernel],
        why: "rdma_rxe of Linux 6.1 completes the receive with IBV_WC_LOC_QP_OP_ERR: it fails as DAT_DTO_ERR_LOCAL_EP",
    },
    Exception {
        page: "dat_ep_post_send",
        says: "A request that fails completes after the requests before it, also if the peer has not answered them.",
        providers: &[Ibverbs, Kernel],
        why: "rdma_rxe of Linux 6.1 repeats nothing after a local failure: the requests before it wait for their answers for ever",
    },
    Exception {
        page: "dat_rmr_bind",
        says: "A peer writes and reads no byte outside of the range of the bind: DAT_DTO_ERR_REMOTE_ACCESS.",
        providers: &[Ibverbs, Kernel],
        why: "rdma_rxe of Linux 6.1 checks the range of the LMR and not that of the window",
    },
    Exception {
        page: "dat_rmr_bind",
        says: "It completes behind the requests that were posted before it.",
        providers: &[Ibverbs, Kernel],
        why: "rdma_rxe of Linux 6.1 repeats nothing behind a bind: the send before it waits for its answer for ever",
    },
    Exception {
        page: "dat_lmr_create",
        says: "With DAT_VA_TYPE_ZB the addresses of the LMR begin at 0, in segments and for a peer.",
        providers: &[Ibverbs, Kernel],
        why: "rdma_rxe registers no memory at address 0 that does not begin with a page: DAT_INVALID_PARAMETER",
    },
    Exception {
        page: "dat_ep_connect",
        says: "Endpoints of two processes connect, and messages go both ways.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
    Exception {
        page: "dat_ep_connect",
        says: "Receives that the active side posted before it connects take what the other process sends.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
    Exception {
        page: "dat_ep_connect",
        says: "An attempt whose peer is killed before it answers ends without ESTABLISHED, at the latest by its timeout.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
    Exception {
        page: "dat_ep_connect",
        says: "After a peer was killed, the same process connects to another one.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
    Exception {
        page: "dat_ep_disconnect",
        says: "The death of the peer's process ends the connection, and all outstanding receives are flushed in order.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
    Exception {
        page: "dat_ep_disconnect",
        says: "A process that sends while its peer is killed lives, and each request completes.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
    Exception {
        page: "dat_ep_disconnect",
        says: "The peer's process ends normally after a disconnect, and a second one is no error.",
        providers: &[Loopback],
        why: ONE_PROCESS,
    },
];
