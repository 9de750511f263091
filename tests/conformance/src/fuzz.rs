//! Random calls with random handles, some alive, some freed, some none at all.

use dat_core::error::{Error, Kind};
use dat_core::flags::{EvdFlags, MemPriv};

use crate::dat::{Dat, Post};
use crate::fixture::{Side, made};
use crate::verdict::{Check, broken};

/// Makes `calls` calls, the same for the same `seed`. No call may block for long, answer a code that is none of the
/// specification's, or say `DAT_INTERNAL_ERROR`; and in the end a new IA must work.
///
/// # Errors
/// The first wrong answer, with the number of the call.
pub fn fuzz(dat: &Dat, seed: u64, calls: usize) -> Check {
    let mut run = Run {
        dat,
        random: fastrand::Rng::with_seed(seed),
        handles: vec![0, 1, usize::MAX],
        sides: Vec::new(),
    };
    for number in 0..calls {
        let (slot, code) = run.step()?;
        let Some(error) = Error::from_code(code) else {
            continue;
        };
        match error.kind() {
            None | Some(Kind::InternalError) => {
                return broken(format!("seed {seed}, call {number} ({slot}): {error}"));
            }
            Some(_) => {}
        }
    }
    drop(run);
    let side = Side::open(dat)?;
    side.ep().map(drop)
}

struct Run<'a> {
    dat: &'a Dat,
    random: fastrand::Rng,
    /// Handles of any age and kind.
    handles: Vec<usize>,
    sides: Vec<Side<'a>>,
}

impl Run<'_> {
    fn any(&mut self) -> usize {
        let recent = self.handles.len().min(60);
        let at = self.handles.len() - 1 - self.random.usize(..recent);
        self.handles[at]
    }

    fn keep(&mut self, made: Result<usize, u32>) -> u32 {
        match made {
            Ok(handle) => {
                self.handles.push(handle);
                0
            }
            Err(code) => code,
        }
    }

    /// An IA with its objects; old ones are closed.
    fn side(&mut self) -> Check {
        let side = Side::open(self.dat)?;
        let ep = side.ep()?;
        let memory = side.memory(64, MemPriv::ALL.bits())?.region.lmr;
        self.handles.extend([
            side.ia,
            side.async_evd,
            side.pz,
            side.recv,
            side.request,
            side.conn,
            side.cr,
            ep,
            memory,
        ]);
        self.sides.push(side);
        if self.sides.len() > 2 {
            self.sides.remove(0);
        }
        Ok(())
    }

    /// One call: its name and code.
    fn step(&mut self) -> Check<(&'static str, u32)> {
        if self.sides.is_empty() || self.random.u32(..200) == 0 {
            self.side()?;
        }
        let dat = self.dat;
        let (h, g) = (self.any(), self.any());
        let evds = [self.any(), self.any(), self.any()];
        let small = self.random.i32(-2..20);
        let bits = self.random.u32(..0x200);
        let attr = made(
            self.sides.last().map(|side| side.attr).ok_or(0),
            "dat_ia_query",
        )?;
        let code = |result: Result<(), u32>| result.err().unwrap_or(0);
        Ok(match self.random.u32(..40) {
            0 => ("pz_create", {
                let made = dat.pz_create(h);
                self.keep(made)
            }),
            1 => ("evd_create", {
                let flags = if bits & 1 == 0 {
                    bits
                } else {
                    (EvdFlags::SOFTWARE | EvdFlags::DTO).bits()
                };
                let made = dat.evd_create(h, small, g, flags);
                self.keep(made)
            }),
            2 => ("cno_create", {
                let made = dat.cno_create(h);
                self.keep(made)
            }),
            3 | 4 => ("ep_create", {
                let made = dat.ep_create(h, g, evds);
                self.keep(made)
            }),
            5 => ("rmr_create", {
                let made = dat.rmr_create(h);
                self.keep(made)
            }),
            6 => ("psp_create", {
                let made = dat.psp_create(h, u64::from(bits), g, bits & 1);
                self.keep(made)
            }),
            7 => ("rsp_create", {
                let made = dat.rsp_create(h, u64::from(bits), g, evds[0]);
                self.keep(made)
            }),
            8 => ("srq_create", {
                let made = dat.srq_create(h, g, small);
                self.keep(made)
            }),
            9 => ("ep_create_with_srq", {
                let made = dat.ep_create_with_srq(h, g, evds, small as usize);
                self.keep(made)
            }),
            10 => ("ia_close", dat.ia_close(h, bits & 3)),
            11 => ("pz_free", dat.pz_free(h)),
            12 => ("evd_free", dat.evd_free(h)),
            13 => ("cno_free", dat.cno_free(h)),
            14 => ("ep_free", dat.ep_free(h)),
            15 => ("lmr_free", dat.lmr_free(h)),
            16 => ("rmr_free", dat.rmr_free(h)),
            17 => ("psp_free", dat.psp_free(h)),
            18 => ("rsp_free", dat.rsp_free(h)),
            19 => ("srq_free", dat.srq_free(h)),
            20 => ("evd_wait", code(dat.evd_wait(h, 10, small).map(drop))),
            21 => ("evd_dequeue", code(dat.evd_dequeue(h).map(drop))),
            22 => ("evd_post_se", dat.evd_post_se(h, 1)),
            23 => ("evd_modify_cno", dat.evd_modify_cno(h, g)),
            24 => ("evd_resize", dat.evd_resize(h, small)),
            25 => ("evd_disable", dat.evd_disable(h)),
            26 => ("evd_enable", dat.evd_enable(h)),
            27 => ("evd_set_unwaitable", dat.evd_set_unwaitable(h)),
            28 => ("evd_clear_unwaitable", dat.evd_clear_unwaitable(h)),
            29 => ("cno_wait", code(dat.cno_wait(h, 10).map(drop))),
            30 => ("ep_connect", {
                let time = self.random.u32(..5000);
                dat.ep_connect(h, &attr, u64::from(bits), time, b"fuzz")
            }),
            31 => ("ep_disconnect", dat.ep_disconnect(h, bits & 3)),
            32 => ("ep_reset", dat.ep_reset(h)),
            33 => ("post_recv", dat.post(h, Post::Recv, &[], 1, bits & 0x3f)),
            34 => ("post_send", dat.post(h, Post::Send, &[], 1, bits & 0x3f)),
            35 => ("cr_accept", dat.cr_accept(h, g, b"fuzz")),
            36 => ("cr_reject", dat.cr_reject(h, b"")),
            37 => ("srq_post_recv", dat.srq_post_recv(h, &[], 1)),
            38 => ("srq_set_lw", dat.srq_set_lw(h, small)),
            _ => ("ep_query", code(dat.ep_query(h).map(drop))),
        })
    }
}
