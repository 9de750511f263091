//! Function tables of wrapped IAs, and how a slot finds the one of a handle.
//!
//! The first word of a wrapped handle points to [`Instance::table`], which is the first member of its instance.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};

use dat_abi::types::DatHandle;
use dat_abi::v2_0::table::DatProvider;
use dat_os::mutex::lock;

use crate::entry::Entry;
use crate::inner::{self, Opened};
use crate::slots::TABLES;

/// No object lies in the first page; smaller numbers are NULL, or what a program passes by mistake.
const LOWEST: DatHandle = 4096;

/// The objects of one entry whose inner provider has one function table. Lives for the rest of the process.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Instance {
    /// First, so that the address of an instance is that of its table.
    table: DatProvider,
    inner: &'static DatProvider,
    /// The instance whose table `inner` is, if the entry wraps a filter.
    below: Option<&'static Self>,
    /// Number of instances below.
    level: usize,
    /// Whether the provider below all filters is none of ours.
    is_classic: bool,
    /// The entry.
    pub(crate) entry: &'static Entry,
    /// Its open IAs.
    open: Mutex<Vec<Opened>>,
    next: AtomicPtr<Self>,
}

/// The list of all instances; it only grows.
static FIRST: AtomicPtr<Instance> = AtomicPtr::new(ptr::null_mut());
/// Number of open IAs whose inner provider is a classic one, which cannot tell its handles from other numbers.
static CLASSIC: AtomicUsize = AtomicUsize::new(0);

fn all() -> impl Iterator<Item = &'static Instance> {
    let mut at = FIRST.load(Ordering::Acquire);
    std::iter::from_fn(move || {
        // SAFETY: NULL, or an instance, which is never freed.
        let instance = unsafe { at.as_ref()? };
        at = instance.next.load(Ordering::Acquire);
        Some(instance)
    })
}

/// The provider behind a handle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    /// Table to call.
    pub(crate) inner: &'static DatProvider,
    /// The instance, unless the object is not a wrapped one.
    pub(crate) instance: Option<&'static Instance>,
}

/// Returns where a call of a function of this level goes, whatever number the handle is; `None` if only a classic provider is there
/// and the number is none of a wrapped object. An object tells its outermost instance; the one of the function's level is below.
///
/// A number that is no handle goes to a provider of ours, which refuses it with the right code. Each function calls an instance of
/// its own level or of a lower one, whose inner functions are of lower levels, so no call returns to its function.
pub(crate) fn find(level: usize, handle: DatHandle) -> Option<Target> {
    let readable = handle >= LOWEST
        && handle.is_multiple_of(align_of::<usize>())
        && (inner::owns(handle) || CLASSIC.load(Ordering::Acquire) > 0);
    if readable {
        // SAFETY: an address in an arena of ours, which is never unmapped; else a handle of a classic provider, by the contract
        // that every libdat has with programs that use one.
        let first = unsafe { word(handle) }.load(Ordering::Acquire);
        if let Some(instance) = all().find(|i| ptr::from_ref(*i) as usize == first) {
            return Some(instance.at(level).target());
        }
        if first != 0 && inner::owns(handle) {
            // SAFETY: the first word of a finished object of ours points to its table.
            let inner = unsafe { &*(first as *const DatProvider) };
            return Some(Target {
                inner,
                instance: None,
            });
        }
    }
    all()
        .find(|i| !i.is_classic && i.level <= level)
        .map(Instance::target)
}

/// Returns the first word of the object of a handle.
///
/// # Safety
/// The handle is that of an object, or an address in an arena of ours.
unsafe fn word(handle: DatHandle) -> &'static AtomicUsize {
    // SAFETY: mapped and aligned by the caller's promise. The owner writes the word before it hands out the object only.
    unsafe { AtomicUsize::from_ptr(handle as *mut usize) }
}

impl Instance {
    /// Returns the instance of an entry for an inner table, which is made at the first call; `None` if more than [`crate::slots::LEVELS`] would
    /// wrap each other.
    pub(crate) fn of(
        entry: &'static Entry,
        inner: &'static DatProvider,
        is_classic: bool,
    ) -> Option<&'static Self> {
        static NEW: Mutex<()> = Mutex::new(());
        let _new = lock(&NEW);
        if let Some(old) = all().find(|i| ptr::eq(i.entry, entry) && ptr::eq(i.inner, inner)) {
            return Some(old);
        }
        let below = all().find(|i| ptr::eq(&raw const i.table, inner));
        let level = below.map_or(0, |below| below.level + 1);
        let new = Box::leak(Box::new(Self {
            table: DatProvider {
                device_name: entry.c_name(),
                extension: inner.extension,
                ..*TABLES.get(level)?
            },
            inner,
            below,
            level,
            is_classic,
            entry,
            open: Mutex::new(Vec::new()),
            next: AtomicPtr::new(FIRST.load(Ordering::Acquire)),
        }));
        FIRST.store(new, Ordering::Release);
        Some(new)
    }

    /// Returns the instance of this level, which is this one or one below; this one if its level is lower.
    fn at(&'static self, level: usize) -> &'static Self {
        let mut at = self;
        while let (true, Some(below)) = (at.level > level, at.below) {
            at = below;
        }
        at
    }

    fn target(&'static self) -> Target {
        Target {
            inner: self.inner,
            instance: Some(self),
        }
    }

    /// Gives an object that the inner provider made the filter's table. Most have it already: a provider copies the table of the
    /// IA. Does nothing to other numbers that a provider returns, and to objects of other tables.
    ///
    /// # Safety
    /// `handle` is what the inner provider returned.
    pub(crate) unsafe fn adopt(&'static self, handle: DatHandle) {
        if handle >= LOWEST && handle.is_multiple_of(align_of::<usize>()) {
            let (from, to) = (
                ptr::from_ref(self.inner) as usize,
                ptr::from_ref(self) as usize,
            );
            // SAFETY: an object, by the caller's promise.
            let first = unsafe { word(handle) };
            // Fails where the table is another one.
            let _ = first.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    /// Gives an object its inner table again.
    ///
    /// # Safety
    /// `handle` is that of an open IA of this instance.
    pub(crate) unsafe fn release(&'static self, handle: DatHandle) {
        // SAFETY: an object, by the caller's promise.
        unsafe { word(handle) }.store(ptr::from_ref(self.inner) as usize, Ordering::Release);
    }

    fn open(&self) -> MutexGuard<'_, Vec<Opened>> {
        lock(&self.open)
    }

    /// Returns whether the provider below all filters is none of ours.
    pub(crate) fn is_classic(&self) -> bool {
        self.is_classic
    }

    /// Records an IA that was opened.
    pub(crate) fn add(&self, ia: Opened) {
        if self.is_classic {
            CLASSIC.fetch_add(1, Ordering::AcqRel);
        }
        self.open().push(ia);
        self.entry.filter.opened();
    }

    /// Returns the open IA with this handle.
    pub(crate) fn get(&self, handle: DatHandle) -> Option<Opened> {
        let open = self.open();
        open.iter().find(|ia| ia.handle == handle).cloned()
    }

    /// Forgets an IA that was closed, and lets the filter report after the last one.
    pub(crate) fn remove(&self, ia: &Opened) {
        let mut open = self.open();
        let Some(at) = open.iter().position(|one| one.handle == ia.handle) else {
            return;
        };
        open.swap_remove(at);
        if self.is_classic {
            CLASSIC.fetch_sub(1, Ordering::AcqRel);
        }
        let is_last = open.is_empty();
        drop(open);
        if is_last {
            self.entry.filter.report();
        }
    }
}
