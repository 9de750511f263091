//! Statements that all pages make about handles: a handle that is NULL, freed, of another kind or invalid is
//! DAT_INVALID_HANDLE.

use dat_abi::types::handle_type;
use dat_core::error::{Error, Kind, Subtype};
use dat_core::flags::MemPriv;

use super::statements;
use crate::dat::Dat;
use crate::fixture::{MOMENT, Pair, Side, expect_ok};
use crate::verdict::{Check, ok, refused, same};

statements! {
    "dat_get_handle_type": "It returns the type of each handle." => kinds;
    "every page": "Return codes are the numbers of the version: type, and the subtype for the argument or state." => numbers;
    "every page": "NULL is DAT_INVALID_HANDLE." => null;
    "every page": "A handle of another kind is DAT_INVALID_HANDLE, and its object is unchanged." => other_kind;
    "every page": "A number that is no handle is DAT_INVALID_HANDLE." => garbage;
    "every page": "A handle that was freed is DAT_INVALID_HANDLE." => freed;
}

/// Creates one object of each kind that the provider has; returns handle and kind.
pub(crate) fn one_of_each(side: &Side<'_>) -> Check<Vec<(usize, u32)>> {
    let dat = side.dat;
    let memory = side.memory(64, MemPriv::ALL.bits())?;
    let reserved = side.ep()?;
    let (psp, qual) = side.listen()?;
    let rsp = dat.rsp_create(side.ia, qual + 1, reserved, side.cr);
    let maybe = [
        (dat.rmr_create(side.pz).ok(), handle_type::RMR),
        (rsp.ok(), handle_type::RSP),
        (dat.cno_create(side.ia).ok(), handle_type::CNO),
        (dat.srq_create(side.ia, side.pz, 4).ok(), handle_type::SRQ),
    ];
    let mut all = vec![
        (side.ep()?, handle_type::EP),
        (side.recv, handle_type::EVD),
        (side.ia, handle_type::IA),
        (memory.region.lmr, handle_type::LMR),
        (psp, handle_type::PSP),
        (side.pz, handle_type::PZ),
    ];
    all.extend(maybe.iter().filter_map(|(h, kind)| Some(((*h)?, *kind))));
    Ok(all)
}

/// Makes all calls that take a handle of `kind` with `handle`; returns their codes.
fn calls(dat: &Dat, kind: u32, handle: usize) -> Vec<u32> {
    let err = |code: Option<u32>| code.unwrap_or(0);
    match kind {
        handle_type::EP => vec![
            err(dat.ep_query(handle).err()),
            err(dat.ep_get_status(handle).err()),
            dat.ep_disconnect(handle, 0),
            dat.ep_reset(handle),
            dat.post(handle, crate::dat::Post::Recv, &[], 1, 0),
            dat.post(handle, crate::dat::Post::Send, &[], 1, 0),
            dat.ep_free(handle),
        ],
        handle_type::EVD => vec![
            err(dat.evd_query(handle).err()),
            err(dat.evd_dequeue(handle).err()),
            err(dat.evd_wait(handle, MOMENT, 1).err()),
            dat.evd_post_se(handle, 1),
            dat.evd_enable(handle),
            dat.evd_disable(handle),
            dat.evd_set_unwaitable(handle),
            dat.evd_clear_unwaitable(handle),
            dat.evd_resize(handle, 16),
            dat.evd_free(handle),
        ],
        handle_type::IA => vec![
            err(dat.ia_query(handle).err()),
            err(dat.pz_create(handle).err()),
            err(dat.cno_create(handle).err()),
            err(dat.evd_create(handle, 4, 0, 1).err()),
            dat.ia_close(handle, 0),
        ],
        handle_type::LMR => vec![err(dat.lmr_query(handle).err()), dat.lmr_free(handle)],
        handle_type::RMR => vec![err(dat.rmr_query(handle).err()), dat.rmr_free(handle)],
        handle_type::PZ => vec![
            err(dat.pz_query(handle).err()),
            err(dat.rmr_create(handle).err()),
            dat.pz_free(handle),
        ],
        handle_type::PSP => vec![err(dat.psp_query(handle).err()), dat.psp_free(handle)],
        handle_type::RSP => vec![err(dat.rsp_query(handle).err()), dat.rsp_free(handle)],
        handle_type::CNO => vec![
            err(dat.cno_query(handle).err()),
            err(dat.cno_wait(handle, MOMENT).err()),
            dat.cno_free(handle),
        ],
        handle_type::SRQ => vec![
            err(dat.srq_query(handle).err()),
            dat.srq_post_recv(handle, &[], 1),
            dat.srq_resize(handle, 8),
            dat.srq_set_lw(handle, 1),
            dat.srq_free(handle),
        ],
        _ => vec![err(dat.cr_query(handle).err()), dat.cr_reject(handle, b"")],
    }
}

const KINDS: std::ops::RangeInclusive<u32> = handle_type::CR..=handle_type::SRQ;

fn all_refuse(dat: &Dat, kind: u32, handle: usize, what: &str) -> Check {
    for (number, code) in calls(dat, kind, handle).into_iter().enumerate() {
        // A provider that lacks the call may report that.
        let call = format!("call {number} for handle type {kind} with {what}");
        refused(code, Kind::InvalidHandle, &call)
            .or_else(|e| refused(code, Kind::NotImplemented, &call).map_err(|_| e))?;
    }
    Ok(())
}

fn kinds(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    for (handle, kind) in one_of_each(&side)? {
        same(&dat.get_handle_type(handle), &Ok(kind), "handle type")?;
    }
    let pair = Pair::apart(dat)?;
    let cr = pair.asked(pair.from, crate::fixture::FOREVER)?;
    same(
        &dat.get_handle_type(cr),
        &Ok(handle_type::CR),
        "handle type",
    )
}

fn numbers(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let wait = dat.evd_wait(side.conn, MOMENT, 0).err().unwrap_or(0);
    // The codes were converted from the table's version to 2.0's numbers. If a 1.2 table returned 2.0's numbers, the
    // conversion would change them.
    let codes = [
        ("dat_evd_wait", wait, Error::arg(3)),
        (
            "dat_ep_disconnect",
            dat.ep_disconnect(ep, 0),
            Error::state(Subtype::InvalidStateEpUnconnected),
        ),
        (
            "dat_ep_free",
            dat.ep_free(0),
            Error::handle(Subtype::InvalidHandleEp),
        ),
    ];
    for (call, code, expected) in codes {
        same(&Error::from_code(code), &Some(expected), call)?;
    }
    Ok(())
}

fn null(dat: &Dat) -> Check {
    for kind in KINDS {
        all_refuse(dat, kind, 0, "NULL")?;
    }
    let code = dat.get_handle_type(0).err().unwrap_or(0);
    refused(code, Kind::InvalidHandle, "dat_get_handle_type(NULL)")
}

fn other_kind(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let all = one_of_each(&side)?;
    for kind in KINDS {
        for (handle, own) in &all {
            if *own != kind {
                all_refuse(dat, kind, *handle, &format!("one of type {own}"))?;
            }
        }
    }
    for (handle, kind) in all {
        same(&dat.get_handle_type(handle), &Ok(kind), "type afterwards")?;
    }
    Ok(())
}

fn garbage(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    let word = 0x1234_5678_usize;
    let numbers = [
        1,
        8,
        usize::MAX,
        1 << 63,
        ep + 1,
        ep + 8,
        &raw const word as usize,
    ];
    for kind in KINDS {
        for number in numbers {
            all_refuse(dat, kind, number, &format!("{number:#x}"))?;
        }
    }
    expect_ok(dat.ep_query(ep), "dat_ep_query afterwards")?;
    Ok(())
}

fn freed(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let all = one_of_each(&side)?;
    ok(dat.ia_close(side.ia, 0), "dat_ia_close")?;
    for (handle, kind) in all {
        all_refuse(dat, kind, handle, "a freed one")?;
        let code = dat.get_handle_type(handle).err().unwrap_or(0);
        refused(code, Kind::InvalidHandle, "dat_get_handle_type")?;
    }
    Ok(())
}
