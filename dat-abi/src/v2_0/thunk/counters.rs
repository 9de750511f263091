//! Counters of the IB extension: of an IA, an endpoint or an EVD.

use std::io::Write;

use dat_core::counters::{Counted, CounterType, EpCounter, EvdCounter, IaCounter, Which};
use dat_core::error::{Result, Subtype};
use dat_core::transport::Transport;

use crate::boundary::require;
use crate::handle;
use crate::types::DatHandle;

/// Returns the counters of `handle`, and which of them `counter` names. Resets those if `reset` is set.
fn counted<T: Transport>(handle: DatHandle, counter: i32, reset: bool) -> Result<(Counted, Which)> {
    let any = Subtype::InvalidHandle1;
    let which = |count: usize| {
        let which = Which::of(counter, count)?;
        Ok((which, reset.then_some(which)))
    };
    if let Ok(ep) = handle::ep::<T>(handle, any) {
        let (which, reset) = which(EpCounter::ALL.len())?;
        return Ok((ep.counters(reset)?, which));
    }
    if let Ok(evd) = handle::evd::<T>(handle, any) {
        let (which, reset) = which(EvdCounter::ALL.len())?;
        return Ok((evd.counters(reset)?, which));
    }
    let ia = handle::ia::<T>(handle, any)?;
    let (which, reset) = which(IaCounter::ALL.len())?;
    Ok((ia.counters(reset)?, which))
}

/// Returns the index of an IA's own counter of its transport: their numbers follow `DCNT_IA_ALL_COUNTERS`.
fn own_index(counter: i32) -> Option<usize> {
    let counter = usize::try_from(counter).ok()?;
    counter.checked_sub(IaCounter::ALL.len() + 1)
}

/// Writes counters (dat_ib_query_counters).
///
/// # Safety
/// `out` is NULL or valid for a write of as many words as the handle's kind has counters, of one if `counter` names one.
pub(super) unsafe fn query<T: Transport>(
    handle: DatHandle,
    counter: i32,
    out: *mut u64,
    reset: bool,
) -> Result<()> {
    require(out, 4)?;
    if let Some(index) = own_index(counter)
        && let Ok(ia) = handle::ia::<T>(handle, Subtype::InvalidHandle1)
    {
        let value = ia.own_counter(index)?;
        // SAFETY: the counter is one word.
        unsafe { out.write_unaligned(value) };
        return Ok(());
    }
    let (counted, which) = counted::<T>(handle, counter, reset)?;
    let asked = match which {
        Which::All => &counted.values[..],
        Which::One(number) => &counted.values[number..=number],
    };
    // SAFETY: as many words as the caller promises, at any alignment.
    unsafe {
        for (n, value) in asked.iter().enumerate() {
            out.add(n).write_unaligned(*value);
        }
    }
    Ok(())
}

/// Prints counters to standard output (dat_ib_print_counters). No other code of ours writes there.
pub(super) fn print<T: Transport>(handle: DatHandle, counter: i32, reset: bool) -> Result<()> {
    let (counted, which) = counted::<T>(handle, counter, reset)?;
    let mut text = String::new();
    for (n, (name, value)) in std::iter::zip(counted.names, counted.values).enumerate() {
        if which.has(n) {
            text += &format!("{name} = {value}\n");
        }
    }
    // The caller may have closed standard output.
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    Ok(())
}

/// Starts or stops the counters of a type (dat_ib_start_counter, dat_ib_stop_counter).
pub(super) fn run<T: Transport>(handle: DatHandle, of: i32, on: bool) -> Result<()> {
    let ia = handle::ia::<T>(handle, Subtype::InvalidHandleIa)?;
    let of = CounterType::from_number(of)?;
    if on {
        ia.start_counters(of)
    } else {
        ia.stop_counters(of)
    }
}
