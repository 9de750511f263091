//! Typed views of memory (feature `bytemuck`).

use bytemuck::{AnyBitPattern, NoUninit};

use super::region::Region;

impl Region {
    /// Copies a value from `offset`. If peers or other threads write it meanwhile, each byte is an old or a new one.
    ///
    /// # Panics
    /// If the value leaves the region.
    #[must_use]
    pub fn read_value<T: AnyBitPattern + NoUninit>(&self, offset: usize) -> T {
        let mut value = T::zeroed();
        self.read(offset, bytemuck::bytes_of_mut(&mut value));
        value
    }

    /// Copies a value to `offset`.
    ///
    /// # Panics
    /// If the value leaves the region.
    pub fn write_value<T: NoUninit>(&self, offset: usize, value: &T) {
        self.write(offset, bytemuck::bytes_of(value));
    }
}
