//! The C `va_list` of each processor's calling convention, as far as dat_extension_op needs it: all arguments of all extensions are
//! integers and pointers.
//!
//! A C function with a parameter of type `va_list` gets the address of a [`VaList`] on x86-64 and s390x, where the type is an array.
//! It also does on 64-bit ARM, where the type is a structure of more than 16 bytes: the caller passes the address of a copy. On
//! Power it gets the list itself, a pointer. [`VaList::as_parameter`] and [`VaList::from_parameter`] know that.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(all(target_arch = "powerpc64", target_endian = "little"))]
mod powerpc64;
#[cfg(target_arch = "s390x")]
mod s390x;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::VaList;
#[cfg(all(target_arch = "powerpc64", target_endian = "little"))]
pub use powerpc64::VaList;
#[cfg(target_arch = "s390x")]
pub use s390x::VaList;
#[cfg(target_arch = "x86_64")]
pub use x86_64::VaList;

#[cfg(any(target_arch = "aarch64", target_arch = "s390x", target_arch = "x86_64"))]
impl VaList {
    /// Returns what a C function with a parameter of type `va_list` gets.
    #[must_use]
    pub const fn as_parameter(&mut self) -> *mut std::ffi::c_void {
        std::ptr::from_mut(self).cast()
    }

    /// Returns a copy of the list that a C function with a parameter of type `va_list` got; `None` for NULL.
    ///
    /// # Safety
    /// `parameter` is NULL or was passed as a `va_list`.
    #[must_use]
    pub unsafe fn from_parameter(parameter: *mut std::ffi::c_void) -> Option<Self> {
        // SAFETY: NULL or a list by the caller's promise. A callee may read a list, and its caller may not use it afterwards, so a copy
        // does as well.
        (!parameter.is_null()).then(|| unsafe { parameter.cast::<Self>().read() })
    }
}

#[cfg(not(any(
    target_arch = "aarch64",
    target_arch = "s390x",
    target_arch = "x86_64",
    all(target_arch = "powerpc64", target_endian = "little")
)))]
compile_error!(
    "dat-abi knows the C va_list of x86-64, 64-bit ARM, s390x and 64-bit Power (little endian) only"
);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_that_gets_a_list_reads_the_callers_next_argument() {
        let words = [1_u64, 2, 3];
        let mut list = VaList::in_memory(&words);
        // SAFETY: three words.
        assert_eq!(unsafe { list.word() }, 1);
        // SAFETY: the parameter of this list; two words are left.
        unsafe {
            let mut passed = VaList::from_parameter(list.as_parameter()).unwrap();
            assert_eq!((passed.word(), passed.word()), (2, 3));
            assert!(VaList::from_parameter(std::ptr::null_mut()).is_none());
        }
    }
}
