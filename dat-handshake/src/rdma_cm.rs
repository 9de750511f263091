//! Private-data layout and port rule of DAPL 2.1.10 over rdma_cm; without them no DAPL peer connects.

/// Bytes of a consumer's private data in a connection request: the CM's 92 less rdma_cm's header of 36.
pub const REQ_PRIVATE: usize = 56;
/// Bytes of a consumer's private data in an acceptance.
pub const REP_PRIVATE: usize = 160;
/// Bytes of a consumer's private data in a refusal, after [`REJ_VERSION`].
pub const REJ_PRIVATE: usize = 108;
/// The version word that DAPL puts before the private data of a consumer's refusal: DAT 2.0, provider 2.0. DAPL takes a refusal
/// without it for one of the transport.
pub const REJ_VERSION: [u8; 4] = [0x02, 0x00, 0x02, 0x00];

/// Returns the consumer's part of the private data of a refusal with the reason of a consumer; `None` if it has no version word. DAPL does
/// not look at a peer's versions. A kernel refuses on behalf of a dead process with the same reason, and without the word.
#[must_use]
pub fn consumers_refusal(private_data: &[u8]) -> Option<&[u8]> {
    let (version, data) = private_data.split_first_chunk::<4>()?;
    (*version != [0; 4]).then_some(data)
}

/// Returns the port of a connection qualifier. Both ends must use the same rule; a qualifier beyond 16 bits is folded as DAPL folds it.
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
    fn a_refusal_is_the_consumers_if_it_has_a_version_of_whatever_number() {
        for version in [REJ_VERSION, [1, 2, 1, 2], [0, 0, 0, 1]] {
            let sent = [version.as_slice(), b"no"].concat();
            assert_eq!(consumers_refusal(&sent), Some(b"no".as_slice()));
        }
        assert_eq!(consumers_refusal(&REJ_VERSION), Some(b"".as_slice()));
        assert_eq!(consumers_refusal(&[0; 148]), None);
        assert_eq!(consumers_refusal(b"abc"), None);
    }

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
