//! Keys of registered memory and the checks of an access. Local and remote keys are different numbers, so that a consumer that confuses
//! them gets an error.

use std::collections::HashMap;

use dat_core::error::{Error, Kind, Result};
use dat_core::event::DtoStatus;
use dat_core::flags::{MemPriv, VaType};
use dat_core::iov::{LmrTriplet, RmrTriplet};
use dat_core::transport::Keys as KeyPair;

use crate::NO_MEMORY;
use crate::memory::Range;

/// Bit that is set in remote keys.
const REMOTE: u32 = 0x8000_0000;

/// A registered region; its key is the lmr_context.
#[derive(Debug)]
struct Region {
    pz: u32,
    address: u64,
    length: u64,
    rights: MemPriv,
    /// Address by which programs name the first byte: 0 if the region is zero-based.
    start: u64,
}

/// Memory that a peer may access: a region, or the part of one that a bind opened. Its key is the rmr_context.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Protection zone of the region and of the queue pairs that may use the window.
    pub pz: u32,
    /// Key of the underlying region.
    pub region: u32,
    /// Address of the first byte, as programs name it in the region.
    pub address: u64,
    /// Number of bytes.
    pub length: u64,
    /// What a peer may do.
    pub rights: MemPriv,
    /// Meaning of a peer's addresses.
    pub va_type: VaType,
    /// True if a bind opened the window, so that a peer's Send may invalidate it.
    pub bound: bool,
}

/// An open window.
#[derive(Debug)]
struct Opened {
    window: Window,
    /// Address of the first byte in the memory of the process.
    memory: u64,
}

/// All keys of the process. An access takes ranges from the table and copies while they borrow it, under the owner's lock of the table.
/// So nothing touches the memory once [`Keys::deregister`] or [`Keys::close`] has returned.
#[derive(Debug, Default)]
pub struct Keys {
    next: u32,
    local: HashMap<u32, Region>,
    remote: HashMap<u32, Opened>,
}

impl Keys {
    /// Returns a number below [`REMOTE`] that is not a key.
    fn unused(&mut self) -> Result<u32> {
        for _ in 0..REMOTE {
            self.next = (self.next + 1) % REMOTE;
            let taken = self.local.contains_key(&self.next)
                || self.remote.contains_key(&(self.next | REMOTE));
            if self.next != 0 && !taken {
                return Ok(self.next);
            }
        }
        Err(Error::of(Kind::InsufficientResources))
    }

    /// Registers a region (dat_lmr_create).
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub fn register(
        &mut self,
        pz: u32,
        address: u64,
        length: u64,
        rights: MemPriv,
        va_type: VaType,
    ) -> Result<KeyPair> {
        self.local.try_reserve(1).map_err(|_| NO_MEMORY)?;
        self.remote.try_reserve(1).map_err(|_| NO_MEMORY)?;
        let key = self.unused()?;
        // A region may always be read locally, as on every RDMA device: programs send from memory without that right (dtest).
        let rights = rights | MemPriv::LOCAL_READ;
        let start = match va_type {
            VaType::Va => address,
            VaType::ZeroBased => 0,
        };
        self.local.insert(
            key,
            Region {
                pz,
                address,
                length,
                rights,
                start,
            },
        );
        let mut keys = KeyPair {
            lmr_context: key,
            rmr_context: 0,
        };
        if rights.intersects(MemPriv::REMOTE) {
            keys.rmr_context = key | REMOTE;
            let window = Window {
                pz,
                region: key,
                address: start,
                length,
                rights,
                va_type,
                bound: false,
            };
            let memory = address;
            self.remote
                .insert(keys.rmr_context, Opened { window, memory });
        }
        Ok(keys)
    }

    /// Removes a region and all windows on it (dat_lmr_free).
    pub fn deregister(&mut self, lmr_context: u32) {
        self.local.remove(&lmr_context);
        self.remote
            .retain(|_, opened| opened.window.region != lmr_context);
    }

    /// Returns a key for a bind that is executed later, and room for it.
    ///
    /// # Errors
    /// `DAT_INSUFFICIENT_RESOURCES`.
    pub fn reserve(&mut self) -> Result<u32> {
        self.remote.try_reserve(1).map_err(|_| NO_MEMORY)?;
        self.unused().map(|key| key | REMOTE)
    }

    /// Opens `window` with key `rmr_context`. Returns false if the region was deregistered or is in another PZ.
    pub fn open(&mut self, rmr_context: u32, window: Window) -> bool {
        let region = self.local.get(&window.region);
        let memory = region
            .filter(|region| region.pz == window.pz)
            .and_then(|region| region.memory(window.address, window.length));
        if let Some(memory) = memory {
            self.remote.insert(rmr_context, Opened { window, memory });
        }
        memory.is_some()
    }

    /// Closes the window with key `rmr_context`.
    pub fn close(&mut self, rmr_context: u32) {
        self.remote.remove(&rmr_context);
    }

    /// Closes a window for a peer's Send with invalidate; the window must be in `pz`, the receiver's PZ.
    ///
    /// # Errors
    /// `RemoteAccess`: no window has that key, or it is in another PZ.
    pub fn invalidate(&mut self, pz: u32, rmr_context: u32) -> Result<(), DtoStatus> {
        match self.remote.get(&rmr_context) {
            Some(Opened { window, .. }) if window.bound && window.pz == pz => {
                self.close(rmr_context);
                Ok(())
            }
            _ => Err(DtoStatus::RemoteAccess),
        }
    }

    /// Returns the memory of local segments for a queue pair of `pz` that needs `right`.
    ///
    /// # Errors
    /// `LocalProtection`: a segment is not in a region of that PZ, or the right is missing.
    pub fn segments(
        &self,
        pz: u32,
        iov: &[LmrTriplet],
        right: MemPriv,
    ) -> Result<Vec<Range<'_>>, DtoStatus> {
        iov.iter()
            .filter(|segment| segment.segment_length != 0)
            .map(|segment| {
                let length = u64::from(segment.segment_length);
                self.local
                    .get(&segment.lmr_context)
                    .filter(|region| region.pz == pz && region.rights.contains(right))
                    .and_then(|region| region.memory(segment.virtual_address, length))
                    .map(|first| Range::new(first as usize, length as usize))
                    .ok_or(DtoStatus::LocalProtection)
            })
            .collect()
    }

    /// Returns `length` bytes of remote memory, to be accessed through a queue pair of `pz` that needs `right`.
    ///
    /// # Errors
    /// `RemoteAccess`: the range, the right or the PZ is not that of the key.
    pub fn target(
        &self,
        pz: u32,
        at: RmrTriplet,
        length: u64,
        right: MemPriv,
    ) -> Result<Range<'_>, DtoStatus> {
        let Opened { window, memory } = self
            .remote
            .get(&at.rmr_context)
            .filter(|opened| opened.window.pz == pz && opened.window.rights.contains(right))
            .ok_or(DtoStatus::RemoteAccess)?;
        let start = match window.va_type {
            VaType::Va => window.address,
            VaType::ZeroBased => 0,
        };
        within(at.virtual_address, length, start, window.length)
            .then(|| memory + (at.virtual_address - start))
            .map(|first| Range::new(first as usize, length as usize))
            .ok_or(DtoStatus::RemoteAccess)
    }
}

impl Region {
    /// Returns where the bytes that programs name by `[address, address + length)` are in the memory of the process.
    fn memory(&self, address: u64, length: u64) -> Option<u64> {
        within(address, length, self.start, self.length)
            .then(|| self.address + (address - self.start))
    }
}

/// Returns true if `[address, address + length)` is within `[base, base + size)`; the computation does not overflow.
fn within(address: u64, length: u64, base: u64, size: u64) -> bool {
    address
        .checked_sub(base)
        .and_then(|offset| offset.checked_add(length))
        .is_some_and(|end| end <= size)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PZ: u32 = 1;

    fn at(address: u64, key: u32) -> RmrTriplet {
        RmrTriplet {
            virtual_address: address,
            segment_length: 0,
            rmr_context: key,
        }
    }

    #[test]
    fn pz_rights_and_bounds_are_checked() {
        let mut keys = Keys::default();
        let rights = MemPriv::REMOTE_READ;
        let pair = keys.register(PZ, 100, 10, rights, VaType::Va).unwrap();
        let target = |address, length, pz, right| {
            keys.target(pz, at(address, pair.rmr_context), length, right)
                .is_ok()
        };
        assert!(target(100, 10, PZ, MemPriv::REMOTE_READ));
        assert!(!target(100, 10, 2, MemPriv::REMOTE_READ));
        assert!(!target(100, 10, PZ, MemPriv::REMOTE_WRITE));
        assert!(!target(101, 10, PZ, MemPriv::REMOTE_READ));
        assert!(!target(99, 1, PZ, MemPriv::REMOTE_READ));
        let segment = |key| LmrTriplet {
            virtual_address: 100,
            segment_length: 10,
            lmr_context: key,
        };
        let local = |key, right| keys.segments(PZ, &[segment(key)], right).is_ok();
        assert!(local(pair.lmr_context, MemPriv::LOCAL_READ));
        assert!(!local(pair.lmr_context, MemPriv::LOCAL_WRITE));
        assert!(!local(pair.rmr_context, MemPriv::LOCAL_READ));
    }

    #[test]
    fn zero_based_addresses_are_offsets_in_the_region() {
        let mut keys = Keys::default();
        let pair = keys
            .register(PZ, 4096, 8, MemPriv::REMOTE_READ, VaType::ZeroBased)
            .unwrap();
        let range = keys.target(PZ, at(2, pair.rmr_context), 6, MemPriv::REMOTE_READ);
        assert_eq!(range.unwrap().address(), 4098);
        let beyond = keys.target(PZ, at(2, pair.rmr_context), 7, MemPriv::REMOTE_READ);
        assert_eq!(beyond, Err(DtoStatus::RemoteAccess));
    }

    #[test]
    fn windows_end_by_close_by_invalidate_and_with_their_region() {
        let mut keys = Keys::default();
        let pair = keys
            .register(PZ, 100, 10, MemPriv::ALL, VaType::Va)
            .unwrap();
        let window = Window {
            pz: PZ,
            region: pair.lmr_context,
            address: 102,
            length: 4,
            rights: MemPriv::REMOTE_READ,
            va_type: VaType::Va,
            bound: true,
        };
        let mut bind = |window| {
            let key = keys.reserve().unwrap();
            (keys.open(key, window), key)
        };
        let (opened, first) = bind(window);
        let (again, second) = bind(window);
        assert!(opened && again && first != second);
        assert!(!bind(Window { pz: 2, ..window }).0);
        assert!(
            !bind(Window {
                length: 9,
                ..window
            })
            .0
        );
        let read = |keys: &Keys, key| {
            keys.target(PZ, at(102, key), 4, MemPriv::REMOTE_READ)
                .is_ok()
        };
        assert!(read(&keys, first) && read(&keys, second));
        assert!(keys.invalidate(2, first).is_err());
        assert!(keys.invalidate(PZ, pair.rmr_context).is_err());
        keys.invalidate(PZ, first).unwrap();
        assert!(!read(&keys, first) && read(&keys, second));
        keys.deregister(pair.lmr_context);
        assert!(!read(&keys, second));
    }
}
