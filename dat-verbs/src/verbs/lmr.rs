//! A DAT local memory region (LMR): a registered region that keeps its PD alive.

use std::sync::Arc;

use dat_core::error::Result;

use crate::verbs::mr::Mr;
use crate::verbs::pd::Pd;

/// A registered region and its PD.
#[derive(Debug)]
pub struct Lmr {
    pub(crate) mr: Mr,
    _pd: PdHold,
}

/// Holds a reference to a PD and formats it as its address.
pub(crate) struct PdHold(pub(crate) Arc<Pd>);

impl std::fmt::Debug for PdHold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:p}", self.0.raw())
    }
}

impl Lmr {
    /// Registers `[address, address + length)` with the first of `accesses` that works. With `zero_based`, remote and
    /// local addresses begin at 0.
    pub(crate) fn register(
        pd: &Arc<Pd>,
        address: usize,
        length: u64,
        accesses: &[u32],
        zero_based: bool,
    ) -> Result<Self> {
        if zero_based {
            pd.record_zero_based();
        }
        // SAFETY: the PD is open; `_pd` is dropped after `mr` and keeps it open until then.
        let mr = unsafe { Mr::register(pd.raw(), address, length, accesses, zero_based) }?;
        Ok(Self {
            mr,
            _pd: PdHold(Arc::clone(pd)),
        })
    }
}
