//! The functions in the slots of both tables: their arguments, and the types of return code that their manual pages
//! name.

use dat_core::error::{Kind, Subtype};

use crate::api::Api;

/// Kind of object of a handle.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(missing_docs, reason = "the specification's names")]
pub enum Thing {
    Ia,
    Pz,
    Evd,
    Cno,
    Ep,
    Lmr,
    Rmr,
    Psp,
    Rsp,
    Csp,
    Cr,
    Srq,
}

/// One argument of a C function. Argument numbers in errors count these.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arg {
    /// A handle; any other value is `DAT_INVALID_HANDLE` with this subtype.
    Handle(Thing, Subtype),
    /// The same, or NULL for none.
    Optional(Thing, Subtype),
    /// A handle of any kind.
    Any,
    /// Pointer to the handle of a new object.
    Made(Thing),
    /// Pointer to a result.
    Out,
    /// Pointer to a result, or NULL.
    Maybe,
    /// `DAT_COUNT`, not negative, with a valid value.
    Count(i32),
    /// `DAT_COUNT`, positive.
    Positive,
    /// `DAT_COUNT` that may be negative: a watermark.
    Mark,
    /// Flags or an enumeration: a valid and an invalid value.
    Word(u32, u32),
    /// Any value: a mask, a cookie, a context.
    Free,
    /// A mask of the requested fields; 0 requests none.
    Mask,
    /// `DAT_TIMEOUT` of a wait.
    Timeout,
    /// `DAT_TIMEOUT` of a connection attempt: 0 is invalid.
    Attempt,
    /// `DAT_CONN_QUAL`.
    Qual,
    /// Number of segments; the array follows.
    Segments,
    /// An array of `DAT_LMR_TRIPLET`, whose length is the argument before it.
    Iov,
    /// The same, followed by its length in 64 bits.
    Synced,
    /// The 64-bit length of the array before it.
    SyncedCount,
    /// A `DAT_LMR_TRIPLET`.
    Local,
    /// A `DAT_RMR_TRIPLET`.
    Remote,
    /// Size of the private data that follow.
    DataSize,
    /// Private data, whose size is the argument before them.
    Data,
    /// `DAT_IA_ADDRESS_PTR`.
    Address,
    /// `DAT_COMM`.
    Comm,
    /// A software event.
    Event,
    /// `DAT_EP_ATTR`, or NULL.
    EpAttr,
    /// The mask of dat_ep_modify; the structure follows.
    EpMask,
    /// `DAT_EP_PARAM`.
    EpParam,
    /// `DAT_SRQ_ATTR`.
    SrqAttr,
    /// `DAT_MEM_TYPE`; region and length follow.
    MemType,
    /// `DAT_REGION_DESCRIPTION`: two words.
    Region,
    /// Number of bytes to register.
    Length,
    /// `DAT_OS_WAIT_PROXY_AGENT`: two words.
    Agent,
    /// The name of an IA.
    Name,
    /// In and out: the asynchronous EVD of dat_ia_open.
    AsyncEvd,
    /// A C string that names another IA.
    Other,
}

/// A function of the API.
#[derive(Clone, Copy, Debug)]
pub struct Function {
    /// Name of the function without `dat_`.
    pub name: &'static str,
    /// The version, if the function exists in one only or has another prototype there.
    pub only: Option<Api>,
    /// Its arguments.
    pub args: &'static [Arg],
    /// Types of return code besides those of invalid handles and parameters.
    pub codes: &'static [Kind],
}

/// Types of return code that every function may return.
const COMMON: &[Kind] = &[Kind::InvalidHandle, Kind::InvalidParameter];

impl Function {
    /// Returns true if a version has the function.
    pub fn is_of(&self, version: Api) -> bool {
        self.only.is_none_or(|only| only == version)
    }

    /// Returns true if the manual page names the type of return code.
    pub fn may_answer(&self, kind: Kind) -> bool {
        COMMON.contains(&kind) || self.codes.contains(&kind)
    }
}

macro_rules! functions {
    ($($(#[$only:ident])? $name:ident($($arg:expr),*) $(: $($code:ident)|+)?;)*) => {
        &[$(Function {
            name: stringify!($name),
            only: functions!(@only $($only)?),
            args: &[$($arg),*],
            codes: &[$($(Kind::$code),+)?],
        }),*]
    };
    (@only) => { None };
    (@only $only:ident) => { Some(Api::$only) };
}

use Arg::{
    Address, Agent, Any, AsyncEvd, Attempt, Comm, Count, Data, DataSize, EpAttr, EpMask, EpParam,
    Event, Free, Handle, Iov, Length, Local, Made, Mark, Mask, Maybe, MemType, Name, Optional,
    Other, Out, Positive, Qual, Region, Remote, Segments, SrqAttr, Synced, SyncedCount, Timeout,
    Word,
};

const IA: Arg = Handle(Thing::Ia, Subtype::InvalidHandleIa);
const PZ: Arg = Handle(Thing::Pz, Subtype::InvalidHandlePz);
/// The EVD of dat_evd_*; no subtype exists for "an EVD".
const EVD: Arg = Handle(Thing::Evd, Subtype::InvalidHandle1);
const CR_EVD: Arg = Handle(Thing::Evd, Subtype::InvalidHandleEvdCr);
const CNO: Arg = Handle(Thing::Cno, Subtype::InvalidHandleCno);
const EP: Arg = Handle(Thing::Ep, Subtype::InvalidHandleEp);
const LMR: Arg = Handle(Thing::Lmr, Subtype::InvalidHandleLmr);
const RMR: Arg = Handle(Thing::Rmr, Subtype::InvalidHandleRmr);
const PSP: Arg = Handle(Thing::Psp, Subtype::InvalidHandlePsp);
const RSP: Arg = Handle(Thing::Rsp, Subtype::InvalidHandleRsp);
const CSP: Arg = Handle(Thing::Csp, Subtype::InvalidHandleCsp);
const CR: Arg = Handle(Thing::Cr, Subtype::InvalidHandleCr);
const SRQ: Arg = Handle(Thing::Srq, Subtype::InvalidHandleSrq);
const NO_PZ: Arg = Optional(Thing::Pz, Subtype::InvalidHandlePz);
const NO_CNO: Arg = Optional(Thing::Cno, Subtype::InvalidHandleCno);
const NO_EP: Arg = Optional(Thing::Ep, Subtype::InvalidHandleEp);
const RECV: Arg = Optional(Thing::Evd, Subtype::InvalidHandleEvdRecv);
const REQUEST: Arg = Optional(Thing::Evd, Subtype::InvalidHandleEvdRequest);
const CONNECT: Arg = Optional(Thing::Evd, Subtype::InvalidHandleEvdConn);

const CLOSE: Arg = Word(0, 2);
const PSP_FLAGS: Arg = Word(0, 2);
const EVD_FLAGS: Arg = Word(0x001, 0x400);
/// DAT_MEM_PRIV_ALL_FLAG.
const RIGHTS: Arg = Word(0x33, 0x100);
const VA_TYPE: Arg = Word(0, 2);
const COMPLETION: Arg = Word(0, 0x100);
/// Quality of service: any but best effort is an unsupported model.
const QOS: Arg = Free;

/// Every function of both tables.
pub const FUNCTIONS: &[Function] = functions! {
    // BEGIN slots.txt: probes
    ia_open(Name, Count(8), AsyncEvd, Made(Thing::Ia)):
        InsufficientResources | ProviderNotFound | InvalidAddress | InvalidState;
    ia_query(IA, Maybe, Mask, Out, Mask, Out);
    ia_close(IA, CLOSE):
        InvalidState;
    set_consumer_context(Any, Free);
    get_consumer_context(Any, Out);
    get_handle_type(Any, Out);
    cno_create(IA, Agent, Made(Thing::Cno)):
        InsufficientResources;
    cno_modify_agent(CNO, Agent);
    cno_query(CNO, Free, Out);
    cno_free(CNO):
        InvalidState;
    cno_wait(CNO, Timeout, Out):
        QueueEmpty | TimeoutExpired | InterruptedCall | InvalidState | Abort;
    cr_query(CR, Free, Out);
    cr_accept(CR, NO_EP, DataSize, Data):
        InvalidState | InsufficientResources;
    #[V1_2] cr_reject(CR);
    #[V2_0] cr_reject(CR, DataSize, Data);
    cr_handoff(CR, Qual):
        ConnQualUnavailable | InsufficientResources | InvalidState;
    evd_create(IA, Count(16), NO_CNO, EVD_FLAGS, Made(Thing::Evd)):
        InsufficientResources | InvalidState;
    evd_query(EVD, Free, Out);
    evd_modify_cno(EVD, NO_CNO):
        InvalidState;
    evd_enable(EVD);
    evd_disable(EVD);
    evd_wait(EVD, Timeout, Positive, Out, Out):
        TimeoutExpired | InterruptedCall | InvalidState | Abort;
    evd_resize(EVD, Count(32)):
        InsufficientResources | InvalidState;
    evd_post_se(EVD, Event):
        QueueFull | InvalidState;
    evd_dequeue(EVD, Out):
        QueueEmpty | InvalidState;
    evd_free(EVD):
        InvalidState;
    ep_create(IA, NO_PZ, RECV, REQUEST, CONNECT, EpAttr, Made(Thing::Ep)):
        InsufficientResources | ModelNotSupported | InvalidState;
    ep_query(EP, Free, Out);
    ep_modify(EP, EpMask, EpParam):
        InvalidState | InsufficientResources | ModelNotSupported;
    ep_connect(EP, Address, Qual, Attempt, DataSize, Data, QOS, Free):
        InvalidState | InsufficientResources | InvalidAddress | ModelNotSupported;
    ep_dup_connect(EP, EP, Attempt, DataSize, Data, QOS):
        InvalidState | InsufficientResources | InvalidAddress | ModelNotSupported;
    ep_disconnect(EP, CLOSE):
        InvalidState | InsufficientResources;
    ep_post_send(EP, Segments, Iov, Free, COMPLETION):
        InvalidState | InsufficientResources | LengthError | ProtectionViolation | PrivilegesViolation;
    ep_post_recv(EP, Segments, Iov, Free, COMPLETION):
        InvalidState | InsufficientResources | LengthError | ProtectionViolation | PrivilegesViolation;
    ep_post_rdma_read(EP, Segments, Iov, Free, Remote, COMPLETION):
        InvalidState | InsufficientResources | LengthError | ProtectionViolation | PrivilegesViolation;
    ep_post_rdma_write(EP, Segments, Iov, Free, Remote, COMPLETION):
        InvalidState | InsufficientResources | LengthError | ProtectionViolation | PrivilegesViolation;
    ep_get_status(EP, Maybe, Maybe, Maybe);
    ep_free(EP):
        InvalidState;
    #[V1_2] lmr_create(IA, MemType, Region, Length, PZ, RIGHTS, Made(Thing::Lmr), Maybe, Maybe, Maybe, Maybe):
        InsufficientResources | LengthError | InvalidState | ModelNotSupported | PrivilegesViolation;
    #[V2_0] lmr_create(IA, MemType, Region, Length, PZ, RIGHTS, VA_TYPE, Made(Thing::Lmr), Maybe, Maybe, Maybe, Maybe):
        InsufficientResources | LengthError | InvalidState | ModelNotSupported | PrivilegesViolation;
    lmr_query(LMR, Free, Out);
    lmr_free(LMR):
        InvalidState;
    rmr_create(PZ, Made(Thing::Rmr)):
        InsufficientResources | ModelNotSupported | NotImplemented;
    rmr_query(RMR, Free, Out);
    #[V1_2] rmr_bind(RMR, Local, RIGHTS, EP, Free, COMPLETION, Out):
        InvalidState | InsufficientResources | ProtectionViolation | PrivilegesViolation | ModelNotSupported;
    #[V2_0] rmr_bind(RMR, LMR, Local, RIGHTS, VA_TYPE, EP, Free, COMPLETION, Out):
        InvalidState | InsufficientResources | ProtectionViolation | PrivilegesViolation | ModelNotSupported;
    rmr_free(RMR):
        InvalidState;
    psp_create(IA, Qual, CR_EVD, PSP_FLAGS, Made(Thing::Psp)):
        InsufficientResources | ConnQualInUse | ModelNotSupported | InvalidState;
    psp_query(PSP, Free, Out);
    psp_free(PSP):
        InvalidState;
    rsp_create(IA, Qual, EP, CR_EVD, Made(Thing::Rsp)):
        InsufficientResources | ConnQualInUse | InvalidState;
    rsp_query(RSP, Free, Out);
    rsp_free(RSP):
        InvalidState;
    pz_create(IA, Made(Thing::Pz)):
        InsufficientResources;
    pz_query(PZ, Free, Out);
    pz_free(PZ):
        InvalidState;
    psp_create_any(IA, Out, CR_EVD, PSP_FLAGS, Made(Thing::Psp)):
        InsufficientResources | ConnQualUnavailable | ModelNotSupported | InvalidState;
    ep_reset(EP):
        InvalidState;
    evd_set_unwaitable(EVD);
    evd_clear_unwaitable(EVD):
        InvalidState;
    lmr_sync_rdma_read(IA, Synced, SyncedCount);
    lmr_sync_rdma_write(IA, Synced, SyncedCount);
    ep_create_with_srq(IA, NO_PZ, RECV, REQUEST, CONNECT, SRQ, EpAttr, Made(Thing::Ep)):
        InsufficientResources | ModelNotSupported | InvalidState;
    ep_recv_query(EP, Maybe, Maybe):
        InvalidState | ModelNotSupported;
    ep_set_watermark(EP, Mark, Mark):
        InvalidState | ModelNotSupported;
    srq_create(IA, PZ, SrqAttr, Made(Thing::Srq)):
        InsufficientResources | ModelNotSupported | InvalidState;
    srq_free(SRQ):
        InvalidState;
    srq_post_recv(SRQ, Segments, Iov, Free):
        InsufficientResources | LengthError | ProtectionViolation | PrivilegesViolation | InvalidState;
    srq_query(SRQ, Free, Out);
    srq_resize(SRQ, Count(8)):
        InsufficientResources | InvalidState | NotImplemented;
    srq_set_lw(SRQ, Count(1)):
        ModelNotSupported;
    #[V2_0] csp_create(IA, Comm, Address, CR_EVD, Made(Thing::Csp)):
        InsufficientResources | CommNotSupported | InvalidAddress | PortInUse | ConnQualUnavailable | InvalidState;
    #[V2_0] csp_query(CSP, Free, Out);
    #[V2_0] csp_free(CSP):
        InvalidState;
    #[V2_0] ep_common_connect(EP, Address, Attempt, DataSize, Data):
        InvalidState | InsufficientResources | InvalidAddress | ModelNotSupported;
    #[V2_0] rmr_create_for_ep(PZ, Made(Thing::Rmr)):
        InsufficientResources | ModelNotSupported | NotImplemented;
    #[V2_0] ep_post_send_with_invalidate(EP, Segments, Iov, Free, COMPLETION, Free, Free):
        InvalidState | InsufficientResources | LengthError | ModelNotSupported | NotImplemented;
    #[V2_0] ep_post_rdma_read_to_rmr(EP, Remote, Free, Remote, COMPLETION):
        InvalidState | InsufficientResources | LengthError | ModelNotSupported | NotImplemented;
    #[V2_0] cno_fd_create(IA, Out, Made(Thing::Cno)):
        InsufficientResources;
    #[V2_0] cno_trigger(CNO, Out):
        TimeoutExpired | InvalidState | QueueEmpty | InterruptedCall;
    #[V2_0] ia_ha_related(IA, Other, Out);
    // END slots.txt
};
