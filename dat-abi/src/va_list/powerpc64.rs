//! The `va_list` of the 64-bit ELF V2 ABI for Power: a pointer to the next argument, as the caller leaves room in memory for the
//! registers too.

use std::ffi::c_void;

/// The arguments of a C function with variable arguments.
#[repr(transparent)]
#[derive(Debug)]
pub struct VaList {
    next: *const u64,
}

impl VaList {
    /// Makes a list of these arguments, which must outlive it.
    #[must_use]
    pub const fn in_memory(arguments: &[u64]) -> Self {
        Self {
            next: arguments.as_ptr(),
        }
    }

    /// Returns what a C function with a parameter of type `va_list` gets.
    #[must_use]
    pub const fn as_parameter(&mut self) -> *mut c_void {
        self.next.cast_mut().cast()
    }

    /// Returns a copy of the list that a C function with a parameter of type `va_list` got; `None` for NULL.
    ///
    /// # Safety
    /// `parameter` is NULL or was passed as a `va_list`.
    #[must_use]
    pub unsafe fn from_parameter(parameter: *mut c_void) -> Option<Self> {
        let next = parameter.cast::<u64>().cast_const();
        (!next.is_null()).then_some(Self { next })
    }

    /// Returns the next argument as 64 bits; for a narrower type only the low part is defined.
    ///
    /// # Safety
    /// A C caller made the list, or its arguments still live; and it has another argument of an integer or pointer type.
    pub unsafe fn word(&mut self) -> u64 {
        // SAFETY: the caller promises another argument.
        unsafe {
            let at = self.next;
            self.next = at.add(1);
            at.read()
        }
    }
}
