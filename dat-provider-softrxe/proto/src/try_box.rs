//! A box whose allocation can fail, which `std` does not have.

use std::collections::TryReserveError;
use std::ops::{Deref, DerefMut};

/// A box. It holds an array of one, because a `Vec` has a fallible allocation and becomes such a box without another one.
#[derive(Debug)]
pub(crate) struct TryBox<T>(Box<[T; 1]>);

impl<T> TryBox<T> {
    pub(crate) fn new(value: T) -> Result<Self, TryReserveError> {
        let mut one = Vec::new();
        one.try_reserve_exact(1)?;
        one.push(value);
        match one.into_boxed_slice().try_into() {
            Ok(one) => Ok(Self(one)),
            Err(_) => unreachable!("one was pushed"),
        }
    }
}

impl<T> Deref for TryBox<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0[0]
    }
}

impl<T> DerefMut for TryBox<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0[0]
    }
}
