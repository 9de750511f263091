//! The handler of SIGSEGV and SIGBUS: makes a fault of a guarded copy an answer, and hands every other one on to what was there before.
//!
//! It is installed once, with the flags and the mask of the handler that it takes the place of. It is never installed again: a
//! handler that the application installs afterwards stays, and the kernel copies from then on.

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::machine;

/// What a fault raises: no mapping or no right; a file that ends before the page.
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// What was there before, for each of [`SIGNALS`]; never given back.
static BEFORE: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

/// Installs the handler if it is not. Without it the kernel copies.
pub(crate) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for (signal, before) in SIGNALS.into_iter().zip(&BEFORE) {
            put(signal, before);
        }
    });
}

fn put(signal: libc::c_int, before: &AtomicPtr<libc::sigaction>) {
    let (Some(entry), Some(was)) = (machine::entry(), present(signal)) else {
        return;
    };
    let mut action = was;
    action.sa_sigaction = entry;
    let handled = was.sa_sigaction != libc::SIG_DFL && was.sa_sigaction != libc::SIG_IGN;
    action.sa_flags = if handled {
        // As the application wants its own to run; what happens once only is done by `hand_on`.
        (was.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO
    } else {
        libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART
    };
    // The handler may run the next moment.
    before.store(Box::into_raw(Box::new(was)), Ordering::Release);
    // SAFETY: a handler of this type, which only does what a handler may do, and is never unmapped: providers stay loaded.
    if unsafe { libc::sigaction(signal, &raw const action, null_mut()) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(signal, %error, "sigaction: the kernel copies registered memory");
    }
}

fn present(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: all-zero is a valid sigaction, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

fn is_ours() -> bool {
    let Some(entry) = machine::entry() else {
        return false;
    };
    SIGNALS
        .into_iter()
        .all(|signal| present(signal).is_some_and(|action| action.sa_sigaction == entry))
}

/// Would a fault of the calling thread come to the handler? A blocked signal ends the process instead.
pub(super) fn are_caught() -> bool {
    // SAFETY: the set is filled by the call.
    let blocked = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) != 0
            || SIGNALS
                .into_iter()
                .any(|signal| libc::sigismember(&raw const set, signal) != 0)
    };
    !blocked && is_ours()
}

/// Runs `act` with the signals let through; `None` if they would not come to the handler.
pub(super) fn while_caught<R>(act: impl FnOnce() -> R) -> Option<R> {
    if !is_ours() {
        return None;
    }
    // SAFETY: sets are initialised before they are used; the thread's own mask is put back.
    unsafe {
        let (mut faults, mut was) = std::mem::zeroed();
        libc::sigemptyset(&raw mut faults);
        for signal in SIGNALS {
            libc::sigaddset(&raw mut faults, signal);
        }
        if libc::pthread_sigmask(libc::SIG_UNBLOCK, &raw const faults, &raw mut was) != 0 {
            return None;
        }
        let result = act();
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const was, null_mut());
        Some(result)
    }
}

/// The handler. `caller` is the address of `context` if the kernel called it.
#[cfg(target_arch = "x86_64")]
pub(super) unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    caller: usize,
) {
    // SAFETY: the kernel's arguments, or those that it gave to a handler that calls this one.
    unsafe {
        // Positive: by an instruction, and not by another process.
        if (*info).si_code > 0 && machine::leave(context.cast(), (*info).si_addr() as usize) {
            return;
        }
        hand_on(signal, info, context, caller == context as usize);
    }
}

/// Does what would happen without us. `direct`: the kernel called; else a handler did that was installed after ours.
///
/// # Safety
/// The arguments are those of a signal handler.
#[cfg(target_arch = "x86_64")]
unsafe fn hand_on(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    direct: bool,
) {
    let place = SIGNALS.into_iter().position(|of| of == signal).unwrap_or(0);
    let before = BEFORE[place].load(Ordering::Acquire);
    // SAFETY: what was stored stays for ever.
    let (mut handler, flags) = match unsafe { before.as_ref() } {
        Some(action) => (action.sa_sigaction, action.sa_flags),
        None => (libc::SIG_DFL, 0),
    };
    // SAFETY: the caller's promise.
    let by_instruction = unsafe { (*info).si_code > 0 };
    if flags & libc::SA_RESETHAND != 0 {
        BEFORE[place].store(null_mut(), Ordering::Release);
    }
    // The one before was installed again and calls us: calling it would never end.
    if !direct && present(signal).is_some_and(|now| now.sa_sigaction == handler) {
        handler = libc::SIG_DFL;
    }
    if handler == libc::SIG_IGN && !by_instruction {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: signal calls that a handler may make. The instruction faults again when this returns; a signal that was sent has
        // to be sent again.
        unsafe {
            let mut default: libc::sigaction = std::mem::zeroed();
            default.sa_sigaction = libc::SIG_DFL;
            libc::sigaction(signal, &raw const default, null_mut());
            if !by_instruction {
                libc::syscall(
                    libc::SYS_tgkill,
                    libc::getpid(),
                    libc::syscall(libc::SYS_gettid),
                    signal,
                );
            }
        }
        return;
    }
    // SAFETY: a handler that the application installed, of the type that its flags say, with the kernel's arguments.
    unsafe {
        if flags & libc::SA_SIGINFO != 0 {
            let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                std::mem::transmute(handler);
            call(signal, info, context);
        } else {
            let call: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
            call(signal);
        }
    }
}
