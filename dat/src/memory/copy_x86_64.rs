//! Copies by assembly. Loads and stores of x86-64 become visible in program order, so a copy also publishes what precedes it.

use std::arch::asm;

/// Length from which the processor's string instruction is fastest.
const STRING: usize = 1024;

/// Copies out of shared memory.
///
/// # Safety
/// Both ranges are valid; `to` is exclusive.
#[inline]
pub(super) unsafe fn read(from: *const u8, to: *mut u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(from, to, length) }
}

/// Copies into shared memory.
///
/// # Safety
/// Both ranges are valid; `from` is not written meanwhile.
#[inline]
pub(super) unsafe fn write(to: *mut u8, from: *const u8, length: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy(from, to, length) }
}

/// Loads one byte. Loads of x86-64 acquire.
///
/// # Safety
/// `from` is valid.
#[inline]
pub(super) unsafe fn load(from: *const u8) -> u8 {
    let byte;
    // SAFETY: the caller's promise; accesses of memory do not move across the assembly, which may access any.
    unsafe {
        asm!("mov {x}, [{from}]", x = out(reg_byte) byte, from = in(reg) from,
            options(nostack, preserves_flags));
    }
    byte
}

/// Copies. The ranges do not overlap.
#[inline]
unsafe fn copy(mut from: *const u8, mut to: *mut u8, mut length: usize) {
    // SAFETY: each instruction accesses bytes of the ranges only; the string instruction changes the registers that it names, and
    // the direction flag is clear by the calling convention.
    unsafe {
        if length >= STRING {
            asm!("rep movsb", inout("rcx") length => _, inout("rsi") from => _, inout("rdi") to => _,
                options(nostack, preserves_flags));
            return;
        }
        while length >= 16 {
            asm!("movups {x}, [{from}]", "movups [{to}], {x}", x = out(xmm_reg) _, from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags));
            (from, to, length) = (from.add(16), to.add(16), length - 16);
        }
        if length >= 8 {
            asm!("mov {x}, [{from}]", "mov [{to}], {x}", x = out(reg) _, from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags));
            (from, to, length) = (from.add(8), to.add(8), length - 8);
        }
        while length > 0 {
            asm!("mov {x}, [{from}]", "mov [{to}], {x}", x = out(reg_byte) _, from = in(reg) from, to = in(reg) to,
                options(nostack, preserves_flags));
            (from, to, length) = (from.add(1), to.add(1), length - 1);
        }
    }
}
