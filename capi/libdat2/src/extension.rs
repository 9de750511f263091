//! dat_extension_op, the only function with variable arguments.
//!
//! Stable Rust cannot define such a function. Assembly collects the arguments into a `va_list` of the processor's calling
//! convention (all arguments of all extensions are integers and pointers) and calls [`dat_extension_op_va`].

use std::ffi::{CStr, CString, c_char, c_void};

use dat_abi::ret::unpack_v2_0;
use dat_abi::types::DatHandle;
use dat_abi::v2_0::table::DatProvider;
use dat_abi::va_list::VaList;
use dat_core::error::{Error, Kind, Result, Subtype};
use dat_registry::catalog::Request;

use crate::redirect;
use crate::registry::{LIBRARY, add_ours, registry};

/// `DAT_IB_OPEN_QUERY_OP`.
const OPEN_QUERY: i32 = 0x1000;

#[cfg(target_arch = "x86_64")]
std::arch::global_asm!(
    ".globl dat_extension_op",
    ".type dat_extension_op, @function",
    "dat_extension_op:",
    ".cfi_startproc",
    "push rbp",
    ".cfi_def_cfa_offset 16",
    ".cfi_offset rbp, -16",
    "mov rbp, rsp",
    ".cfi_def_cfa_register rbp",
    "sub rsp, 80",
    // The register save area at rsp+32: rdi and rsi are the named arguments.
    "mov [rsp+48], rdx",
    "mov [rsp+56], rcx",
    "mov [rsp+64], r8",
    "mov [rsp+72], r9",
    // The va_list at rsp: gp_offset, fp_offset, overflow_arg_area, reg_save_area.
    "mov dword ptr [rsp], 16",
    "mov dword ptr [rsp+4], 48",
    "lea rax, [rbp+16]",
    "mov [rsp+8], rax",
    "lea rax, [rsp+32]",
    "mov [rsp+16], rax",
    "mov rdx, rsp",
    "call {body}",
    "leave",
    ".cfi_def_cfa rsp, 8",
    "ret",
    ".cfi_endproc",
    ".size dat_extension_op, . - dat_extension_op",
    ".symver dat_extension_op, dat_extension_op@@@DAT_2.0",
    body = sym dat_extension_op_va,
);

#[cfg(target_arch = "aarch64")]
std::arch::global_asm!(
    ".globl dat_extension_op",
    ".type dat_extension_op, %function",
    "dat_extension_op:",
    ".cfi_startproc",
    "stp x29, x30, [sp, #-96]!",
    ".cfi_def_cfa_offset 96",
    ".cfi_offset x29, -96",
    ".cfi_offset x30, -88",
    "mov x29, sp",
    // The saved registers at sp+48, up to the caller's stack arguments: x0 and x1 are the named arguments.
    "stp x2, x3, [sp, #48]",
    "stp x4, x5, [sp, #64]",
    "stp x6, x7, [sp, #80]",
    // The va_list at sp+16: stack, gr_top, vr_top, gr_offs, vr_offs.
    "add x9, sp, #96",
    "stp x9, x9, [sp, #16]",
    "str x9, [sp, #32]",
    "mov w10, #-48",
    "stp w10, wzr, [sp, #40]",
    "add x2, sp, #16",
    "bl {body}",
    "ldp x29, x30, [sp], #96",
    ".cfi_def_cfa_offset 0",
    ".cfi_restore x29",
    ".cfi_restore x30",
    "ret",
    ".cfi_endproc",
    ".size dat_extension_op, . - dat_extension_op",
    ".symver dat_extension_op, dat_extension_op@@@DAT_2.0",
    body = sym dat_extension_op_va,
);

#[cfg(target_arch = "s390x")]
std::arch::global_asm!(
    ".globl dat_extension_op",
    ".type dat_extension_op, @function",
    "dat_extension_op:",
    ".cfi_startproc",
    // The caller leaves room for the registers: r4 to r15 at r15+32. r2 and r3 are the named arguments.
    "stmg %r4, %r15, 32(%r15)",
    ".cfi_offset %r6, -112",
    ".cfi_offset %r7, -104",
    ".cfi_offset %r8, -96",
    ".cfi_offset %r9, -88",
    ".cfi_offset %r10, -80",
    ".cfi_offset %r11, -72",
    ".cfi_offset %r12, -64",
    ".cfi_offset %r13, -56",
    ".cfi_offset %r14, -48",
    ".cfi_offset %r15, -40",
    "lgr %r1, %r15",
    "aghi %r15, -192",
    ".cfi_def_cfa_offset 352",
    "stg %r1, 0(%r15)",
    // The va_list at r15+160: gpr, fpr, overflow_arg_area, reg_save_area.
    "lghi %r0, 2",
    "stg %r0, 160(%r15)",
    "lghi %r0, 4",
    "stg %r0, 168(%r15)",
    "la %r4, 160(%r1)",
    "stg %r4, 176(%r15)",
    "stg %r1, 184(%r15)",
    "la %r4, 160(%r15)",
    "brasl %r14, {body}",
    "lmg %r6, %r15, 240(%r15)",
    ".cfi_def_cfa_offset 160",
    "br %r14",
    ".cfi_endproc",
    ".size dat_extension_op, . - dat_extension_op",
    ".symver dat_extension_op, dat_extension_op@@@DAT_2.0",
    body = sym dat_extension_op_va,
);

#[cfg(target_arch = "powerpc64")]
std::arch::global_asm!(
    ".globl dat_extension_op",
    ".type dat_extension_op, @function",
    "dat_extension_op:",
    ".cfi_startproc",
    "0:",
    "addis 2, 12, .TOC. - 0b@ha",
    "addi 2, 2, .TOC. - 0b@l",
    ".localentry dat_extension_op, . - dat_extension_op",
    "mflr 0",
    "std 0, 16(1)",
    // The caller leaves room for the eight registers at r1+32, before its stack arguments: r3 and r4 are the named arguments. The
    // va_list is the address of the next argument.
    "std 5, 48(1)",
    "std 6, 56(1)",
    "std 7, 64(1)",
    "std 8, 72(1)",
    "std 9, 80(1)",
    "std 10, 88(1)",
    "addi 5, 1, 48",
    "stdu 1, -32(1)",
    ".cfi_def_cfa_offset 32",
    ".cfi_offset lr, 16",
    "bl {body}",
    "nop",
    "addi 1, 1, 32",
    ".cfi_def_cfa_offset 0",
    "ld 0, 16(1)",
    "mtlr 0",
    ".cfi_restore lr",
    "blr",
    ".cfi_endproc",
    ".size dat_extension_op, . - dat_extension_op",
    ".symver dat_extension_op, dat_extension_op@@@DAT_2.0",
    body = sym dat_extension_op_va,
);

unsafe extern "C" {
    fn dat_extension_op();
}

/// Keeps the symbol of the assembly in the export list that rustc writes.
#[used]
static KEEP: unsafe extern "C" fn() = dat_extension_op;

/// Runs dat_extension_op, with its arguments as a `va_list`.
unsafe extern "C" fn dat_extension_op_va(
    handle: DatHandle,
    op: i32,
    arguments: *mut c_void,
) -> u32 {
    if op == OPEN_QUERY {
        return LIBRARY.guard_from_fork(|| {
            // SAFETY: the C caller's list, whose first argument is the IA's name for this operation.
            unsafe { open_query(VaList::from_parameter(arguments).ok_or(Error::arg(3))?) }
        });
    }
    LIBRARY.guard(|| {
        let (handle, table) =
            redirect::find_table(handle).ok_or(Error::handle(Subtype::InvalidHandle1))?;
        let slot = table
            .handle_extendedop
            .ok_or(Error::of(Kind::NotImplemented))?;
        // SAFETY: the slot's contract is the function's.
        unpack_v2_0(unsafe { slot(handle, op, arguments) })
    })
}

/// Queries an IA that is not open: loads its provider and calls the slot with the name instead of a handle.
///
/// # Safety
/// `arguments` is a list that begins with a C string.
unsafe fn open_query(mut arguments: VaList) -> Result<()> {
    // SAFETY: the caller's promise.
    let name = unsafe { arguments.word() } as *const c_char;
    if name.is_null() {
        return Err(Error::arg(3));
    }
    // SAFETY: not NULL, so a C string by the caller's promise.
    let text = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    let entry = registry().list(2).into_iter().find(|(n, ..)| *n == text);
    let (minor, thread_safe) = entry.map_or((0, false), |(_, _, minor, safe)| (minor, safe));
    let request = Request {
        name: &text,
        major: 2,
        minor,
        thread_safe,
    };
    let found = registry().lookup(&request, add_ours).map_err(|error| {
        tracing::info!("query of {text:?}: {error}");
        error.code()
    })?;
    let queried = CString::new(found.name.as_str())
        .map_err(|_| Error::arg(3))
        .and_then(|name| {
            // SAFETY: a table that a provider registered as one of 2.0.
            let slot = unsafe { (*(found.table.0 as *const DatProvider)).handle_extendedop };
            let slot = slot.ok_or(Error::of(Kind::NotImplemented))?;
            // SAFETY: the provider's contract for OPEN_QUERY: the name as handle, and the rest of the list.
            unpack_v2_0(unsafe {
                slot(name.as_ptr() as usize, OPEN_QUERY, arguments.as_parameter())
            })
        });
    // During the query the provider is in use, as by an open IA.
    registry().registrations.close(&found.name, found.table);
    queried
}
