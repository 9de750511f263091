//! BTH opcodes (IBTA 9.2, table 38) and what follows from them.

/// Position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// First of several.
    First,
    /// Neither first nor last.
    Middle,
    /// Last of several.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Returns true if a message begins here.
    #[must_use]
    pub const fn begins(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Returns true if a message ends here.
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal),* $(,)?) => {
        /// An opcode that this crate knows: RC, UD and the congestion notification packet.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $value),*
        }

        impl Opcode {
            /// All known opcodes.
            pub const ALL: &[Self] = &[$(Self::$name),*];

            /// Returns the opcode with this wire value.
            #[must_use]
            pub const fn from_wire(value: u8) -> Option<Self> {
                match value {
                    $($value => Some(Self::$name),)*
                    _ => None,
                }
            }
        }
    };
}

opcodes! {
    /// RC SEND First.
    SendFirst = 0x00,
    /// RC SEND Middle.
    SendMiddle = 0x01,
    /// RC SEND Last.
    SendLast = 0x02,
    /// RC SEND Last with Immediate.
    SendLastImm = 0x03,
    /// RC SEND Only.
    SendOnly = 0x04,
    /// RC SEND Only with Immediate.
    SendOnlyImm = 0x05,
    /// RC RDMA WRITE First.
    WriteFirst = 0x06,
    /// RC RDMA WRITE Middle.
    WriteMiddle = 0x07,
    /// RC RDMA WRITE Last.
    WriteLast = 0x08,
    /// RC RDMA WRITE Last with Immediate.
    WriteLastImm = 0x09,
    /// RC RDMA WRITE Only.
    WriteOnly = 0x0a,
    /// RC RDMA WRITE Only with Immediate.
    WriteOnlyImm = 0x0b,
    /// RC RDMA READ Request.
    ReadRequest = 0x0c,
    /// RC RDMA READ Response First.
    ReadResponseFirst = 0x0d,
    /// RC RDMA READ Response Middle.
    ReadResponseMiddle = 0x0e,
    /// RC RDMA READ Response Last.
    ReadResponseLast = 0x0f,
    /// RC RDMA READ Response Only.
    ReadResponseOnly = 0x10,
    /// RC Acknowledge.
    Acknowledge = 0x11,
    /// RC ATOMIC Acknowledge.
    AtomicAcknowledge = 0x12,
    /// RC CmpSwap.
    CompareSwap = 0x13,
    /// RC FetchAdd.
    FetchAdd = 0x14,
    /// RC SEND Last with Invalidate.
    SendLastInvalidate = 0x16,
    /// RC SEND Only with Invalidate.
    SendOnlyInvalidate = 0x17,
    /// UD SEND Only.
    UdSendOnly = 0x64,
    /// UD SEND Only with Immediate.
    UdSendOnlyImm = 0x65,
    /// Congestion notification packet (RoCEv2 annex).
    Cnp = 0x81,
}

/// Family of a request.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum RequestKind {
    /// SEND and its variants.
    Send,
    /// RDMA WRITE and its variants.
    Write,
    /// RDMA READ Request.
    Read,
    /// Compare and swap, fetch and add.
    Atomic,
}

impl Opcode {
    /// Returns the family of an RC request.
    #[must_use]
    pub const fn request(self) -> Option<RequestKind> {
        Some(match self as u8 {
            0x00..=0x05 | 0x16 | 0x17 => RequestKind::Send,
            0x06..=0x0b => RequestKind::Write,
            0x0c => RequestKind::Read,
            0x13 | 0x14 => RequestKind::Atomic,
            _ => return None,
        })
    }

    /// Returns true for an RC response.
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self as u8, 0x0d..=0x12)
    }

    /// Returns true for an RC READ response.
    #[must_use]
    pub const fn is_read_response(self) -> bool {
        matches!(self as u8, 0x0d..=0x10)
    }

    /// Returns the position in the message.
    #[must_use]
    pub const fn position(self) -> Position {
        match self {
            Self::SendFirst | Self::WriteFirst | Self::ReadResponseFirst => Position::First,
            Self::SendMiddle | Self::WriteMiddle | Self::ReadResponseMiddle => Position::Middle,
            Self::SendLast
            | Self::SendLastImm
            | Self::SendLastInvalidate
            | Self::WriteLast
            | Self::WriteLastImm
            | Self::ReadResponseLast => Position::Last,
            _ => Position::Only,
        }
    }

    /// Returns true if there is a RETH.
    #[must_use]
    pub const fn has_reth(self) -> bool {
        matches!(
            self,
            Self::WriteFirst | Self::WriteOnly | Self::WriteOnlyImm | Self::ReadRequest
        )
    }

    /// Returns true if there is an AETH.
    #[must_use]
    pub const fn has_aeth(self) -> bool {
        matches!(
            self,
            Self::ReadResponseFirst
                | Self::ReadResponseLast
                | Self::ReadResponseOnly
                | Self::Acknowledge
                | Self::AtomicAcknowledge
        )
    }

    /// Returns true if there is immediate data.
    #[must_use]
    pub const fn has_immediate(self) -> bool {
        matches!(
            self,
            Self::SendLastImm
                | Self::SendOnlyImm
                | Self::WriteLastImm
                | Self::WriteOnlyImm
                | Self::UdSendOnlyImm
        )
    }

    /// Returns true if there is an IETH.
    #[must_use]
    pub const fn has_invalidate(self) -> bool {
        matches!(self, Self::SendLastInvalidate | Self::SendOnlyInvalidate)
    }

    /// Returns true if there is an AtomicETH.
    #[must_use]
    pub const fn has_atomic(self) -> bool {
        matches!(self, Self::CompareSwap | Self::FetchAdd)
    }

    /// Returns true if there is a DETH.
    #[must_use]
    pub const fn has_deth(self) -> bool {
        matches!(self, Self::UdSendOnly | Self::UdSendOnlyImm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wire_values_round_trip_and_others_are_unknown() {
        let known = (0..=255).filter(|v| Opcode::from_wire(*v).is_some());
        assert_eq!(known.count(), Opcode::ALL.len());
        for op in Opcode::ALL {
            assert_eq!(Opcode::from_wire(*op as u8), Some(*op));
        }
    }

    #[test]
    fn each_opcode_is_request_response_datagram_or_cnp() {
        for op in Opcode::ALL {
            let families = usize::from(op.request().is_some())
                + usize::from(op.is_response())
                + usize::from(op.has_deth())
                + usize::from(*op == Opcode::Cnp);
            assert_eq!(families, 1, "{op:?}");
        }
    }
}
