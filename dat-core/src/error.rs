//! DAT return codes as types: class, type and subtype. The numbers are those of `dat_error.h` of 2.0; `dat-abi` converts them to
//! those of 1.2.

use std::fmt;
use std::num::NonZeroU32;

/// Result of a DAT operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An unsuccessful DAT return: a type and a subtype.
///
/// Two codes exist with and without the error class bit, because programs compare the whole code: an empty EVD with a completion
/// queue returns `DAT_QUEUE_EMPTY` without the bit. [`Error::without_class`] builds such a value.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Error(NonZeroU32);

const CLASS_ERROR: u32 = 0x8000_0000;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// The type part of a return code (`DAT_RETURN_TYPE`).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u32)]
        pub enum Kind { $($(#[$doc])* $name = $value,)* }
        impl Kind {
            /// All types, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// Returns the C name, such as `DAT_INVALID_HANDLE`.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$name => $text,)* } }
        }
    };
}

kinds! {
    /// The IA was closed or the EVD destroyed during the call.
    Abort = 0x0001_0000, "DAT_ABORT";
    /// The connection qualifier is in use.
    ConnQualInUse = 0x0002_0000, "DAT_CONN_QUAL_IN_USE";
    /// Memory or a device resource is exhausted.
    InsufficientResources = 0x0003_0000, "DAT_INSUFFICIENT_RESOURCES";
    /// The provider failed.
    InternalError = 0x0004_0000, "DAT_INTERNAL_ERROR";
    /// The handle is NULL, freed, of another provider, or of another kind of object.
    InvalidHandle = 0x0005_0000, "DAT_INVALID_HANDLE";
    /// A parameter is out of range; the subtype names the argument.
    InvalidParameter = 0x0006_0000, "DAT_INVALID_PARAMETER";
    /// The object is in a state that forbids the operation; the subtype names the state.
    InvalidState = 0x0007_0000, "DAT_INVALID_STATE";
    /// A buffer or message is too long.
    LengthError = 0x0008_0000, "DAT_LENGTH_ERROR";
    /// The requested model is not supported.
    ModelNotSupported = 0x0009_0000, "DAT_MODEL_NOT_SUPPORTED";
    /// The registry has no entry of this name.
    ProviderNotFound = 0x000a_0000, "DAT_PROVIDER_NOT_FOUND";
    /// The LMR lacks the privilege.
    PrivilegesViolation = 0x000b_0000, "DAT_PRIVILEGES_VIOLATION";
    /// The objects are in different protection zones.
    ProtectionViolation = 0x000c_0000, "DAT_PROTECTION_VIOLATION";
    /// The queue is empty.
    QueueEmpty = 0x000d_0000, "DAT_QUEUE_EMPTY";
    /// The event queue is full.
    QueueFull = 0x000e_0000, "DAT_QUEUE_FULL";
    /// The timeout has expired.
    TimeoutExpired = 0x000f_0000, "DAT_TIMEOUT_EXPIRED";
    /// The name is registered already.
    ProviderAlreadyRegistered = 0x0010_0000, "DAT_PROVIDER_ALREADY_REGISTERED";
    /// The provider has open IAs.
    ProviderInUse = 0x0011_0000, "DAT_PROVIDER_IN_USE";
    /// The address cannot be reached.
    InvalidAddress = 0x0012_0000, "DAT_INVALID_ADDRESS";
    /// A signal or an unwaitable EVD ended the wait.
    InterruptedCall = 0x0013_0000, "DAT_INTERRUPTED_CALL";
    /// All connection qualifiers are in use.
    ConnQualUnavailable = 0x0014_0000, "DAT_CONN_QUAL_UNAVAILABLE";
    /// The IP port is in use (2.0).
    PortInUse = 0x0016_0000, "DAT_PORT_IN_USE";
    /// The `DAT_COMM` is not supported (2.0).
    CommNotSupported = 0x0017_0000, "DAT_COMM_NOT_SUPPORTED";
    /// The provider does not have this operation.
    NotImplemented = 0x3fff_0000, "DAT_NOT_IMPLEMENTED";
}

macro_rules! subtypes {
    ($($name:ident $text:literal),* $(,)?) => {
        /// The subtype part of a return code (`DAT_RETURN_SUBTYPE`), numbered as in `dat_error.h`.
        #[allow(missing_docs, reason = "each variant has the name of the specification without its prefix")]
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u16)]
        pub enum Subtype { $($name,)* }
        impl Subtype {
            /// All subtypes, in the order of the specification.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
            /// Returns the C name, such as `DAT_INVALID_HANDLE_EP`.
            #[must_use]
            pub const fn name(self) -> &'static str { match self { $(Self::$name => $text,)* } }
        }
    };
}

subtypes! {
    NoSubtype "DAT_NO_SUBTYPE",
    SubInterrupted "DAT_SUB_INTERRUPTED",
    ResourceMemory "DAT_RESOURCE_MEMORY",
    ResourceDevice "DAT_RESOURCE_DEVICE",
    ResourceTep "DAT_RESOURCE_TEP",
    ResourceTevd "DAT_RESOURCE_TEVD",
    ResourceProtectionDomain "DAT_RESOURCE_PROTECTION_DOMAIN",
    ResourceMemoryRegion "DAT_RESOURCE_MEMORY_REGION",
    ResourceErrorHandler "DAT_RESOURCE_ERROR_HANDLER",
    ResourceCredits "DAT_RESOURCE_CREDITS",
    ResourceSrq "DAT_RESOURCE_SRQ",
    InvalidHandleIa "DAT_INVALID_HANDLE_IA",
    InvalidHandleEp "DAT_INVALID_HANDLE_EP",
    InvalidHandleLmr "DAT_INVALID_HANDLE_LMR",
    InvalidHandleRmr "DAT_INVALID_HANDLE_RMR",
    InvalidHandlePz "DAT_INVALID_HANDLE_PZ",
    InvalidHandlePsp "DAT_INVALID_HANDLE_PSP",
    InvalidHandleRsp "DAT_INVALID_HANDLE_RSP",
    InvalidHandleCr "DAT_INVALID_HANDLE_CR",
    InvalidHandleCno "DAT_INVALID_HANDLE_CNO",
    InvalidHandleEvdCr "DAT_INVALID_HANDLE_EVD_CR",
    InvalidHandleEvdRequest "DAT_INVALID_HANDLE_EVD_REQUEST",
    InvalidHandleEvdRecv "DAT_INVALID_HANDLE_EVD_RECV",
    InvalidHandleEvdConn "DAT_INVALID_HANDLE_EVD_CONN",
    InvalidHandleEvdAsync "DAT_INVALID_HANDLE_EVD_ASYNC",
    InvalidHandleSrq "DAT_INVALID_HANDLE_SRQ",
    InvalidHandleCsp "DAT_INVALID_HANDLE_CSP",
    InvalidHandle1 "DAT_INVALID_HANDLE1",
    InvalidHandle2 "DAT_INVALID_HANDLE2",
    InvalidHandle3 "DAT_INVALID_HANDLE3",
    InvalidHandle4 "DAT_INVALID_HANDLE4",
    InvalidHandle5 "DAT_INVALID_HANDLE5",
    InvalidHandle6 "DAT_INVALID_HANDLE6",
    InvalidHandle7 "DAT_INVALID_HANDLE7",
    InvalidHandle8 "DAT_INVALID_HANDLE8",
    InvalidHandle9 "DAT_INVALID_HANDLE9",
    InvalidHandle10 "DAT_INVALID_HANDLE10",
    InvalidArg1 "DAT_INVALID_ARG1",
    InvalidArg2 "DAT_INVALID_ARG2",
    InvalidArg3 "DAT_INVALID_ARG3",
    InvalidArg4 "DAT_INVALID_ARG4",
    InvalidArg5 "DAT_INVALID_ARG5",
    InvalidArg6 "DAT_INVALID_ARG6",
    InvalidArg7 "DAT_INVALID_ARG7",
    InvalidArg8 "DAT_INVALID_ARG8",
    InvalidArg9 "DAT_INVALID_ARG9",
    InvalidArg10 "DAT_INVALID_ARG10",
    InvalidStateEpUnconnected "DAT_INVALID_STATE_EP_UNCONNECTED",
    InvalidStateEpActconnpending "DAT_INVALID_STATE_EP_ACTCONNPENDING",
    InvalidStateEpPassconnpending "DAT_INVALID_STATE_EP_PASSCONNPENDING",
    InvalidStateEpTentconnpending "DAT_INVALID_STATE_EP_TENTCONNPENDING",
    InvalidStateEpConnected "DAT_INVALID_STATE_EP_CONNECTED",
    InvalidStateEpDisconnected "DAT_INVALID_STATE_EP_DISCONNECTED",
    InvalidStateEpReserved "DAT_INVALID_STATE_EP_RESERVED",
    InvalidStateEpComplpending "DAT_INVALID_STATE_EP_COMPLPENDING",
    InvalidStateEpDiscpending "DAT_INVALID_STATE_EP_DISCPENDING",
    InvalidStateEpProvidercontrol "DAT_INVALID_STATE_EP_PROVIDERCONTROL",
    InvalidStateEpNotready "DAT_INVALID_STATE_EP_NOTREADY",
    InvalidStateEpRecvWatermark "DAT_INVALID_STATE_EP_RECV_WATERMARK",
    InvalidStateEpPz "DAT_INVALID_STATE_EP_PZ",
    InvalidStateEpEvdRequest "DAT_INVALID_STATE_EP_EVD_REQUEST",
    InvalidStateEpEvdRecv "DAT_INVALID_STATE_EP_EVD_RECV",
    InvalidStateEpEvdConnect "DAT_INVALID_STATE_EP_EVD_CONNECT",
    InvalidStateEpUnconfigured "DAT_INVALID_STATE_EP_UNCONFIGURED",
    InvalidStateEpUnconfreserved "DAT_INVALID_STATE_EP_UNCONFRESERVED",
    InvalidStateEpUnconfpassive "DAT_INVALID_STATE_EP_UNCONFPASSIVE",
    InvalidStateEpUnconftentative "DAT_INVALID_STATE_EP_UNCONFTENTATIVE",
    InvalidStateCnoInUse "DAT_INVALID_STATE_CNO_IN_USE",
    InvalidStateCnoDead "DAT_INVALID_STATE_CNO_DEAD",
    InvalidStateEvdOpen "DAT_INVALID_STATE_EVD_OPEN",
    InvalidStateEvdEnabled "DAT_INVALID_STATE_EVD_ENABLED",
    InvalidStateEvdDisabled "DAT_INVALID_STATE_EVD_DISABLED",
    InvalidStateEvdWaitable "DAT_INVALID_STATE_EVD_WAITABLE",
    InvalidStateEvdUnwaitable "DAT_INVALID_STATE_EVD_UNWAITABLE",
    InvalidStateEvdInUse "DAT_INVALID_STATE_EVD_IN_USE",
    InvalidStateEvdConfigNotify "DAT_INVALID_STATE_EVD_CONFIG_NOTIFY",
    InvalidStateEvdConfigSolicited "DAT_INVALID_STATE_EVD_CONFIG_SOLICITED",
    InvalidStateEvdConfigThreshold "DAT_INVALID_STATE_EVD_CONFIG_THRESHOLD",
    InvalidStateEvdWaiter "DAT_INVALID_STATE_EVD_WAITER",
    InvalidStateEvdAsync "DAT_INVALID_STATE_EVD_ASYNC",
    InvalidStateIaInUse "DAT_INVALID_STATE_IA_IN_USE",
    InvalidStateLmrInUse "DAT_INVALID_STATE_LMR_IN_USE",
    InvalidStateLmrFree "DAT_INVALID_STATE_LMR_FREE",
    InvalidStatePzInUse "DAT_INVALID_STATE_PZ_IN_USE",
    InvalidStatePzFree "DAT_INVALID_STATE_PZ_FREE",
    InvalidStateSrqOperational "DAT_INVALID_STATE_SRQ_OPERATIONAL",
    InvalidStateSrqError "DAT_INVALID_STATE_SRQ_ERROR",
    InvalidStateSrqInUse "DAT_INVALID_STATE_SRQ_IN_USE",
    InvalidStateSrqShutdown "DAT_INVALID_STATE_SRQ_SHUTDOWN",
    PrivilegesRead "DAT_PRIVILEGES_READ",
    PrivilegesWrite "DAT_PRIVILEGES_WRITE",
    PrivilegesRdmaRead "DAT_PRIVILEGES_RDMA_READ",
    PrivilegesRdmaWrite "DAT_PRIVILEGES_RDMA_WRITE",
    ProtectionRead "DAT_PROTECTION_READ",
    ProtectionWrite "DAT_PROTECTION_WRITE",
    ProtectionRdmaRead "DAT_PROTECTION_RDMA_READ",
    ProtectionRdmaWrite "DAT_PROTECTION_RDMA_WRITE",
    InvalidAddressUnsupported "DAT_INVALID_ADDRESS_UNSUPPORTED",
    InvalidAddressUnreachable "DAT_INVALID_ADDRESS_UNREACHABLE",
    InvalidAddressMalformed "DAT_INVALID_ADDRESS_MALFORMED",
    NameNotRegistered "DAT_NAME_NOT_REGISTERED",
    MajorNotFound "DAT_MAJOR_NOT_FOUND",
    MinorNotFound "DAT_MINOR_NOT_FOUND",
    ThreadSafetyNotFound "DAT_THREAD_SAFETY_NOT_FOUND",
}

impl Error {
    /// Builds an error from its code, which is never 0 (`DAT_SUCCESS`); therefore a `Result<()>` is as small as a `DAT_RETURN`.
    const fn nonzero(code: u32) -> Self {
        match NonZeroU32::new(code) {
            Some(code) => Self(code),
            None => panic!("an error has a type"),
        }
    }

    /// Builds a code with the error class bit.
    #[must_use]
    pub const fn new(kind: Kind, subtype: Subtype) -> Self {
        Self::nonzero(CLASS_ERROR | kind as u32 | subtype as u32)
    }

    /// Builds a code of `kind` without a subtype.
    #[must_use]
    pub const fn of(kind: Kind) -> Self {
        Self::new(kind, Subtype::NoSubtype)
    }

    /// Returns the same type and subtype without the error class bit, for the codes that C programs expect without it.
    #[must_use]
    pub const fn without_class(self) -> Self {
        Self::nonzero(self.0.get() & !CLASS_ERROR)
    }

    /// Builds `DAT_INVALID_HANDLE` with the subtype that names the kind of handle.
    #[must_use]
    pub const fn handle(subtype: Subtype) -> Self {
        Self::new(Kind::InvalidHandle, subtype)
    }

    /// Builds `DAT_INVALID_PARAMETER` for argument `number`, counted from 1 as in the C prototype.
    #[must_use]
    pub const fn arg(number: u16) -> Self {
        Self::nonzero(
            CLASS_ERROR
                | Kind::InvalidParameter as u32
                | (Subtype::InvalidArg1 as u32 + number as u32 - 1),
        )
    }

    /// Builds `DAT_INVALID_STATE` with the subtype that names the state.
    #[must_use]
    pub const fn state(subtype: Subtype) -> Self {
        Self::new(Kind::InvalidState, subtype)
    }

    /// Builds `DAT_INSUFFICIENT_RESOURCES` with the exhausted resource.
    #[must_use]
    pub const fn resource(subtype: Subtype) -> Self {
        Self::new(Kind::InsufficientResources, subtype)
    }

    /// Returns the `DAT_RETURN` value.
    #[inline]
    #[must_use]
    pub const fn code(self) -> u32 {
        self.0.get()
    }

    /// Converts a `DAT_RETURN`, for instance of a classic provider; returns `None` for `DAT_SUCCESS`.
    #[must_use]
    pub const fn from_code(code: u32) -> Option<Self> {
        match NonZeroU32::new(code) {
            None => None,
            Some(code) => Some(Self(code)),
        }
    }

    /// Returns the type if the specification has it.
    #[must_use]
    pub fn kind(self) -> Option<Kind> {
        Kind::ALL
            .iter()
            .copied()
            .find(|k| *k as u32 == self.0.get() & 0x3fff_0000)
    }

    /// Returns the subtype if the specification has it.
    #[must_use]
    pub fn subtype(self) -> Option<Subtype> {
        Subtype::ALL.get((self.0.get() & 0xffff) as usize).copied()
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self} ({:#010x})", self.0.get())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind() {
            Some(kind) => f.write_str(kind.name())?,
            None => write!(f, "DAT return {:#010x}", self.0.get())?,
        }
        match self.subtype() {
            None | Some(Subtype::NoSubtype) => Ok(()),
            Some(subtype) => write!(f, "/{}", subtype.name()),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_those_of_dat_error_h() {
        assert_eq!(Error::handle(Subtype::InvalidHandleEp).code(), 0x8005_000c);
        assert_eq!(Error::arg(1).code(), 0x8006_0025);
        assert_eq!(
            Error::of(Kind::QueueEmpty).without_class().code(),
            0x000d_0000
        );
        assert_eq!(Error::of(Kind::NotImplemented).code(), 0xbfff_0000);
        assert_eq!(
            Error::handle(Subtype::InvalidHandleEp).to_string(),
            "DAT_INVALID_HANDLE/DAT_INVALID_HANDLE_EP"
        );
        for (number, subtype) in Subtype::ALL.iter().enumerate() {
            assert_eq!(*subtype as usize, number);
        }
    }
}
