//! The `va_list` of the ELF application binary interface for s390x.

/// The arguments of a C function with variable arguments.
#[repr(C)]
#[derive(Debug)]
pub struct VaList {
    /// Numbers of the integer and of the vector registers that were read.
    gpr: u64,
    fpr: u64,
    overflow: *const u64,
    registers: *const u64,
}

/// Integer registers that have arguments: r2 to r6.
const REGISTERS: u64 = 5;
/// Floating-point registers that have arguments.
const FLOATS: u64 = 4;
/// Position of r2 among the saved registers.
const FIRST: u64 = 2;

impl VaList {
    /// Makes a list of these arguments, which must outlive it. Its registers count as read, so that all arguments are in memory.
    #[must_use]
    pub const fn in_memory(arguments: &[u64]) -> Self {
        Self {
            gpr: REGISTERS,
            fpr: FLOATS,
            overflow: arguments.as_ptr(),
            registers: std::ptr::null(),
        }
    }

    /// Returns the next argument as 64 bits; for a narrower type only the low part is defined.
    ///
    /// # Safety
    /// A C caller made the list, or its arguments still live; and it has another argument of an integer or pointer type.
    pub unsafe fn word(&mut self) -> u64 {
        // SAFETY: numbers and pointers are as the interface says; the caller promises another argument.
        unsafe {
            if self.gpr < REGISTERS {
                let at = self.registers.add((FIRST + self.gpr) as usize);
                self.gpr += 1;
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
        let (registers, memory) = ([0_u64, 0, 1, 2, 3, 4, 5], [6_u64, 7]);
        let mut list = VaList {
            gpr: 2,
            registers: registers.as_ptr(),
            ..VaList::in_memory(&memory)
        };
        for expected in 3..=7 {
            // SAFETY: three words in registers and two in memory are left.
            assert_eq!(unsafe { list.word() }, expected);
        }
    }
}
