//! Payload that is sent from the consumer's memory without a copy: the kernel gathers a packet's headers from the engine's buffer and its
//! payload from the consumer's memory.
//!
//! A reference to payload lives from the making of a run to its `sendmsg`, all of it under the engine's lock. Deregistration takes
//! that lock too, so memory is not given back while it is referred to.

use std::ptr::null_mut;

use softrxe_port::socket::MAX_SEGMENTS;

use super::guard::CopyMethod;
use super::range::Range;

/// Shortest payload that this driver refers to, so that it is sent without a copy. A shorter one is copied: that costs less than two more
/// pieces in the list (docs/performance.md).
pub(crate) const MIN_REFERENCED: usize = 2048;
/// Pieces of a run: each payload, and the bytes of the buffer before, between and behind them.
const PIECES: usize = 2 * MAX_SEGMENTS + 1;

/// Payload of one packet, in the consumer's memory.
#[derive(Clone, Copy, Debug)]
struct PayloadRef {
    /// Position of the payload in the engine's buffer, whose bytes there stay unwritten.
    at: usize,
    /// Memory that holds the payload.
    from: Range,
}

/// The payload references of the run that is being made, in order.
#[derive(Debug)]
pub(crate) struct PayloadRefs {
    list: Vec<PayloadRef>,
}

/// The bytes of a run, in order. All pieces can be read while this lives, unless the consumer unmapped its registered memory; the
/// consumer may change that memory at any time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pieces<'a>(&'a [libc::iovec]);

impl<'a> Pieces<'a> {
    /// Returns the pieces, as `sendmsg` takes them.
    pub(crate) const fn as_slice(self) -> &'a [libc::iovec] {
        self.0
    }
}

impl PayloadRefs {
    /// Makes an empty list.
    pub(crate) fn new() -> Self {
        Self {
            list: Vec::with_capacity(MAX_SEGMENTS),
        }
    }

    /// Returns whether another reference fits.
    pub(crate) const fn has_room(&self) -> bool {
        self.list.len() < MAX_SEGMENTS
    }

    /// Adds `from`, the payload that is sent in place of the bytes at offset `at` of the buffer. Offsets ascend.
    pub(crate) fn add(&mut self, at: usize, from: Range) {
        self.list.push(PayloadRef { at, from });
    }

    /// Copies each referenced payload to its position in `out`.
    pub(crate) fn copy_into(&self, method: CopyMethod, out: &mut [u8]) {
        for PayloadRef { at, from } in &self.list {
            // The position is as long as the range, so the read is never outside. What cannot be read is not sent either.
            let _ = from.read(method, 0, &mut out[*at..*at + from.length() as usize]);
        }
    }

    /// Calls `send` with the pieces of the run in `out`, then clears the list.
    pub(crate) fn gather<R>(&mut self, out: &[u8], send: impl FnOnce(Pieces<'_>) -> R) -> R {
        let own = |from: usize, to: usize| libc::iovec {
            iov_base: out[from..to].as_ptr().cast_mut().cast(),
            iov_len: to - from,
        };
        if self.list.is_empty() {
            return send(Pieces(&[own(0, out.len())]));
        }
        let mut pieces = [libc::iovec {
            iov_base: null_mut(),
            iov_len: 0,
        }; PIECES];
        let (mut count, mut done) = (0, 0);
        for PayloadRef { at, from } in self.list.drain(..) {
            pieces[count] = own(done, at);
            pieces[count + 1] = libc::iovec {
                iov_base: from.base() as *mut libc::c_void,
                iov_len: from.length() as usize,
            };
            count += 2;
            done = at + from.length() as usize;
        }
        pieces[count] = own(done, out.len());
        send(Pieces(&pieces[..=count]))
    }
}

impl Default for PayloadRefs {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn payload_is_gathered_in_place_for_one_run() {
        let (out, mut memory) = ([1u8; 100], [2u8; 40]);
        let mut refs = PayloadRefs::new();
        let read = |pieces: Pieces<'_>| {
            let mut bytes = Vec::<u8>::new();
            for piece in pieces.as_slice() {
                // SAFETY: the pieces lie in `out` and `memory`.
                bytes.extend(unsafe {
                    std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len)
                });
            }
            bytes
        };
        let range = Range::probe(memory.as_mut_ptr() as usize, 40, false).unwrap();
        refs.add(10, range.part(0, 30).unwrap());
        refs.add(60, range.part(30, 10).unwrap());
        let mut expected = out;
        expected[10..40].fill(2);
        expected[60..70].fill(2);
        let mut copied = out;
        refs.copy_into(CopyMethod::Kernel, &mut copied);
        assert_eq!(copied, expected);
        assert_eq!(refs.gather(&out, read), expected);
        assert_eq!(refs.gather(&out, read), out, "references are for one run");
        for n in 0..MAX_SEGMENTS {
            assert!(refs.has_room());
            refs.add(n, range.part(0, 1).unwrap());
        }
        assert!(!refs.has_room());
        let count = refs.gather(&out, |pieces| pieces.as_slice().len());
        assert_eq!(count, PIECES);
    }
}
