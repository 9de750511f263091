//! Recovery from faults on x86-64: the instructions that may fault, and where the thread continues after a fault.

use super::Fault;

/// Faults can be caught.
pub(super) const RECOVERS_FAULTS: bool = true;

// No instruction between `begin` and `end` changes the stack, so that after a fault at any of them the function can return 1.
std::arch::global_asm!(
    ".pushsection .text.dat_softrxe_guard,\"ax\",@progbits",
    ".globl dat_softrxe_guard_copy",
    ".hidden dat_softrxe_guard_copy",
    ".globl dat_softrxe_guard_store8",
    ".hidden dat_softrxe_guard_store8",
    ".globl dat_softrxe_guard_store4",
    ".hidden dat_softrxe_guard_store4",
    ".globl dat_softrxe_guard_store2",
    ".hidden dat_softrxe_guard_store2",
    ".globl dat_softrxe_guard_store1",
    ".hidden dat_softrxe_guard_store1",
    ".globl dat_softrxe_guard_exchange",
    ".hidden dat_softrxe_guard_exchange",
    ".globl dat_softrxe_guard_begin",
    ".hidden dat_softrxe_guard_begin",
    ".globl dat_softrxe_guard_end",
    ".hidden dat_softrxe_guard_end",
    ".globl dat_softrxe_guard_fault",
    ".hidden dat_softrxe_guard_fault",
    ".globl dat_softrxe_guard_entry",
    ".hidden dat_softrxe_guard_entry",
    ".balign 64",
    "dat_softrxe_guard_begin:",
    // copy(to rdi, from rsi, bytes rdx)
    "dat_softrxe_guard_copy:",
    "cmp rdx, 16",
    "jb 4f",
    "cmp rdx, 1024",
    "jae 8f",
    // The last 16 bytes are read first and written last; those before them are copied in pieces of 64 and 16.
    "movups xmm4, [rsi + rdx - 16]",
    "lea r8, [rdi + rdx - 16]",
    "cmp rdx, 64",
    "jb 3f",
    "2:",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movups [rdi], xmm0",
    "movups [rdi + 16], xmm1",
    "movups [rdi + 32], xmm2",
    "movups [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "cmp rdx, 64",
    "jae 2b",
    "3:",
    "cmp rdx, 16",
    "jbe 9f",
    "movups xmm0, [rsi]",
    "movups [rdi], xmm0",
    "add rsi, 16",
    "add rdi, 16",
    "sub rdx, 16",
    "jmp 3b",
    "9:",
    "movups [r8], xmm4",
    "xor eax, eax",
    "ret",
    // Fewer than 16.
    "4:",
    "cmp rdx, 8",
    "jb 5f",
    "mov rax, [rsi]",
    "mov rcx, [rsi + rdx - 8]",
    "mov [rdi], rax",
    "mov [rdi + rdx - 8], rcx",
    "xor eax, eax",
    "ret",
    "5:",
    "cmp rdx, 4",
    "jb 6f",
    "mov eax, [rsi]",
    "mov ecx, [rsi + rdx - 4]",
    "mov [rdi], eax",
    "mov [rdi + rdx - 4], ecx",
    "xor eax, eax",
    "ret",
    "6:",
    "test rdx, rdx",
    "je 7f",
    "movzx eax, byte ptr [rsi]",
    "mov [rdi], al",
    "inc rsi",
    "inc rdi",
    "dec rdx",
    "jmp 6b",
    "7:",
    "xor eax, eax",
    "ret",
    // From 1024 bytes on the processor's string instruction is fastest.
    "8:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // store(to rdi, value rsi), of 8, 4, 2 and 1 bytes
    "dat_softrxe_guard_store8:",
    "mov [rdi], rsi",
    "xor eax, eax",
    "ret",
    "dat_softrxe_guard_store4:",
    "mov [rdi], esi",
    "xor eax, eax",
    "ret",
    "dat_softrxe_guard_store2:",
    "mov [rdi], si",
    "xor eax, eax",
    "ret",
    "dat_softrxe_guard_store1:",
    "mov [rdi], sil",
    "xor eax, eax",
    "ret",
    // exchange(at rdi, expected rsi, new rdx): stores the old value in *rsi
    "dat_softrxe_guard_exchange:",
    "mov rax, [rsi]",
    "lock cmpxchg [rdi], rdx",
    "mov [rsi], rax",
    "xor eax, eax",
    "ret",
    "dat_softrxe_guard_end:",
    "dat_softrxe_guard_fault:",
    "mov eax, 1",
    "ret",
    // The signal handler: passes the address of the signal's frame as the fourth argument, which is right if the kernel called it.
    "dat_softrxe_guard_entry:",
    "lea rcx, [rsp + 8]",
    "jmp {handler}",
    ".popsection",
    handler = sym super::signals::on_fault,
);

unsafe extern "C" {
    fn dat_softrxe_guard_copy(to: usize, from: usize, bytes: usize) -> u32;
    fn dat_softrxe_guard_store8(to: usize, value: u64) -> u32;
    fn dat_softrxe_guard_store4(to: usize, value: u32) -> u32;
    fn dat_softrxe_guard_store2(to: usize, value: u16) -> u32;
    fn dat_softrxe_guard_store1(to: usize, value: u8) -> u32;
    fn dat_softrxe_guard_exchange(at: usize, expected: *mut u64, new: u64) -> u32;
    fn dat_softrxe_guard_begin();
    fn dat_softrxe_guard_end();
    fn dat_softrxe_guard_fault();
    fn dat_softrxe_guard_entry();
}

/// Converts the return value of the functions above.
const fn result(code: u32) -> Result<(), Fault> {
    if code == 0 { Ok(()) } else { Err(Fault) }
}

/// Copies. Source or destination may fault.
///
/// # Safety
/// Source and destination are memory of this crate of that length, or registered memory.
pub(super) unsafe fn copy(to: usize, from: usize, length: usize) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    result(unsafe { dat_softrxe_guard_copy(to, from, length) })
}

/// Stores 1, 2, 4 or 8 bytes in one store; copies any other number.
///
/// # Safety
/// `to` is registered memory.
pub(super) unsafe fn store(to: usize, bytes: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise. x86 stores become visible in program order.
    result(unsafe {
        match *bytes {
            [a] => dat_softrxe_guard_store1(to, a),
            [a, b] => dat_softrxe_guard_store2(to, u16::from_ne_bytes([a, b])),
            [a, b, c, d] => dat_softrxe_guard_store4(to, u32::from_ne_bytes([a, b, c, d])),
            [a, b, c, d, e, f, g, h] => {
                dat_softrxe_guard_store8(to, u64::from_ne_bytes([a, b, c, d, e, f, g, h]))
            }
            _ => dat_softrxe_guard_copy(to, bytes.as_ptr() as usize, bytes.len()),
        }
    })
}

/// Replaces 8 aligned bytes atomically; returns the old value.
///
/// # Safety
/// `at` is registered memory, and a multiple of 8.
pub(super) unsafe fn update(at: usize, mut f: impl FnMut(u64) -> u64) -> Result<u64, Fault> {
    let mut expected = 0;
    loop {
        let mut seen = expected;
        // SAFETY: the caller's promise; `seen` is a local variable.
        result(unsafe { dat_softrxe_guard_exchange(at, &raw mut seen, f(expected)) })?;
        if seen == expected {
            return Ok(seen);
        }
        expected = seen;
    }
}

/// Returns the signal handler.
pub(super) fn entry() -> Option<usize> {
    Some(dat_softrxe_guard_entry as *const () as usize)
}

/// Makes the interrupted thread continue where it recovers, if it was at an instruction that may fault. Returns whether it was.
///
/// # Safety
/// `context` is the argument of a signal handler, which returns afterwards.
pub(super) unsafe fn recover(context: *mut libc::ucontext_t) -> bool {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context).uc_mcontext.gregs };
    let instruction = registers[libc::REG_RIP as usize] as usize;
    let begin = dat_softrxe_guard_begin as *const () as usize;
    let end = dat_softrxe_guard_end as *const () as usize;
    let is_guarded = (begin..end).contains(&instruction);
    if is_guarded {
        registers[libc::REG_RIP as usize] = dat_softrxe_guard_fault as *const () as i64;
    }
    is_guarded
}
