//! The `va_list` of the System V ABI for x86-64.

/// The arguments of a C function with variable arguments.
#[repr(C)]
#[derive(Debug)]
pub struct VaList {
    gp_offset: u32,
    fp_offset: u32,
    overflow: *const u64,
    registers: *const u8,
}

/// End of the six integer registers in the register save area.
const REGISTERS_END: u32 = 48;
/// End of the vector registers there.
const VECTORS_END: u32 = 304;

impl VaList {
    /// Makes a list of these arguments, which must outlive it. Its registers count as read, so that all arguments are in memory.
    #[must_use]
    pub const fn in_memory(arguments: &[u64]) -> Self {
        Self {
            gp_offset: REGISTERS_END,
            fp_offset: VECTORS_END,
            overflow: arguments.as_ptr(),
            registers: std::ptr::null(),
        }
    }

    /// Returns the next argument as 64 bits; for a narrower type only the low part is defined.
    ///
    /// # Safety
    /// A C caller made the list, or its arguments still live; and it has another argument of an integer or pointer type.
    pub unsafe fn word(&mut self) -> u64 {
        // SAFETY: offsets and pointers are as the ABI says; the caller promises another argument.
        unsafe {
            if self.gp_offset < REGISTERS_END {
                let at = self.registers.add(self.gp_offset as usize).cast::<u64>();
                self.gp_offset += 8;
                at.read()
            } else {
                let at = self.overflow;
                self.overflow = at.add(1);
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
        let (registers, memory) = ([1_u64, 2, 3, 4, 5, 6], [7_u64, 8]);
        let mut list = VaList {
            gp_offset: 16,
            registers: registers.as_ptr().cast(),
            ..VaList::in_memory(&memory)
        };
        for expected in 3..=8 {
            // SAFETY: four words in registers and two in memory are left.
            assert_eq!(unsafe { list.word() }, expected);
        }
    }
}
