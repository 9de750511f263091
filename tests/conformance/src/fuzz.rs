//! Random calls with random handles: most of the right kind, some freed, some of another kind, some invalid.

use std::time::{Duration, Instant};

use dat_abi::types::handle_type as kind;
use dat_core::error::{Error, Kind};
use dat_core::flags::{EvdFlags, MemPriv};

use crate::dat::{Dat, Post};
use crate::event::Seen;
use crate::fixture::{Side, expect_ok};
use crate::verdict::{Check, broken};

/// Time limit of a call on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Makes `calls` calls, the same for the same `seed` unless another thread interferes. No call may block for long,
/// return a code outside the specification, or return `DAT_INTERNAL_ERROR`; at the end a new IA must work. Returns the
/// number of successful calls.
///
/// # Errors
/// The first wrong answer, with the number of the call.
pub fn fuzz(dat: &Dat, seed: u64, calls: usize) -> Check<usize> {
    let mut run = Run {
        dat,
        random: fastrand::Rng::with_seed(seed),
        handles: vec![(0, kind::EP), (1, kind::EVD), (usize::MAX, kind::IA)],
        sides: Vec::new(),
    };
    let mut succeeded = 0;
    for number in 0..calls {
        let begun = Instant::now();
        let (slot, code) = run.step()?;
        if begun.elapsed() > TIMEOUT {
            return broken(format!(
                "seed {seed}, call {number} ({slot}) took {:?}",
                begun.elapsed()
            ));
        }
        match Error::from_code(code) {
            None => succeeded += 1,
            Some(error) if matches!(error.kind(), None | Some(Kind::InternalError)) => {
                return broken(format!("seed {seed}, call {number} ({slot}): {error}"));
            }
            Some(_) => {}
        }
    }
    drop(run);
    let side = Side::open(dat)?;
    side.ep()?;
    Ok(succeeded)
}

struct Run<'a> {
    dat: &'a Dat,
    random: fastrand::Rng,
    /// Handles of any age, with their current or former kind.
    handles: Vec<(usize, u32)>,
    sides: Vec<Side<'a>>,
}

/// Number of the newest handles that calls use.
const RECENT: usize = 80;

impl Run<'_> {
    /// Returns a handle: mostly of `kind`, and mostly a recent one.
    fn one(&mut self, kind: u32) -> usize {
        let recent = &self.handles[self.handles.len().saturating_sub(RECENT)..];
        let fitting: Vec<usize> = recent
            .iter()
            .filter(|(_, k)| *k == kind)
            .map(|(handle, _)| *handle)
            .collect();
        if fitting.is_empty() || self.random.u32(..8) == 0 {
            return recent[self.random.usize(..recent.len())].0;
        }
        fitting[self.random.usize(..fitting.len())]
    }

    fn keep(&mut self, made: Result<usize, u32>, kind: u32) -> u32 {
        match made {
            Ok(handle) => {
                self.handles.push((handle, kind));
                0
            }
            Err(code) => code,
        }
    }

    /// Opens an IA with its objects; closes the oldest.
    fn side(&mut self) -> Check {
        let side = Side::open(self.dat)?;
        let memory = side.memory(64, MemPriv::ALL.bits())?.region.lmr;
        self.handles.extend([
            (side.ia, kind::IA),
            (side.pz, kind::PZ),
            (side.recv, kind::EVD),
            (side.request, kind::EVD),
            (side.conn, kind::EVD),
            (side.cr, kind::EVD),
            (side.ep()?, kind::EP),
            (side.ep()?, kind::EP),
            (memory, kind::LMR),
        ]);
        self.sides.push(side);
        if self.sides.len() > 2 {
            self.sides.remove(0);
        }
        Ok(())
    }

    /// Returns EVDs for an endpoint: mostly suitable ones.
    fn evds(&mut self) -> [usize; 3] {
        match self.sides.last() {
            Some(side) if self.random.u32(..4) != 0 => [side.recv, side.request, side.conn],
            _ => [kind::EVD; 3].map(|kind| self.one(kind)),
        }
    }

    /// Makes one call; returns its name and code.
    fn step(&mut self) -> Check<(&'static str, u32)> {
        if self.sides.is_empty() || self.random.u32(..150) == 0 {
            self.side()?;
        }
        match self.random.u32(..4) {
            0 => Ok(self.make()),
            1 => Ok(self.free()),
            2 => Ok(self.event()),
            _ => self.endpoint(),
        }
    }

    fn make(&mut self) -> (&'static str, u32) {
        let dat = self.dat;
        let (ia, pz, evd) = (self.one(kind::IA), self.one(kind::PZ), self.one(kind::EVD));
        let small = self.random.i32(-2..20);
        let bits = self.random.u32(..0x200);
        // Few different qualifiers, so that requests reach service points.
        let qual = 7000 + u64::from(bits % 3);
        let (name, created, of) = match self.random.u32(..9) {
            0 => ("pz_create", dat.pz_create(ia), kind::PZ),
            1 => {
                let both = (EvdFlags::SOFTWARE | EvdFlags::CONNECTION).bits();
                let flags = if bits & 1 == 0 { bits } else { both };
                let cno = if bits & 2 == 0 {
                    0
                } else {
                    self.one(kind::CNO)
                };
                (
                    "evd_create",
                    dat.evd_create(ia, small, cno, flags),
                    kind::EVD,
                )
            }
            2 => ("cno_create", dat.cno_create(ia), kind::CNO),
            3 => {
                let evds = self.evds();
                ("ep_create", dat.ep_create(ia, pz, evds), kind::EP)
            }
            4 => ("rmr_create", dat.rmr_create(pz), kind::RMR),
            5 => {
                let evd = self.sides.last().map_or(evd, |side| side.cr);
                let psp = dat.psp_create(ia, qual, evd, bits & 1);
                ("psp_create", psp, kind::PSP)
            }
            6 => {
                let ep = self.one(kind::EP);
                let evd = self.sides.last().map_or(evd, |side| side.cr);
                ("rsp_create", dat.rsp_create(ia, qual, ep, evd), kind::RSP)
            }
            7 => ("srq_create", dat.srq_create(ia, pz, small), kind::SRQ),
            _ => {
                let (evds, srq) = (self.evds(), self.one(kind::SRQ));
                let ep = dat.ep_create_with_srq(ia, pz, evds, srq);
                ("ep_create_with_srq", ep, kind::EP)
            }
        };
        (name, self.keep(created, of))
    }

    fn free(&mut self) -> (&'static str, u32) {
        let dat = self.dat;
        match self.random.u32(..40) {
            0 => (
                "ia_close",
                dat.ia_close(self.one(kind::IA), self.random.u32(..3)),
            ),
            1..5 => ("pz_free", dat.pz_free(self.one(kind::PZ))),
            5..9 => ("evd_free", dat.evd_free(self.one(kind::EVD))),
            9..13 => ("cno_free", dat.cno_free(self.one(kind::CNO))),
            13..19 => ("ep_free", dat.ep_free(self.one(kind::EP))),
            19..23 => ("lmr_free", dat.lmr_free(self.one(kind::LMR))),
            23..27 => ("rmr_free", dat.rmr_free(self.one(kind::RMR))),
            27..31 => ("psp_free", dat.psp_free(self.one(kind::PSP))),
            31..35 => ("rsp_free", dat.rsp_free(self.one(kind::RSP))),
            _ => ("srq_free", dat.srq_free(self.one(kind::SRQ))),
        }
    }

    fn event(&mut self) -> (&'static str, u32) {
        let dat = self.dat;
        let evd = self.one(kind::EVD);
        let small = self.random.i32(-2..20);
        let code = |result: Result<(), u32>| result.err().unwrap_or(0);
        match self.random.u32(..12) {
            0 => ("evd_wait", code(dat.evd_wait(evd, 10, small).map(drop))),
            1 | 2 => {
                // The EVD that receives most requests.
                let at = self.sides.last().map_or(evd, |side| side.cr);
                let seen = dat.evd_dequeue(if small & 1 == 0 { at } else { evd });
                if let Ok(Seen::Request { cr, .. }) = seen {
                    self.handles.push((cr, kind::CR));
                }
                ("evd_dequeue", code(seen.map(drop)))
            }
            3 => ("evd_post_se", dat.evd_post_se(evd, 1)),
            4 => (
                "evd_modify_cno",
                dat.evd_modify_cno(evd, self.one(kind::CNO)),
            ),
            5 => ("evd_resize", dat.evd_resize(evd, small)),
            6 => ("evd_disable", dat.evd_disable(evd)),
            7 => ("evd_enable", dat.evd_enable(evd)),
            8 => ("evd_set_unwaitable", dat.evd_set_unwaitable(evd)),
            9 => ("evd_clear_unwaitable", dat.evd_clear_unwaitable(evd)),
            10 => ("evd_query", code(dat.evd_query(evd).map(drop))),
            _ => {
                let waited = dat.cno_wait(self.one(kind::CNO), 10);
                ("cno_wait", code(waited.map(drop)))
            }
        }
    }

    fn endpoint(&mut self) -> Check<(&'static str, u32)> {
        let dat = self.dat;
        let (ep, cr, srq) = (self.one(kind::EP), self.one(kind::CR), self.one(kind::SRQ));
        let bits = self.random.u32(..0x40);
        let attr = expect_ok(self.sides.last().map(|s| s.attr).ok_or(0), "dat_ia_query")?;
        let code = |result: Result<(), u32>| result.err().unwrap_or(0);
        Ok(match self.random.u32(..12) {
            0 | 1 => {
                let qual = 7000 + u64::from(bits % 3);
                let time = self.random.u32(..50_000);
                ("ep_connect", dat.ep_connect(ep, &attr, qual, time, b"fuzz"))
            }
            2 => ("ep_disconnect", dat.ep_disconnect(ep, bits & 3)),
            3 => ("ep_reset", dat.ep_reset(ep)),
            4 => ("post_recv", dat.post(ep, Post::Recv, &[], 1, bits)),
            5 => ("post_send", dat.post(ep, Post::Send, &[], 1, bits)),
            6 => ("cr_accept", dat.cr_accept(cr, ep, b"fuzz")),
            7 => ("cr_accept", dat.cr_accept(cr, 0, b"")),
            8 => ("cr_reject", dat.cr_reject(cr, b"")),
            9 => ("srq_post_recv", dat.srq_post_recv(srq, &[], 1)),
            10 => ("srq_set_lw", dat.srq_set_lw(srq, bits as i32 - 2)),
            _ => ("ep_query", code(dat.ep_query(ep).map(drop))),
        })
    }
}
