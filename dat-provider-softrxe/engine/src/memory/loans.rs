//! Payload that goes out from where it lies: the kernel gathers a packet's headers from our buffer and its payload from the consumer's.
//!
//! A loan lives from the making of a run to its `sendmsg`, all of it under the engine's lock, which deregistration takes too:
//! memory is not given back while it is lent.

use std::ptr::null_mut;

use super::foreign::Range;
use super::guard::Way;
use crate::net::socket::MAX_SEGMENTS;

/// A shorter payload is copied: that costs less than two pieces more in the list (docs/performance.md).
pub const LEAST: usize = 2048;
/// Pieces of a run: what is lent, and what is ours before and behind it.
const PIECES: usize = 2 * MAX_SEGMENTS + 1;

/// Payload of one packet.
#[derive(Clone, Copy, Debug)]
struct Loan {
    /// Its place in our buffer, which stays unwritten there.
    at: usize,
    /// Where it lies.
    from: Range,
}

/// All of the run that is being made, in order.
#[derive(Debug)]
pub struct Loans {
    list: Vec<Loan>,
}

impl Loans {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            list: Vec::with_capacity(MAX_SEGMENTS),
        }
    }

    /// May another one be made?
    #[must_use]
    pub const fn has_room(&self) -> bool {
        self.list.len() < MAX_SEGMENTS
    }

    /// `from` goes out in the place of as many bytes at `at` of our buffer, behind all that were added before.
    pub fn add(&mut self, at: usize, from: Range) {
        self.list.push(Loan { at, from });
    }

    /// Copies what is lent to its places in `out`.
    pub fn show(&self, way: Way, out: &mut [u8]) {
        for Loan { at, from } in &self.list {
            // As long as the place is: never outside. What cannot be read is not sent either.
            let _ = from.read(way, 0, &mut out[*at..*at + from.length() as usize]);
        }
    }

    /// Gives `send` the pieces of the run in `out`, then forgets what was lent for it.
    pub fn gather<R>(&mut self, out: &[u8], send: impl FnOnce(&[libc::iovec]) -> R) -> R {
        let own = |from: usize, to: usize| libc::iovec {
            iov_base: out[from..to].as_ptr().cast_mut().cast(),
            iov_len: to - from,
        };
        if self.list.is_empty() {
            return send(&[own(0, out.len())]);
        }
        let mut pieces = [libc::iovec {
            iov_base: null_mut(),
            iov_len: 0,
        }; PIECES];
        let (mut count, mut done) = (0, 0);
        for Loan { at, from } in self.list.drain(..) {
            pieces[count] = own(done, at);
            pieces[count + 1] = libc::iovec {
                iov_base: from.base() as *mut libc::c_void,
                iov_len: from.length() as usize,
            };
            count += 2;
            done = at + from.length() as usize;
        }
        pieces[count] = own(done, out.len());
        send(&pieces[..=count])
    }
}

impl Default for Loans {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lent_stands_in_its_places_once() {
        let (out, mut lent) = ([1u8; 100], [2u8; 40]);
        let mut loans = Loans::new();
        let read = |pieces: &[libc::iovec]| {
            let mut bytes = Vec::<u8>::new();
            for piece in pieces {
                // SAFETY: the pieces lie in `out` and `lent`.
                bytes.extend(unsafe {
                    std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                });
            }
            bytes
        };
        let lent = Range::probe(lent.as_mut_ptr() as usize, 40, false).unwrap();
        loans.add(10, lent.part(0, 30).unwrap());
        loans.add(60, lent.part(30, 10).unwrap());
        let mut want = out;
        want[10..40].fill(2);
        want[60..70].fill(2);
        let mut shown = out;
        loans.show(Way::Kernel, &mut shown);
        assert_eq!(shown, want);
        assert_eq!(loans.gather(&out, read), want);
        assert_eq!(loans.gather(&out, read), out, "a loan is for one run");
        for n in 0..MAX_SEGMENTS {
            assert!(loans.has_room());
            loans.add(n, lent.part(0, 1).unwrap());
        }
        assert!(!loans.has_room());
        assert_eq!(loans.gather(&out, <[libc::iovec]>::len), PIECES);
    }
}
