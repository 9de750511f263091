//! The instructions that may fault on 64-bit ARM, and the register of the thread that continues after a fault.

// No instruction between `begin` and `end` changes the stack or the link register, so that after a fault at any of them the function
// can return 1.
std::arch::global_asm!(
    ".pushsection .text.dat_softrxe_guard,\"ax\",%progbits",
    hidden!("copy", "store8", "store4", "store2", "store1", "exchange", "begin", "end", "fault", "entry"),
    ".balign 64",
    "dat_softrxe_guard_begin:",
    // copy(to x0, from x1, bytes x2)
    "dat_softrxe_guard_copy:",
    "cmp x2, #16",
    "b.lo 4f",
    // The last 16 bytes are read first and written last; those before them are copied in pieces of 64 and 16.
    "add x3, x1, x2",
    "ldur q4, [x3, #-16]",
    "add x4, x0, x2",
    "2:",
    "cmp x2, #64",
    "b.lo 3f",
    "ldp q0, q1, [x1]",
    "ldp q2, q3, [x1, #32]",
    "stp q0, q1, [x0]",
    "stp q2, q3, [x0, #32]",
    "add x1, x1, #64",
    "add x0, x0, #64",
    "sub x2, x2, #64",
    "b 2b",
    "3:",
    "cmp x2, #16",
    "b.ls 9f",
    "ldr q0, [x1], #16",
    "str q0, [x0], #16",
    "sub x2, x2, #16",
    "b 3b",
    "9:",
    "stur q4, [x4, #-16]",
    "mov w0, #0",
    "ret",
    // Fewer than 16.
    "4:",
    "add x3, x1, x2",
    "add x4, x0, x2",
    "cmp x2, #8",
    "b.lo 5f",
    "ldr x5, [x1]",
    "ldur x6, [x3, #-8]",
    "str x5, [x0]",
    "stur x6, [x4, #-8]",
    "mov w0, #0",
    "ret",
    "5:",
    "cmp x2, #4",
    "b.lo 6f",
    "ldr w5, [x1]",
    "ldur w6, [x3, #-4]",
    "str w5, [x0]",
    "stur w6, [x4, #-4]",
    "mov w0, #0",
    "ret",
    "6:",
    "cbz x2, 7f",
    "ldrb w5, [x1], #1",
    "strb w5, [x0], #1",
    "sub x2, x2, #1",
    "b 6b",
    "7:",
    "mov w0, #0",
    "ret",
    // store(to x0, value x1), of 8, 4, 2 and 1 bytes, after all stores before it
    "dat_softrxe_guard_store8:",
    "stlr x1, [x0]",
    "mov w0, #0",
    "ret",
    "dat_softrxe_guard_store4:",
    "stlr w1, [x0]",
    "mov w0, #0",
    "ret",
    "dat_softrxe_guard_store2:",
    "stlrh w1, [x0]",
    "mov w0, #0",
    "ret",
    "dat_softrxe_guard_store1:",
    "stlrb w1, [x0]",
    "mov w0, #0",
    "ret",
    // exchange(at x0, expected x1, new x2): stores the old value in *x1
    "dat_softrxe_guard_exchange:",
    "ldr x3, [x1]",
    "2:",
    "ldaxr x4, [x0]",
    "cmp x4, x3",
    "b.ne 3f",
    "stlxr w5, x2, [x0]",
    "cbnz w5, 2b",
    "b 4f",
    "3:",
    "clrex",
    "4:",
    "str x4, [x1]",
    "mov w0, #0",
    "ret",
    "dat_softrxe_guard_end:",
    "dat_softrxe_guard_fault:",
    "mov w0, #1",
    "ret",
    // The signal handler: passes the address of the context in the signal's frame, behind the 128 bytes of the siginfo, as the fourth
    // argument, which is right if the kernel called it.
    "dat_softrxe_guard_entry:",
    "add x3, sp, #128",
    "b {handler}",
    ".popsection",
    handler = sym super::signals::on_fault,
);

unsafe extern "C" {
    fn dat_softrxe_guard_fault();
}

/// Returns the address of the interrupted instruction.
pub(super) const fn instruction(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.pc as usize
}

/// Lets the interrupted function return 1.
pub(super) fn fail(context: &mut libc::ucontext_t) {
    context.uc_mcontext.pc = dat_softrxe_guard_fault as *const () as u64;
}
