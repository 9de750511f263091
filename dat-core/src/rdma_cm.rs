//! What DAPL 2.1.10 and its successors agree on over rdma_cm: a transport that speaks otherwise meets
//! nobody else's peers.

/// Bytes of a consumer's private data in a connection request: what the CM's 92 leave after rdma_cm's 36.
pub const REQ_PRIVATE: usize = 56;
/// The same in an acceptance.
pub const REP_PRIVATE: usize = 160;
/// The same in a refusal, behind [`REJ_VERSION`].
pub const REJ_PRIVATE: usize = 108;
/// DAPL puts a version word before the data of a refusal, and takes a refusal without one for the
/// transport's own: DAT 2.0, provider 2.0.
pub const REJ_VERSION: [u8; 4] = [0x02, 0x00, 0x02, 0x00];

/// The port of a connection qualifier; both ends must use the same rule. Qualifiers beyond 16 bits are folded as DAPL folds them.
#[must_use]
pub const fn port_of(conn_qual: u64) -> u16 {
    if conn_qual <= 0xffff {
        conn_qual as u16
    } else {
        (conn_qual % 32001 + 33534) as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_follow_dapls_rule() {
        for (qual, port) in [
            (0, 0),
            (45248, 45248),
            (0xffff, 0xffff),
            (0x1_0000, 65536 % 32001 + 33534),
            (0x0AFF_AB1E, 0x0AFF_AB1E % 32001 + 33534),
            (u64::MAX, u64::MAX % 32001 + 33534),
        ] {
            assert_eq!(u64::from(port_of(qual)), port, "{qual:#x}");
        }
    }
}
