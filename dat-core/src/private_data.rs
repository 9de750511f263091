//! Private data that arrived with a connection. A C consumer may keep its address and write to it.

use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

use crate::error::{Error, Result};

/// Maximum number of bytes that any transport delivers.
pub const MAX_PRIVATE_DATA: usize = 256;

/// Up to [`MAX_PRIVATE_DATA`] bytes inside an object whose memory is never unmapped. Consumers read them through a raw pointer and
/// may change them in place, as dtest does; therefore every byte is an atomic.
#[derive(Debug)]
pub struct PrivateData {
    length: AtomicU32,
    bytes: [AtomicU8; MAX_PRIVATE_DATA],
}

impl Default for PrivateData {
    fn default() -> Self {
        Self {
            length: AtomicU32::new(0),
            bytes: [const { AtomicU8::new(0) }; MAX_PRIVATE_DATA],
        }
    }
}

impl PrivateData {
    /// Replaces the content; bytes beyond [`MAX_PRIVATE_DATA`] are dropped.
    pub fn set(&self, data: &[u8]) {
        let data = &data[..data.len().min(MAX_PRIVATE_DATA)];
        for (to, from) in self.bytes.iter().zip(data) {
            to.store(*from, Ordering::Relaxed);
        }
        self.length.store(data.len() as u32, Ordering::Release);
    }

    /// Returns the number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.length.load(Ordering::Acquire) as usize
    }

    /// Returns true if there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the address of the first byte. [`MAX_PRIVATE_DATA`] bytes from there stay readable and writable for ever.
    #[must_use]
    pub fn address(&self) -> *mut u8 {
        self.bytes.as_ptr().cast::<u8>().cast_mut()
    }

    /// Returns a copy of the bytes.
    #[must_use]
    pub fn to_vec(&self) -> Vec<u8> {
        self.bytes[..self.len()]
            .iter()
            .map(|b| b.load(Ordering::Relaxed))
            .collect()
    }
}

/// Refuses private data that is longer than `limit` bytes and was argument `number` of the call.
///
/// # Errors
/// `DAT_INVALID_PARAMETER` for that argument.
pub fn check_length(data: &[u8], limit: u32, number: u16) -> Result<()> {
    if data.len() > (limit as usize).min(MAX_PRIVATE_DATA) {
        return Err(Error::arg(number));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_address_stays_and_excess_bytes_are_dropped() {
        let data = PrivateData::default();
        assert!(data.is_empty());
        let at = data.address();
        data.set(&[7; 300]);
        assert_eq!(data.to_vec(), vec![7; MAX_PRIVATE_DATA]);
        data.set(b"short");
        assert_eq!((data.len(), data.to_vec()), (5, b"short".to_vec()));
        assert_eq!(data.address(), at);
    }

    #[test]
    fn too_long_names_the_argument() {
        assert_eq!(check_length(&[0; 56], 56, 6), Ok(()));
        assert_eq!(check_length(&[0; 57], 56, 6), Err(Error::arg(6)));
        assert_eq!(check_length(&[0; 257], 1000, 3), Err(Error::arg(3)));
    }
}
