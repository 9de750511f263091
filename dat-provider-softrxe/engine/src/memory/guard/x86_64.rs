//! The instructions that may fault on x86-64, and the register of the thread that continues after a fault.

use std::sync::atomic::{AtomicUsize, Ordering};

use dat_os::processor::is_amd;

// No instruction between `begin` and `end` changes the stack, so that after a fault at any of them the function can return 1.
std::arch::global_asm!(
    ".pushsection .text.dat_softrxe_guard,\"ax\",@progbits",
    hidden!("copy", "stream", "store8", "store4", "store2", "store1", "exchange", "begin", "end", "fault", "entry"),
    ".balign 64",
    "dat_softrxe_guard_begin:",
    // copy(to rdi, from rsi, bytes rdx)
    "dat_softrxe_guard_copy:",
    "cmp rdx, 16",
    "jb 4f",
    "cmp rdx, [rip + {string_min}]",
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
    // The processor's string instruction.
    "8:",
    "mov rcx, rdx",
    "rep movsb",
    "xor eax, eax",
    "ret",
    // stream(to rdi, a multiple of 16, from rsi, bytes rdx, 16 or more): past the caches.
    "dat_softrxe_guard_stream:",
    "movups xmm4, [rsi + rdx - 16]",
    "lea r8, [rdi + rdx - 16]",
    "2:",
    "cmp rdx, 64",
    "jb 8f",
    "movups xmm0, [rsi]",
    "movups xmm1, [rsi + 16]",
    "movups xmm2, [rsi + 32]",
    "movups xmm3, [rsi + 48]",
    "movntps [rdi], xmm0",
    "movntps [rdi + 16], xmm1",
    "movntps [rdi + 32], xmm2",
    "movntps [rdi + 48], xmm3",
    "add rsi, 64",
    "add rdi, 64",
    "sub rdx, 64",
    "jmp 2b",
    // The stores above are not ordered with later ones otherwise. The rest is copied as above.
    "8:",
    "sfence",
    "jmp 3b",
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
    string_min = sym STRING_MIN,
);

/// Length from which on the string instruction copies. On processors of Intel it is the fastest way from there on. On those of AMD it never
/// is: between the caches of two processors it takes twice the time (Zen 4), and fifteen times if the destination is 1 to 15 bytes behind
/// the source, modulo the size of a page.
static STRING_MIN: AtomicUsize = AtomicUsize::new(1024);

/// Adapts the copies to the processor.
pub(super) fn adapt() {
    if is_amd() {
        STRING_MIN.store(usize::MAX, Ordering::Relaxed);
    }
}

unsafe extern "C" {
    fn dat_softrxe_guard_fault();
}

/// Returns the address of the interrupted instruction.
pub(super) const fn instruction(context: &libc::ucontext_t) -> usize {
    context.uc_mcontext.gregs[libc::REG_RIP as usize] as usize
}

/// Lets the interrupted function return 1.
pub(super) fn fail(context: &mut libc::ucontext_t) {
    let resume = dat_softrxe_guard_fault as *const () as i64;
    context.uc_mcontext.gregs[libc::REG_RIP as usize] = resume;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::guard::{copy_own, recovery};

    /// Copies parts of `length` bytes with `copy`, at all offsets of `to` in `aligned` and some of the source.
    fn check(length: usize, aligned: &[usize], copy: unsafe fn(usize, usize, usize)) {
        let from: Vec<u8> = (0..70_000_u32).map(|n| (n * 7 + n / 256) as u8).collect();
        for to_at in aligned.iter().copied() {
            for from_at in [0, 1, 7, 63] {
                let mut to = vec![0xa5_u8; 64 + to_at + length + 8];
                let base = to.as_mut_ptr() as usize;
                let at = base.next_multiple_of(64) - base + to_at;
                // SAFETY: both ranges are within their vectors, and apart.
                unsafe { copy(base + at, from.as_ptr() as usize + from_at, length) };
                assert_eq!(to[at..][..length], from[from_at..][..length], "{length}");
                assert!(to[..at].iter().all(|byte| *byte == 0xa5), "{length}");
                assert!(to[at + length..].iter().all(|byte| *byte == 0xa5));
            }
        }
    }

    #[test]
    fn both_ways_to_copy_long_payloads_copy_all_bytes_and_no_other() {
        let before = STRING_MIN.load(Ordering::Relaxed);
        // Other tests may copy at the same time; for them both ways are right as well.
        for string_min in [1024, usize::MAX] {
            STRING_MIN.store(string_min, Ordering::Relaxed);
            for length in [1023, 1024, 1025, 1039, 1040, 4095, 4096, 32_768, 65_537] {
                check(length, &[0, 1, 15, 63], copy_own);
            }
        }
        STRING_MIN.store(before, Ordering::Relaxed);
    }

    #[test]
    fn a_copy_past_the_caches_copies_all_bytes_and_no_other() {
        unsafe fn copy(to: usize, from: usize, length: usize) {
            // SAFETY: the caller's promise.
            unsafe { recovery::stream(to, from, length) }.expect("mapped memory");
        }
        for length in (0..200).chain([1023, 1024, 1025, 2047, 2048, 4096, 32_767, 32_768]) {
            check(length, &[0, 1, 16, 48], copy);
        }
    }
}
