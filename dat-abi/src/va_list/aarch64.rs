//! The `va_list` of the procedure call standard for 64-bit ARM (AAPCS64, appendix "Variable argument lists").

/// The arguments of a C function with variable arguments.
#[repr(C)]
#[derive(Debug)]
pub struct VaList {
    stack: *const u64,
    /// End of the saved integer registers, and of the saved vector registers.
    gr_top: *const u8,
    vr_top: *const u8,
    /// Offset of the next saved register from the end; 0 when none is left.
    gr_offs: i32,
    vr_offs: i32,
}

impl VaList {
    /// Makes a list of these arguments, which must outlive it. Its registers count as read, so that all arguments are in memory.
    #[must_use]
    pub const fn in_memory(arguments: &[u64]) -> Self {
        Self {
            stack: arguments.as_ptr(),
            gr_top: std::ptr::null(),
            vr_top: std::ptr::null(),
            gr_offs: 0,
            vr_offs: 0,
        }
    }

    /// Returns the next argument as 64 bits; for a narrower type only the low part is defined.
    ///
    /// # Safety
    /// A C caller made the list, or its arguments still live; and it has another argument of an integer or pointer type.
    pub unsafe fn word(&mut self) -> u64 {
        // SAFETY: offsets and pointers are as the standard says; the caller promises another argument.
        unsafe {
            if self.gr_offs < 0 {
                let at = self.gr_top.offset(self.gr_offs as isize).cast::<u64>();
                self.gr_offs += 8;
                at.read()
            } else {
                let at = self.stack;
                self.stack = at.add(1);
                at.read()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_come_before_memory() {
        let (registers, memory) = ([1_u64, 2, 3, 4, 5, 6, 7, 8], [9_u64, 10]);
        let mut list = VaList {
            gr_offs: -48,
            gr_top: registers.as_ptr_range().end.cast(),
            ..VaList::in_memory(&memory)
        };
        for expected in 3..=10 {
            // SAFETY: six words in registers and two in memory are left.
            assert_eq!(unsafe { list.word() }, expected);
        }
    }
}
