//! Counters of an IA: objects, connections, and the device's counters of its link.

use std::sync::atomic::{AtomicU64, Ordering};

use dat_arena::Mutex;

use super::{Which, counters};
use crate::error::{Error, Result};

counters! {
    /// Counters of an IA (`DAT_IA_COUNTERS`). Those from `CmReqTx` on count connection manager messages that core sent or was notified
    /// of. `Lnk…` and `Diag…` are counters of the device; they run after dat_ib_start_counter.
    IaCounter: "DCNT_IA_";
    PzCreate = "PZ_CREATE",
    PzFree = "PZ_FREE",
    LmrCreate = "LMR_CREATE",
    LmrFree = "LMR_FREE",
    RmrCreate = "RMR_CREATE",
    RmrFree = "RMR_FREE",
    PspCreate = "PSP_CREATE",
    PspCreateAny = "PSP_CREATE_ANY",
    PspFree = "PSP_FREE",
    RspCreate = "RSP_CREATE",
    RspFree = "RSP_FREE",
    EvdCreate = "EVD_CREATE",
    EvdFree = "EVD_FREE",
    EpCreate = "EP_CREATE",
    EpFree = "EP_FREE",
    SrqCreate = "SRQ_CREATE",
    SrqFree = "SRQ_FREE",
    SpCr = "SP_CR",
    SpCrAccepted = "SP_CR_ACCEPTED",
    SpCrRejected = "SP_CR_REJECTED",
    MemAlloc = "MEM_ALLOC",
    MemAllocData = "MEM_ALLOC_DATA",
    MemFree = "MEM_FREE",
    AsyncError = "ASYNC_ERROR",
    AsyncQpError = "ASYNC_QP_ERROR",
    AsyncCqError = "ASYNC_CQ_ERROR",
    CmListen = "CM_LISTEN",
    CmReqTx = "CM_REQ_TX",
    CmReqRx = "CM_REQ_RX",
    CmRepTx = "CM_REP_TX",
    CmRepRx = "CM_REP_RX",
    CmRtuTx = "CM_RTU_TX",
    CmRtuRx = "CM_RTU_RX",
    CmUserRejTx = "CM_USER_REJ_TX",
    CmUserRejRx = "CM_USER_REJ_RX",
    CmActiveEst = "CM_ACTIVE_EST",
    CmPassiveEst = "CM_PASSIVE_EST",
    CmAhReqTx = "CM_AH_REQ_TX",
    CmAhReqRx = "CM_AH_REQ_RX",
    CmAhResolved = "CM_AH_RESOLVED",
    CmDreqTx = "CM_DREQ_TX",
    CmDreqRx = "CM_DREQ_RX",
    CmDrepTx = "CM_DREP_TX",
    CmDrepRx = "CM_DREP_RX",
    CmMraTx = "CM_MRA_TX",
    CmMraRx = "CM_MRA_RX",
    CmReqFullqPoll = "CM_REQ_FULLQ_POLL",
    CmErr = "CM_ERR",
    CmErrReqFullq = "CM_ERR_REQ_FULLQ",
    CmErrReqDup = "CM_ERR_REQ_DUP",
    CmErrReqRetry = "CM_ERR_REQ_RETRY",
    CmErrRepDup = "CM_ERR_REP_DUP",
    CmErrRepRetry = "CM_ERR_REP_RETRY",
    CmErrRtuDup = "CM_ERR_RTU_DUP",
    CmErrRtuRetry = "CM_ERR_RTU_RETRY",
    CmErrRefused = "CM_ERR_REFUSED",
    CmErrReset = "CM_ERR_RESET",
    CmErrTimeout = "CM_ERR_TIMEOUT",
    CmErrRejTx = "CM_ERR_REJ_TX",
    CmErrRejRx = "CM_ERR_REJ_RX",
    CmErrDreqDup = "CM_ERR_DREQ_DUP",
    CmErrDreqRetry = "CM_ERR_DREQ_RETRY",
    CmErrDrepDup = "CM_ERR_DREP_DUP",
    CmErrDrepRetry = "CM_ERR_DREP_RETRY",
    CmErrMraDup = "CM_ERR_MRA_DUP",
    CmErrMraRetry = "CM_ERR_MRA_RETRY",
    CmErrUnexpected = "CM_ERR_UNEXPECTED",
    LnkErrRcv = "LNK_ERR_RCV",
    LnkErrRcvRemPhys = "LNK_ERR_RCV_REM_PHYS",
    LnkErrRcvConstraint = "LNK_ERR_RCV_CONSTRAINT",
    LnkErrXmtDiscards = "LNK_ERR_XMT_DISCARDS",
    LnkErrXmtContraint = "LNK_ERR_XMT_CONTRAINT",
    LnkErrIntegrity = "LNK_ERR_INTEGRITY",
    LnkErrExcBufOverrun = "LNK_ERR_EXC_BUF_OVERRUN",
    LnkWarnRcvSwRelay = "LNK_WARN_RCV_SW_RELAY",
    LnkWarnXmtWait = "LNK_WARN_XMT_WAIT",
    DiagErrRqRae = "DIAG_ERR_RQ_RAE",
    DiagErrRqOos = "DIAG_ERR_RQ_OOS",
    DiagErrRqRire = "DIAG_ERR_RQ_RIRE",
    DiagErrRqUdsdprd = "DIAG_ERR_RQ_UDSDPRD",
    DiagErrSqRae = "DIAG_ERR_SQ_RAE",
    DiagErrSqOos = "DIAG_ERR_SQ_OOS",
    DiagErrSqRire = "DIAG_ERR_SQ_RIRE",
    DiagErrSqRree = "DIAG_ERR_SQ_RREE",
    DiagErrSqTree = "DIAG_ERR_SQ_TREE",
}

const COUNT: usize = IaCounter::ALL.len();

/// Group of counters that dat_ib_start_counter and dat_ib_stop_counter control (`DAT_IA_COUNTER_TYPE`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(usize)]
pub enum CounterType {
    /// Counters of the connection manager; they run from dat_ia_open on.
    Cm,
    /// Counters of the link.
    Lnk,
    /// Diagnostic counters of the device.
    Diag,
}

impl CounterType {
    /// Converts the number in the call.
    ///
    /// # Errors
    /// `DAT_INVALID_PARAMETER` (argument 3 of dat_extension_op) for an unknown number.
    pub fn from_number(number: i32) -> Result<Self> {
        match number {
            0 => Ok(Self::Cm),
            1 => Ok(Self::Lnk),
            2 => Ok(Self::Diag),
            _ => Err(Error::arg(3)),
        }
    }

    /// Returns the type of a counter, if it has one.
    const fn of(counter: usize) -> Option<Self> {
        if counter >= IaCounter::DiagErrRqRae as usize {
            Some(Self::Diag)
        } else if counter >= IaCounter::LnkErrRcv as usize {
            Some(Self::Lnk)
        } else if counter >= IaCounter::CmListen as usize {
            Some(Self::Cm)
        } else {
            None
        }
    }
}

/// Counts in the memory of one IA, which is reused. The counts never go back: each open, reset and start stores the count from which
/// it begins.
#[derive(Debug)]
pub(crate) struct IaCounters {
    counts: [AtomicU64; COUNT],
    view: Mutex<View>,
}

#[derive(Debug)]
struct View {
    /// Count of each counter at the open, or at its last reset or start.
    before: [u64; COUNT],
    /// True for each type of counters that runs; the values of the others are in `stopped`.
    running: [bool; 3],
    /// Value of each counter when it was stopped.
    stopped: [u64; COUNT],
}

impl Default for IaCounters {
    fn default() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; COUNT],
            view: Mutex::new(View {
                before: [0; COUNT],
                running: [true, false, false],
                stopped: [0; COUNT],
            }),
        }
    }
}

impl View {
    fn runs(&self, counter: usize) -> bool {
        CounterType::of(counter).is_none_or(|of| self.running[of as usize])
    }
}

impl IaCounters {
    /// Adds 1 to `counter`.
    pub(crate) fn add(&self, counter: IaCounter) {
        self.counts[counter as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns all counts, with the device's own counters from `device`.
    fn now(&self, device: &[(IaCounter, u64)]) -> [u64; COUNT] {
        let mut now: [u64; COUNT] = std::array::from_fn(|n| self.counts[n].load(Ordering::Relaxed));
        for (counter, value) in device {
            now[*counter as usize] = *value;
        }
        now
    }

    /// Sets all counters to 0 for a newly opened IA; the device's counters are stopped.
    pub(crate) fn begin(&self) {
        *self.view.lock() = View {
            before: self.now(&[]),
            running: [true, false, false],
            stopped: [0; COUNT],
        };
    }

    /// Sets the counters of a type to 0 and starts them (dat_ib_start_counter).
    pub(crate) fn start(&self, of: CounterType, device: &[(IaCounter, u64)]) {
        let now = self.now(device);
        let mut view = self.view.lock();
        view.running[of as usize] = true;
        for (n, now) in now.into_iter().enumerate() {
            if CounterType::of(n) == Some(of) {
                view.before[n] = now;
            }
        }
    }

    /// Stops the counters of a type at their present values (dat_ib_stop_counter).
    pub(crate) fn stop(&self, of: CounterType, device: &[(IaCounter, u64)]) {
        let values = self.values(device);
        let mut view = self.view.lock();
        view.running[of as usize] = false;
        for (n, value) in values.into_iter().enumerate() {
            if CounterType::of(n) == Some(of) {
                view.stopped[n] = value;
            }
        }
    }

    /// Returns the values in the order of [`IaCounter`].
    pub(crate) fn values(&self, device: &[(IaCounter, u64)]) -> [u64; COUNT] {
        let now = self.now(device);
        let view = self.view.lock();
        std::array::from_fn(|n| {
            if view.runs(n) {
                now[n].saturating_sub(view.before[n])
            } else {
                view.stopped[n]
            }
        })
    }

    /// Sets the counters that `which` selects to 0.
    pub(crate) fn reset(&self, which: Which, device: &[(IaCounter, u64)]) {
        let now = self.now(device);
        let mut view = self.view.lock();
        for (n, now) in now.into_iter().enumerate() {
            if which.has(n) {
                view.before[n] = now;
                view.stopped[n] = 0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_the_device_run_between_start_and_stop() {
        let counters = IaCounters::default();
        let link = |n| [(IaCounter::LnkErrRcv, n)];
        let of = |device: u64| counters.values(&link(device))[IaCounter::LnkErrRcv as usize];
        assert_eq!(of(100), 0, "not started");
        counters.start(CounterType::Lnk, &link(100));
        assert_eq!(of(103), 3);
        counters.stop(CounterType::Lnk, &link(105));
        assert_eq!(of(200), 5);
        counters.start(CounterType::Lnk, &link(200));
        assert_eq!(of(201), 1);
    }

    #[test]
    fn a_reset_and_an_open_set_counters_to_zero() {
        let counters = IaCounters::default();
        let of = |counter: IaCounter| counters.values(&[])[counter as usize];
        counters.add(IaCounter::PzCreate);
        counters.add(IaCounter::CmListen);
        assert_eq!((of(IaCounter::PzCreate), of(IaCounter::CmListen)), (1, 1));
        counters.reset(Which::One(IaCounter::PzCreate as usize), &[]);
        assert_eq!((of(IaCounter::PzCreate), of(IaCounter::CmListen)), (0, 1));
        counters.add(IaCounter::PzCreate);
        counters.stop(CounterType::Cm, &[]);
        counters.add(IaCounter::CmListen);
        assert_eq!((of(IaCounter::PzCreate), of(IaCounter::CmListen)), (1, 1));
        counters.begin();
        assert_eq!((of(IaCounter::PzCreate), of(IaCounter::CmListen)), (0, 0));
        counters.add(IaCounter::CmListen);
        assert_eq!(of(IaCounter::CmListen), 1, "runs after each open");
    }
}
