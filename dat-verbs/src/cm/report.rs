//! Reports to core about a connection, common to both connection managers.

use dat_core::upcall::ConnInput;

/// Outcome or end of a connection, or of the attempt to make one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Report {
    Established,
    PeerRejected,
    NonPeerRejected,
    Unreachable,
    AcceptError,
    Disconnected,
    Broken,
}

impl Report {
    /// Converts the report to core's type, with the private data that came with it.
    pub(crate) fn with(self, private_data: &[u8]) -> ConnInput<'_> {
        match self {
            Self::Established => ConnInput::Established { private_data },
            Self::PeerRejected => ConnInput::PeerRejected { private_data },
            Self::NonPeerRejected => ConnInput::NonPeerRejected,
            Self::Unreachable => ConnInput::Unreachable,
            Self::AcceptError => ConnInput::AcceptError,
            Self::Disconnected => ConnInput::Disconnected,
            Self::Broken => ConnInput::Broken,
        }
    }
}
