//! The C `va_list` of each processor's calling convention, as far as dat_extension_op needs it: all arguments of all extensions are
//! integers and pointers.
//!
//! A C function with a parameter of type `va_list` gets the address of a [`VaList`] on both processors: on x86-64 the type is an
//! array, on 64-bit ARM a structure of more than 16 bytes, of which the caller passes the address of a copy.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub use aarch64::VaList;
#[cfg(target_arch = "x86_64")]
pub use x86_64::VaList;

#[cfg(not(any(target_arch = "aarch64", target_arch = "x86_64")))]
compile_error!("dat-abi knows the C va_list of x86-64 and aarch64 only");
