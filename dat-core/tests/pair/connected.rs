//! Two connected endpoints, and segments for their posts.

use dat_core::ep::Ep;
use dat_core::iov::{LmrTriplet, RmrTriplet};

use super::{Fake, Side, join};

/// Returns a local segment.
pub fn bytes(length: u32) -> LmrTriplet {
    LmrTriplet {
        virtual_address: 0x1000,
        segment_length: length,
        lmr_context: 7,
    }
}

/// Returns a segment of the peer.
pub fn remote(length: u32) -> RmrTriplet {
    RmrTriplet {
        virtual_address: 0x2000,
        segment_length: length,
        rmr_context: 8,
    }
}

/// Two connected endpoints.
pub struct Pair {
    pub client: Side,
    pub server: Side,
    pub from: &'static Ep<Fake>,
    pub to: &'static Ep<Fake>,
}

/// Connects two endpoints.
pub fn connected(qual: u64) -> Pair {
    connected_with("", qual)
}

/// Connects two endpoints. The IA of the posting side has these `ia_params`.
pub fn connected_with(params: &str, qual: u64) -> Pair {
    let (client, server) = (Side::open_with(params), Side::open());
    let (from, to) = (client.ep(), server.ep());
    join(&client, from, &server, to, qual);
    Pair {
        client,
        server,
        from,
        to,
    }
}
