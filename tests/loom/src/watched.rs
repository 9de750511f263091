//! Data whose accesses the code under test must order.

use loom::cell::UnsafeCell;

/// A value without a lock of its own. Loom ends the model if two threads access it, one of them writing, and the code
/// does not order the accesses.
#[derive(Debug)]
pub struct Watched<T>(UnsafeCell<T>);

// SAFETY: loom runs one thread at a time, and the accesses below end before another runs.
unsafe impl<T: Send> Send for Watched<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Watched<T> {}

impl<T: Copy> Watched<T> {
    /// Creates the value.
    pub fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    /// Reads the value.
    pub fn read(&self) -> T {
        // SAFETY: loom has seen that no write is under way.
        self.0.with(|value| unsafe { *value })
    }

    /// Writes the value.
    pub fn write(&self, value: T) {
        // SAFETY: loom has seen that no other access is under way.
        self.0.with_mut(|to| unsafe { *to = value });
    }
}
