//! The messages: the sender offers a file, the receiver answers where it is written, and at which chunk to begin.

use udapl::Remote;

/// Bytes of a chunk. A connection writes them by one RDMA Write each.
pub(crate) const CHUNK: usize = 256 << 10;
/// Longest offer.
pub(crate) const OFFER_MOST: usize = 12 + 255;

/// What the sender offers. Size and checksum identify the contents, so that a changed file is not resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) size: u64,
    pub(crate) checksum: u32,
    pub(crate) name: String,
}

impl Offer {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let numbers = [&self.size.to_be_bytes()[..], &self.checksum.to_be_bytes()];
        [numbers.concat().as_slice(), self.name.as_bytes()].concat()
    }

    /// Decodes an offer; `None` if it is none, or its name would leave the folder.
    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (size, rest) = bytes.split_first_chunk()?;
        let (checksum, name) = rest.split_first_chunk()?;
        let name = std::str::from_utf8(name).ok()?;
        let is_plain = !name.is_empty() && !name.starts_with('.') && !name.contains('/');
        let size = u64::from_be_bytes(*size);
        (is_plain && size > 0).then(|| Self {
            size,
            checksum: u32::from_be_bytes(*checksum),
            name: name.to_owned(),
        })
    }

    pub(crate) fn chunks(&self) -> u32 {
        self.size.div_ceil(CHUNK as u64) as u32
    }

    /// Returns the offset and the length of a chunk.
    pub(crate) fn chunk(&self, number: u32) -> (u64, usize) {
        let at = u64::from(number) * CHUNK as u64;
        (at, (self.size - at).min(CHUNK as u64) as usize)
    }
}

/// The receiver's answer: the key of its memory with the address of the first byte, and the first chunk that it lacks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) memory: Remote,
    pub(crate) first: u32,
}

impl Answer {
    pub(crate) fn encode(self) -> Vec<u8> {
        [&self.memory.to_bytes()[..], &self.first.to_be_bytes()].concat()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let (memory, rest) = bytes.split_first_chunk()?;
        Some(Self {
            memory: Remote::from_bytes(*memory),
            first: u32::from_be_bytes(*rest.first_chunk()?),
        })
    }

    /// Returns where a chunk is written.
    pub(crate) fn at(self, (offset, length): (u64, usize)) -> Remote {
        Remote {
            address: self.memory.address + offset,
            length: length as u32,
            key: self.memory.key,
        }
    }
}
