//! A mutex with parking_lot's interface.

use std::ops::{Deref, DerefMut};
use std::sync::OnceLock;

/// Mutex with parking_lot's interface.
pub struct Mutex<T> {
    first: std::sync::Mutex<Option<T>>,
    modelled: OnceLock<loom::sync::Mutex<T>>,
}

/// Guard of a [`Mutex`].
pub struct MutexGuard<'a, T>(loom::sync::MutexGuard<'a, T>);

impl<T> Mutex<T> {
    /// Creates the mutex.
    pub const fn new(value: T) -> Self {
        Self {
            first: std::sync::Mutex::new(Some(value)),
            modelled: OnceLock::new(),
        }
    }

    /// Locks the mutex.
    ///
    /// # Panics
    /// If a thread panicked while it held the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        MutexGuard(self.modelled().lock().expect("no holder panicked"))
    }

    /// Locks the mutex if it is free.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.modelled().try_lock().ok().map(MutexGuard)
    }

    fn modelled(&self) -> &loom::sync::Mutex<T> {
        self.modelled.get_or_init(|| {
            let value = self.first.lock().expect("nothing panics here").take();
            loom::sync::Mutex::new(value.expect("it is taken once"))
        })
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> std::fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
