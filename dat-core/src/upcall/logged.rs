//! The line about a connection request in the log.

use std::fmt;

use super::Arrival;

/// A request as it is logged: without its private data, in which programs send keys of memory.
pub(super) struct Logged<'a>(pub(super) &'a Arrival<'a>);

impl fmt::Display for Logged<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arrival {
            remote,
            local,
            private_data,
            datagram,
        } = self.0;
        let of = if *datagram {
            " of a datagram endpoint"
        } else {
            ""
        };
        let bytes = private_data.len();
        write!(
            f,
            "from {remote} to {local}{of}, with {bytes} bytes of private data"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_logged_without_its_private_data() {
        let arrival = Arrival {
            remote: ([192, 0, 2, 1], 4791).into(),
            local: [192, 0, 2, 2].into(),
            private_data: &[173, 190],
            datagram: false,
        };
        let text = Logged(&arrival).to_string();
        assert!(
            text.contains("192.0.2.1:4791") && text.contains("2 bytes of private data"),
            "{text}"
        );
        assert!(!text.contains("173") && !text.contains("190"), "{text}");
    }
}
