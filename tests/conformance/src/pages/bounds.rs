//! Bounds of memory: no access goes beyond an LMR or the range of a bind, not by one byte.

use std::sync::atomic::Ordering;

use dat_abi::v2_0::types::{DatLmrTriplet, DatRmrTriplet};
use dat_core::flags::MemPriv;

use super::rights::{failed, fails};
use super::{NOT_INLINE, statements};
use crate::dat::{Dat, Post, Region, Source};
use crate::event::{REMOTE_ACCESS, SUCCESS};
use crate::fixture::{Memory, Pair, Side, expect_ok};
use crate::verdict::{Check, holds, same};

statements! {
    "dat_lmr_create": "A peer writes and reads no byte outside of the LMR: DAT_DTO_ERR_REMOTE_ACCESS." => peer;
    "dat_lmr_create": "A request or receive fails if one byte of a segment is outside of its LMR." => segments;
    "dat_rmr_bind": "A peer writes and reads no byte outside of the range of the bind: DAT_DTO_ERR_REMOTE_ACCESS." => window;
}

const ALL: u32 = MemPriv::ALL.bits();
/// Length of the range in the middle of memory of three times the length.
const LENGTH: i64 = NOT_INLINE as i64;

/// Offsets and lengths of accesses that are outside of a range of `LENGTH` bytes, wholly or in part. The last one ends behind the last
/// address, so its end as a number is in the range.
const OUTSIDE: [(i64, i64); 7] = [
    (-1, 1),
    (-1, 2),
    (-1, LENGTH),
    (1, LENGTH),
    (LENGTH - 1, 2),
    (LENGTH, 1),
    (i64::MIN, 8),
];

/// Byte of the memory outside of the range, and inside.
const OUT: u8 = 7;
const IN: u8 = 3;

/// Memory, of which the middle third is a range. A device that looks at each packet may transfer bytes of the range before it refuses
/// the others.
struct Middle {
    whole: Memory,
    start: u64,
}

impl Middle {
    fn new(side: &Side<'_>) -> Check<Self> {
        let whole = side.memory(3 * NOT_INLINE, ALL)?;
        for (at, byte) in whole.bytes().iter().enumerate() {
            let inside = (NOT_INLINE..2 * NOT_INLINE).contains(&at);
            byte.store(if inside { IN } else { OUT }, Ordering::Relaxed);
        }
        let start = whole.local().virtual_address + LENGTH as u64;
        Ok(Self { whole, start })
    }

    /// Registers the middle.
    fn region(&self, side: &Side<'_>) -> Check<Region> {
        let bytes = &self.whole.bytes()[NOT_INLINE..2 * NOT_INLINE];
        let region = side
            .dat
            .lmr_create(side.ia, Source::Virtual(bytes), side.pz, ALL);
        expect_ok(region, "dat_lmr_create")
    }

    /// Returns true if the bytes outside of the range are as they were, and none is in `other`.
    fn keeps_outside(&self, other: &Memory) -> bool {
        let outside = (0..NOT_INLINE).chain(2 * NOT_INLINE..3 * NOT_INLINE);
        outside.into_iter().all(|at| self.whole.byte(at) == OUT)
            && (0..other.bytes().len()).all(|at| other.byte(at) != OUT)
    }

    /// Returns address and length of an access.
    fn at(&self, (offset, length): (i64, i64)) -> (u64, u32) {
        match offset {
            i64::MIN => (u64::MAX - 3, length as u32),
            _ => (self.start.wrapping_add_signed(offset), length as u32),
        }
    }
}

/// Says where an access is.
fn place((offset, length): (i64, i64)) -> String {
    match offset {
        i64::MIN => format!("{length} bytes, at the last four addresses,"),
        _ => format!("{length} bytes at offset {offset}"),
    }
}

/// Has a peer read and write outside of the range in the middle of `far`, which has the key that `key` returns for a connection.
fn refuses(
    pair: &Pair<'_>,
    far: &Middle,
    what: &str,
    mut key: impl FnMut(usize) -> Check<u32>,
) -> Check {
    let own = pair.a.memory(NOT_INLINE, ALL)?;
    for access in OUTSIDE {
        for write in [true, false] {
            let (from, to) = (pair.a.ep()?, pair.b.ep()?);
            pair.join(from, to)?;
            let (virtual_address, segment_length) = far.at(access);
            let remote = DatRmrTriplet {
                virtual_address,
                segment_length,
                rmr_context: key(to)?,
            };
            own.fill(4);
            let mut segment = own.local();
            segment.segment_length = segment_length;
            let (post, kind) = match write {
                true => (Post::Write(remote), "an RDMA Write to"),
                false => (Post::Read(remote), "an RDMA Read of"),
            };
            let name = format!("{kind} {} of {what} of {LENGTH} bytes", place(access));
            pair.a.post(from, post, &[segment], 1)?;
            let status = pair.a.result(pair.a.request, 1, &name)?;
            holds(
                far.keeps_outside(&own),
                &format!("{name} has transferred bytes from outside or to there"),
            )?;
            same(&status, &REMOTE_ACCESS, &format!("status of {name}"))?;
            pair.a.ends(from)?;
            pair.b.ends(to)?;
        }
    }
    Ok(())
}

fn peer(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let far = Middle::new(&pair.b)?;
    let region = far.region(&pair.b)?;
    refuses(&pair, &far, "an LMR", |_| Ok(region.rmr_context))
}

fn window(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let far = Middle::new(&pair.b)?;
    let b = &pair.b;
    let rmr = expect_ok(dat.rmr_create(b.pz), "dat_rmr_create")?;
    let both = MemPriv::REMOTE_READ | MemPriv::REMOTE_WRITE;
    let mut middle = far.whole.local();
    (middle.virtual_address, middle.segment_length) = far.at((0, LENGTH));
    let mut cookie = 100;
    refuses(&pair, &far, "the range of a bind", |ep| {
        cookie += 1;
        let lmr = far.whole.region.lmr;
        let key = b.dat.rmr_bind(rmr, lmr, &middle, both.bits(), ep, cookie);
        let key = expect_ok(key, "dat_rmr_bind")?;
        b.completes(b.request, cookie, SUCCESS)?;
        Ok(key)
    })
}

fn segments(dat: &Dat) -> Check {
    // Short ones are taken inline, without a look at the key.
    let long = |access: &&(i64, i64)| access.1 == LENGTH;
    for access in OUTSIDE.iter().filter(long) {
        for kind in ["a send", "an RDMA Write", "an RDMA Read", "a receive"] {
            let pair = Pair::connected(dat)?;
            let (a, b) = (&pair.a, &pair.b);
            let (own, far) = (Middle::new(a)?, b.memory(NOT_INLINE, ALL)?);
            far.fill(4);
            let (virtual_address, segment_length) = own.at(*access);
            let segment = DatLmrTriplet {
                virtual_address,
                segment_length,
                lmr_context: own.region(a)?.lmr_context,
            };
            let what = match kind {
                "a send" => Post::Send,
                "an RDMA Write" => Post::Write(far.remote()),
                "an RDMA Read" => Post::Read(far.remote()),
                _ => Post::Recv,
            };
            let name = format!("{kind} with {} of an LMR of {LENGTH} bytes", place(*access));
            // The peer of a send has a receive for it.
            b.post(pair.to, Post::Recv, &[far.local()], 2)?;
            if fails(a, pair.from, what, segment, &name)? {
                continue;
            }
            let evd = if kind == "a receive" {
                b.post(pair.to, Post::Send, &[far.local()], 3)?;
                a.recv
            } else {
                a.request
            };
            let result = failed(a, evd, &name);
            holds(
                own.keeps_outside(&far),
                &format!("{name} has transferred bytes from outside or to there"),
            )?;
            result?;
        }
    }
    Ok(())
}
