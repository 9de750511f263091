//! The offer: one word in the REQ and in the REP of an engine of this project, with its version and its capabilities.
//!
//! The word is the Local Q_Key field, which IBTA defines for datagram services only. The kernel's rdma_cm passes it to no
//! consumer and answers the same whatever it holds. Big endian, as the field:
//!
//! | bits | content |
//! |---|---|
//! | 31 to 24 | version |
//! | 23 to 0 | capabilities |
//!
//! A word with version 0 is an engine from before the word existed, whatever its other bits are. Both sides use the smaller
//! version and the capabilities that both have.

use crate::guid;

bitflags::bitflags! {
    /// What an engine of this project can do or accept that a RoCE peer need not.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
    pub struct Capabilities: u32 {
        /// Accepts more than 128 PSNs in flight, as many as the sender's `Config::max_window`.
        const WIDE_WINDOW = 1;
        /// Computes the ICRC over IPv4 identification 0, or the index of the segment in its run. The sender may send runs of
        /// several packets by one system call, the receiver refuses any other identification.
        const SEGMENT_INDEX = 1 << 1;
        /// Accepts an RDMA WRITE as one WRITE Only packet per path MTU.
        const WRITE_ONLY_RUNS = 1 << 2;
        /// Fails a READ that is refused after a part of it arrived. rdma_rxe 6.1 completes such a READ without the rest.
        const LATE_READ_NAK = 1 << 3;
        /// Puts the [final PSN](crate::final_psn) into its DREQ and reads the peer's.
        const FINAL_PSN = 1 << 4;
        /// Carries connections through shared memory, between processes of one host and user. A REQ offers it; a REP has it only
        /// if the connection uses it.
        const NEAR = 1 << 5;
        /// Reads an acknowledgement behind the headers of a request, where a reserved bit of the BTH announces it.
        const REQUEST_ACKNOWLEDGES = 1 << 6;
    }
}

impl Capabilities {
    /// What engines of version 0 have. Every offer includes these, as a peer of version 0 relies on them.
    pub const LEGACY: Self = Self::WIDE_WINDOW
        .union(Self::SEGMENT_INDEX)
        .union(Self::WRITE_ONLY_RUNS)
        .union(Self::LATE_READ_NAK)
        .union(Self::FINAL_PSN);
}

/// Bits of the word that hold capabilities.
const CAPABILITY_BITS: u32 = 0x00ff_ffff;

/// Version and capabilities that an engine announces.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Offer {
    version: u8,
    capabilities: Capabilities,
}

impl Offer {
    /// The offer of this version of the crate.
    pub const CURRENT: Self = Self {
        version: 1,
        capabilities: Capabilities::LEGACY,
    };

    /// Offer of engines that send 0 in the Q_Key field.
    pub const LEGACY: Self = Self {
        version: 0,
        capabilities: Capabilities::LEGACY,
    };

    /// Returns an offer of `version` with `capabilities` beside those that every engine has. Version 0 has no others.
    #[must_use]
    pub const fn new(version: u8, capabilities: Capabilities) -> Self {
        if version == 0 {
            return Self::LEGACY;
        }
        Self {
            version,
            capabilities: capabilities.union(Capabilities::LEGACY),
        }
    }

    /// Returns the offer with `capabilities` beside its own. Version 0 has no others.
    #[must_use]
    pub const fn with(self, capabilities: Capabilities) -> Self {
        Self::new(self.version, self.capabilities.union(capabilities))
    }

    /// Returns the offer without those of `capabilities` that the agreement does not have, for a REP.
    #[must_use]
    pub const fn only_agreed(self, agreement: Agreement, capabilities: Capabilities) -> Self {
        let declined = capabilities.difference(agreement.capabilities);
        Self {
            version: self.version,
            capabilities: self.capabilities.difference(declined),
        }
    }

    /// Returns the word that states this offer.
    #[must_use]
    pub const fn word(self) -> u32 {
        match self.version {
            0 => 0,
            version => (version as u32) << 24 | self.capabilities.bits() & CAPABILITY_BITS,
        }
    }

    /// Reads the word of an engine of this project. Bits that have no name yet are kept.
    #[must_use]
    pub const fn from_word(word: u32) -> Self {
        match (word >> 24) as u8 {
            0 => Self::LEGACY,
            version => Self {
                version,
                capabilities: Capabilities::from_bits_retain(word & CAPABILITY_BITS),
            },
        }
    }

    /// Returns the word for the REP to a peer with this CA GUID: 0 unless the peer is an engine of this project.
    #[must_use]
    pub const fn answer(self, guid: u64) -> u32 {
        if guid::is_own(guid) { self.word() } else { 0 }
    }

    /// Returns what this engine and a peer agree on. `guid` and `word` are the CA GUID and the Q_Key field of the peer's REQ or REP.
    /// Both sides come to the same result.
    #[must_use]
    pub const fn agree(self, guid: u64, word: u32) -> Agreement {
        if !guid::is_own(guid) {
            return Agreement::FOREIGN;
        }
        let peer = Self::from_word(word);
        Agreement {
            own: true,
            version: if peer.version < self.version {
                peer.version
            } else {
                self.version
            },
            capabilities: self.capabilities.intersection(peer.capabilities),
        }
    }
}

/// What two connected peers agreed on. Ask it for a capability, or whether the peer is an engine of this project; a version number alone
/// switches nothing today.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Agreement {
    own: bool,
    version: u8,
    capabilities: Capabilities,
}

impl Agreement {
    /// The agreement with a foreign peer: plain RoCE.
    pub const FOREIGN: Self = Self {
        own: false,
        version: 0,
        capabilities: Capabilities::empty(),
    };

    /// The agreement of two engines of this project with this version.
    pub const CURRENT: Self = Self {
        own: true,
        version: Offer::CURRENT.version,
        capabilities: Offer::CURRENT.capabilities,
    };

    /// Returns true if both have all of `capabilities`.
    #[must_use]
    pub const fn has(self, capabilities: Capabilities) -> bool {
        self.capabilities.contains(capabilities)
    }

    /// Returns the agreement without `capabilities`, which the passive side declined.
    #[must_use]
    pub const fn without(self, capabilities: Capabilities) -> Self {
        Self {
            capabilities: self.capabilities.difference(capabilities),
            ..self
        }
    }

    /// Returns true if the peer is an engine of this project. For the peer's identity only; to choose a wire format use
    /// [`has`](Self::has).
    #[must_use]
    pub const fn is_own(self) -> bool {
        self.own
    }

    /// Returns the smaller version of both; 0 for a foreign peer.
    #[must_use]
    pub const fn version(self) -> u8 {
        self.version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u64 = guid::own(7);
    const FOREIGN: u64 = 0x5054_00ff_fe12_3456;
    /// A capability that a later version may add.
    const FUTURE: Capabilities = Capabilities::from_bits_retain(1 << 20);

    #[test]
    fn the_words_are_as_documented() {
        for (offer, word) in [
            (Offer::LEGACY, 0),
            (Offer::CURRENT, 0x0100_001f),
            (Offer::CURRENT.with(Capabilities::NEAR), 0x0100_003f),
            (Offer::LEGACY.with(Capabilities::NEAR), 0),
            (Offer::new(0, FUTURE), 0),
            (Offer::new(2, FUTURE), 0x0210_001f),
            (Offer::new(255, Capabilities::empty()), 0xff00_001f),
        ] {
            assert_eq!(offer.word(), word, "{offer:?}");
            assert_eq!(Offer::from_word(word), offer, "{word:#x}");
        }
    }

    #[test]
    fn both_sides_of_every_pair_come_to_the_same_agreement() {
        let later = Offer::new(2, FUTURE);
        let legacy = (0, Capabilities::LEGACY);
        let current = (1, Capabilities::LEGACY);
        for (a, b, agreed) in [
            (Offer::LEGACY, Offer::LEGACY, legacy),
            (Offer::LEGACY, Offer::CURRENT, legacy),
            (Offer::LEGACY, later, legacy),
            (Offer::CURRENT, Offer::CURRENT, current),
            (Offer::CURRENT, later, current),
            (later, later, (2, Capabilities::LEGACY.union(FUTURE))),
        ] {
            for (ours, peers) in [(a, b), (b, a)] {
                let got = ours.agree(OWN, peers.answer(OWN));
                assert!(got.is_own());
                assert_eq!(
                    (got.version(), got.capabilities),
                    agreed,
                    "{ours:?} {peers:?}"
                );
            }
        }
    }

    #[test]
    fn a_foreign_peer_agrees_on_nothing_and_gets_no_word_in_a_rep() {
        for word in [0, 1, Offer::CURRENT.word(), 0x8001_0000, u32::MAX] {
            let got = Offer::CURRENT.agree(FOREIGN, word);
            assert_eq!(got, Agreement::FOREIGN, "{word:#x}");
            assert!(!got.is_own());
            assert!(!got.has(Capabilities::WIDE_WINDOW));
        }
        assert_eq!(Offer::CURRENT.answer(FOREIGN), 0);
    }

    #[test]
    fn a_garbage_word_agrees_on_no_more_than_both_have() {
        for (word, version, capabilities) in [
            // Version 0: the other bits mean nothing.
            (0x00ff_ffff, 0, Capabilities::LEGACY),
            (0x0000_0001, 0, Capabilities::LEGACY),
            (0x0100_0000, 1, Capabilities::empty()),
            (0x0100_0010, 1, Capabilities::FINAL_PSN),
            (0xffff_ffff, 1, Capabilities::LEGACY),
            (0x8001_0000, 1, Capabilities::empty()),
            (0x01ff_ffe0, 1, Capabilities::empty()),
        ] {
            let got = Offer::CURRENT.agree(OWN, word);
            assert_eq!(
                (got.version(), got.capabilities),
                (version, capabilities),
                "{word:#x}"
            );
        }
    }

    #[test]
    fn near_is_agreed_on_if_both_offer_it_and_the_reply_does_not_decline_it() {
        let near = Offer::CURRENT.with(Capabilities::NEAR);
        for (ours, peers, both) in [
            (near, near, true),
            (near, Offer::CURRENT, false),
            (Offer::CURRENT, near, false),
            (near, Offer::LEGACY, false),
        ] {
            let got = ours.agree(OWN, peers.word());
            assert_eq!(got.has(Capabilities::NEAR), both, "{ours:?} {peers:?}");
            let reply = ours.only_agreed(got, Capabilities::NEAR);
            let with_near = reply.capabilities.contains(Capabilities::NEAR);
            assert_eq!(with_near, both);
            assert!(reply.capabilities.contains(Capabilities::LEGACY));
            let declined = got.without(Capabilities::NEAR);
            assert!(!declined.has(Capabilities::NEAR) && declined.has(Capabilities::LEGACY));
            let reply = ours.only_agreed(declined, Capabilities::NEAR);
            assert_eq!(peers.agree(OWN, reply.word()), declined);
        }
        let foreign = near.agree(FOREIGN, near.word());
        assert!(!foreign.has(Capabilities::NEAR));
    }

    #[test]
    fn current_agrees_with_current() {
        let got = Offer::CURRENT.agree(OWN, Offer::CURRENT.word());
        assert_eq!(got, Agreement::CURRENT);
        assert!(got.has(Capabilities::LEGACY));
    }
}
