//! Typed views of memory (feature `bytemuck`).

use bytemuck::{AnyBitPattern, NoUninit};

use super::region::Region;

impl Region {
    /// Copies a value from `offset`. If peers or other threads write it meanwhile, each byte is an old or a new one.
    ///
    /// ```
    /// use bytemuck::{Pod, Zeroable};
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
    /// #[repr(C)]
    /// struct Record {
    ///     key: u64,
    ///     values: [f32; 2],
    /// }
    ///
    /// let pz = Ia::open("softrxe-lo")?.create_pz()?;
    /// let table = pz.allocate(100 * size_of::<Record>(), Access::ALL)?;
    /// let record = Record { key: 3, values: [0.5, 1.5] };
    /// table.write_value(3 * size_of::<Record>(), &record);
    /// assert_eq!(table.read_value::<Record>(3 * size_of::<Record>()), record);
    /// # Ok(())
    /// # }
    /// ```
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

    /// Copies values from `offset`, as many as `into` has. If peers or other threads write them meanwhile, each byte is an old or a new
    /// one.
    ///
    /// ```
    /// use udapl::{Access, Ia};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// let gradient = vec![0.5_f32; 1000];
    /// let region = Ia::open("softrxe-lo")?.create_pz()?.allocate(4 * 1000, Access::ALL)?;
    /// region.write_values(0, &gradient);
    /// let mut back = vec![0.0_f32; 500];
    /// region.read_values(4 * 500, &mut back); // the second half
    /// assert_eq!(back, gradient[500..]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the values leave the region.
    pub fn read_values<T: AnyBitPattern + NoUninit>(&self, offset: usize, into: &mut [T]) {
        self.read(offset, bytemuck::cast_slice_mut(into));
    }

    /// Copies values to `offset`.
    ///
    /// Example: [`Region::read_values`].
    ///
    /// # Panics
    /// If the values leave the region.
    pub fn write_values<T: NoUninit>(&self, offset: usize, values: &[T]) {
        self.write(offset, bytemuck::cast_slice(values));
    }
}
