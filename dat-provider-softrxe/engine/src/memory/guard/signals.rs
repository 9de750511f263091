//! The handler of SIGSEGV and SIGBUS: turns a fault of a guarded copy into an error, and forwards every other fault to the previous
//! handler.
//!
//! It is installed once, with the flags and the mask of the handler that it replaces, and never again: a handler that the
//! application installs afterwards stays, and the kernel copies from then on.

use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicPtr, Ordering};

use super::recovery;

/// Signals of a fault: no mapping or no right; a file that ends before the page.
const SIGNALS: [libc::c_int; 2] = [libc::SIGSEGV, libc::SIGBUS];

/// Previous action for each of [`SIGNALS`]; never freed.
static PREVIOUS: [AtomicPtr<libc::sigaction>; 2] = [const { AtomicPtr::new(null_mut()) }; 2];

/// Installs the handler at the first call. Without it the kernel copies.
pub(super) fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        for (signal, previous) in SIGNALS.into_iter().zip(&PREVIOUS) {
            replace(signal, previous);
        }
    });
}

/// Replaces the action of `signal`, and stores the present one in `previous`.
fn replace(signal: libc::c_int, previous: &AtomicPtr<libc::sigaction>) {
    let (Some(entry), Some(present)) = (recovery::entry(), action_of(signal)) else {
        return;
    };
    let mut action = present;
    action.sa_sigaction = entry;
    let handled = present.sa_sigaction != libc::SIG_DFL && present.sa_sigaction != libc::SIG_IGN;
    action.sa_flags = if handled {
        // The flags of the application's handler; `forward` implements SA_RESETHAND.
        (present.sa_flags & !libc::SA_RESETHAND) | libc::SA_SIGINFO
    } else {
        libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART
    };
    // Stored first: the handler may run as soon as it is installed.
    previous.store(Box::into_raw(Box::new(present)), Ordering::Release);
    // SAFETY: a handler of this type, which only makes calls that a handler may make. It is never unmapped: providers stay loaded.
    if unsafe { libc::sigaction(signal, &raw const action, null_mut()) } != 0 {
        let error = std::io::Error::last_os_error();
        tracing::warn!(%error, "cannot install the handler of signal {signal}; copies use system calls (slower)");
    }
}

/// Returns the present action of `signal`.
fn action_of(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: all-zero is a valid sigaction, which the call fills.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0).then_some(action)
    }
}

/// Returns whether this crate's handler is installed for all of [`SIGNALS`].
fn is_installed() -> bool {
    let Some(entry) = recovery::entry() else {
        return false;
    };
    SIGNALS
        .into_iter()
        .all(|signal| action_of(signal).is_some_and(|action| action.sa_sigaction == entry))
}

/// Returns whether a fault of the calling thread reaches the handler. With the signal blocked it ends the process.
pub(super) fn faults_are_caught() -> bool {
    // SAFETY: the set is filled by the call.
    let blocked = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::pthread_sigmask(libc::SIG_BLOCK, std::ptr::null(), &raw mut set) != 0
            || SIGNALS
                .into_iter()
                .any(|signal| libc::sigismember(&raw const set, signal) != 0)
    };
    !blocked && is_installed()
}

/// Runs `act` with the signals unblocked. Returns `None` if they would not reach the handler.
pub(super) fn with_faults_unblocked<R>(act: impl FnOnce() -> R) -> Option<R> {
    if !is_installed() {
        return None;
    }
    // SAFETY: sets are initialised before use; the thread's own mask is restored.
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

/// Handles a fault. `caller` is the address of `context` if the kernel called the handler.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
pub(super) unsafe extern "C" fn on_fault(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    caller: usize,
) {
    // SAFETY: the kernel's arguments, possibly passed on by a handler that calls this one.
    unsafe {
        // A positive code means a fault of an instruction, not a signal of a process.
        if (*info).si_code > 0 && recovery::recover(context.cast()) {
            return;
        }
        forward(signal, info, context, caller == context as usize);
    }
}

/// Does what would happen without this crate's handler. `direct` says that the kernel called it, not a handler that was installed
/// later.
///
/// # Safety
/// The arguments are those of a signal handler.
#[cfg(any(target_arch = "aarch64", target_arch = "x86_64"))]
unsafe fn forward(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
    direct: bool,
) {
    let slot = SIGNALS.into_iter().position(|of| of == signal).unwrap_or(0);
    let previous = PREVIOUS[slot].load(Ordering::Acquire);
    // SAFETY: stored actions are never freed.
    let (mut handler, flags) = match unsafe { previous.as_ref() } {
        Some(action) => (action.sa_sigaction, action.sa_flags),
        None => (libc::SIG_DFL, 0),
    };
    // SAFETY: the caller's promise.
    let by_instruction = unsafe { (*info).si_code > 0 };
    if flags & libc::SA_RESETHAND != 0 {
        PREVIOUS[slot].store(null_mut(), Ordering::Release);
    }
    // The application reinstalled the previous handler, which chains to this one: calling it would recurse forever.
    if !direct && action_of(signal).is_some_and(|action| action.sa_sigaction == handler) {
        handler = libc::SIG_DFL;
    }
    if handler == libc::SIG_IGN && !by_instruction {
        return;
    }
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: signal calls that a handler may make. A faulting instruction faults again when this returns; a signal from a process
        // must be sent again.
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
    // SAFETY: a handler of the application, of the type that its flags indicate, with the kernel's arguments.
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
