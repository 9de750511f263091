//! Providers that dat.conf marks `nonthreadsafe`. The types of this crate are `Sync`. So the calls of such a provider are made one
//! after the other, under one lock; so are its init and fini functions. A wait polls, so that it does not keep other calls out. An
//! agent that such a call calls may call in turn.

use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

/// Pause between two looks at the queue of such a provider.
pub(crate) const PAUSE: Duration = Duration::from_micros(200);

/// Whether any such provider was opened. It stays set, so that the usual process pays for one load only.
static ANY: AtomicBool = AtomicBool::new(false);

/// Addresses of their function tables.
static TABLES: RwLock<Vec<usize>> = RwLock::new(Vec::new());

static CALL: Mutex<()> = Mutex::new(());

thread_local! {
    /// This thread is in such a call.
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
}

/// A call of a thread that no other one makes at the same time.
#[derive(Debug)]
pub(crate) struct Turn {
    /// Empty in a call inside another one.
    lock: Option<MutexGuard<'static, ()>>,
    /// It ends in its thread.
    _thread: PhantomData<*const ()>,
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.lock.is_some() {
            HAS_TURN.set(false);
        }
    }
}

/// Makes all further calls through the table at this address one after the other.
pub(crate) fn serialise(table: usize) {
    let mut tables = TABLES.write().unwrap_or_else(PoisonError::into_inner);
    if !tables.contains(&table) {
        tables.push(table);
    }
    ANY.store(true, Ordering::Release);
}

/// Returns true if the calls of any provider are made one after the other.
#[inline]
pub(crate) fn is_any() -> bool {
    ANY.load(Ordering::Acquire)
}

/// Returns true if the calls through the table at this address are made one after the other.
#[inline]
pub(crate) fn is_serialised(table: usize) -> bool {
    is_any() && is_listed(table)
}

#[cold]
fn is_listed(table: usize) -> bool {
    let tables = TABLES.read().unwrap_or_else(PoisonError::into_inner);
    tables.contains(&table)
}

/// Returns the lock to hold during a call through the table at this address; `None` if its provider is thread safe.
#[inline]
pub(crate) fn enter(table: usize) -> Option<Turn> {
    is_serialised(table).then(lock)
}

/// Takes the lock, for a call without a handle. A thread that is in such a call has it.
pub(crate) fn lock() -> Turn {
    let lock =
        (!HAS_TURN.replace(true)).then(|| CALL.lock().unwrap_or_else(PoisonError::into_inner));
    Turn {
        lock,
        _thread: PhantomData,
    }
}

#[cfg(all(test, feature = "softrxe"))]
mod tests;
