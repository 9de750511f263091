//! Segments of a peer's memory.

use std::ops::{Bound, RangeBounds};

use dat_core::iov::RmrTriplet;

/// A segment of a peer's memory, whose address and key the peer has sent.
///
/// ```
/// # use udapl::Remote;
/// let all = Remote { address: 0x1000, length: 100, key: 7 };
/// let part = all.slice(10..30);
/// assert_eq!((part.address, part.length, part.key), (0x100a, 20, 7));
/// assert_eq!(Remote::from_bytes(part.to_bytes()), part);
/// ```
///
/// With the feature `serde` a key is part of a program's own messages:
///
/// ```
/// # #[cfg(feature = "serde")] {
/// # use udapl::Remote;
/// #[derive(serde::Serialize, serde::Deserialize)]
/// struct Welcome {
///     table: Remote,
///     records: u32,
/// }
///
/// let welcome = Welcome { table: Remote { address: 0x1000, length: 100, key: 7 }, records: 5 };
/// let text = serde_json::to_string(&welcome).expect("it has a text");
/// # let back: Welcome = serde_json::from_str(&text).expect("it is a welcome");
/// # assert_eq!(back.table, welcome.table);
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[repr(C)]
pub struct Remote {
    /// Address of the first byte.
    pub address: u64,
    /// Number of bytes.
    pub length: u32,
    /// Key of the peer's region or window.
    pub key: u32,
}

impl Remote {
    /// Length of the encoding of [`Remote::to_bytes`].
    pub const SIZE: usize = 16;

    /// Encodes the segment for a message to the peer: address, length and key, big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::SIZE] {
        let mut bytes = [0; Self::SIZE];
        bytes[..8].copy_from_slice(&self.address.to_be_bytes());
        bytes[8..12].copy_from_slice(&self.length.to_be_bytes());
        bytes[12..].copy_from_slice(&self.key.to_be_bytes());
        bytes
    }

    /// Decodes the bytes of [`Remote::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::SIZE]) -> Self {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        Self {
            address: u64::from(word(0)) << 32 | u64::from(word(4)),
            length: word(8),
            key: word(12),
        }
    }

    /// Decodes the first bytes of `bytes`, such as private data, which some transports pad; `None` if there are fewer than
    /// [`Remote::SIZE`].
    ///
    /// ```
    /// use udapl::Remote;
    ///
    /// let key = Remote { address: 0x1000, length: 100, key: 7 };
    /// let mut private_data = key.to_bytes().to_vec();
    /// private_data.extend([0; 8]);
    /// assert_eq!(Remote::from_prefix(&private_data), Some(key));
    /// assert_eq!(Remote::from_prefix(b"no key"), None);
    /// ```
    #[must_use]
    pub fn from_prefix(bytes: &[u8]) -> Option<Self> {
        bytes.first_chunk().copied().map(Self::from_bytes)
    }

    /// Returns the part of the segment, or `None` if the range leaves it.
    ///
    /// ```
    /// # use udapl::Remote;
    /// let table = Remote { address: 0x1000, length: 100, key: 7 };
    /// assert_eq!(table.get(96..).map(|rest| rest.length), Some(4));
    /// assert_eq!(table.get(96..104), None);
    /// ```
    #[must_use]
    pub fn get(self, range: impl RangeBounds<u32>) -> Option<Self> {
        self.part(&range)
    }

    fn part(self, range: &impl RangeBounds<u32>) -> Option<Self> {
        let start = match range.start_bound() {
            Bound::Included(at) => *at,
            Bound::Excluded(at) => at.checked_add(1)?,
            Bound::Unbounded => 0,
        };
        let end = match range.end_bound() {
            Bound::Included(at) => at.checked_add(1)?,
            Bound::Excluded(at) => *at,
            Bound::Unbounded => self.length,
        };
        let length = end.checked_sub(start)?;
        (end <= self.length).then_some(Self {
            address: self.address.checked_add(start.into())?,
            length,
            key: self.key,
        })
    }

    /// Returns the part of the segment.
    ///
    /// # Panics
    /// If the range leaves the segment.
    #[must_use]
    pub fn slice(self, range: impl RangeBounds<u32> + std::fmt::Debug) -> Self {
        self.part(&range).unwrap_or_else(|| {
            panic!(
                "{range:?} is not inside a remote segment of {} bytes",
                self.length
            )
        })
    }

    #[inline]
    pub(crate) fn triplet(self) -> RmrTriplet {
        RmrTriplet {
            virtual_address: self.address,
            segment_length: self.length,
            rmr_context: self.key,
        }
    }

    /// Returns the address of the same fields in the form of the function table.
    #[inline]
    pub(crate) const fn as_triplet(&self) -> *const RmrTriplet {
        std::ptr::from_ref(self).cast()
    }
}

// For `as_triplet`.
const _: () = {
    use std::mem::offset_of;
    assert!(size_of::<Remote>() == size_of::<RmrTriplet>());
    assert!(align_of::<Remote>() == align_of::<RmrTriplet>());
    assert!(offset_of!(Remote, address) == offset_of!(RmrTriplet, virtual_address));
    assert!(offset_of!(Remote, length) == offset_of!(RmrTriplet, segment_length));
    assert!(offset_of!(Remote, key) == offset_of!(RmrTriplet, rmr_context));
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_remote_segment_is_encoded_and_decoded_and_cut() {
        let remote = Remote {
            address: 0x1234_5678_9abc_def0,
            length: 77,
            key: 0xdead_beef,
        };
        assert_eq!(Remote::from_bytes(remote.to_bytes()), remote);
        assert_eq!(Remote::from_prefix(&remote.to_bytes()), Some(remote));
        assert_eq!(Remote::from_prefix(&remote.to_bytes()[1..]), None);
        assert_eq!(remote.get(..), Some(remote));
        assert_eq!(remote.get(70..=76).map(|part| part.length), Some(7));
        assert_eq!(remote.get(70..=77), None);
        assert_eq!(remote.get(77..).map(|part| part.length), Some(0));
        assert_eq!(
            Remote {
                address: u64::MAX,
                ..remote
            }
            .get(2..),
            None
        );
    }
}
