//! What core is told of a connection, whichever manager made it.

use dat_core::upcall::ConnInput;

/// What happened to a connection, or to the attempt to make one.
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
    /// With the private data that came with it.
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
