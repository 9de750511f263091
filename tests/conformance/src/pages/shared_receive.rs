//! dat_srq_*, dat_ep_create_with_srq, dat_ep_recv_query, dat_ep_set_watermark.

use dat_abi::types::DAT_VALUE_UNKNOWN;
use dat_core::error::Kind;

use super::statements;
use crate::dat::{Dat, Post};
use crate::event::{SUCCESS, Seen};
use crate::fixture::{Pair, Side, expect_ok};
use crate::verdict::{Check, broken, holds, ok, refused, same};

statements! {
    "dat_srq_create": "Endpoints on one SRQ take their receives from it." => shared;
    "dat_srq_create": "A queue of length 0 is DAT_INVALID_PARAMETER." => no_length;
    "dat_srq_query": "The query returns the parameters that the SRQ was created with, and the number of posted receives." => query;
    "dat_srq_post_recv": "A receive for a full queue is DAT_INSUFFICIENT_RESOURCES." => full;
    "dat_srq_resize": "More receives can be posted, and posted receives stay." => grow;
    "dat_srq_resize": "A queue shorter than its posted receives is DAT_INVALID_STATE." => shrink;
    "dat_srq_post_recv": "A message that came before takes the receive." => message_first;
    "dat_srq_set_lw": "No event is reported while as many receives are left." => not_yet_low;
    "dat_srq_set_lw": "One asynchronous event is reported when fewer receives are left." => low;
    "dat_srq_set_lw": "A low watermark above the queue's length is DAT_INVALID_PARAMETER." => too_high;
    "dat_srq_free": "An SRQ in use by an endpoint cannot be destroyed: DAT_INVALID_STATE." => in_use;
    "dat_srq_free": "The handle of a destroyed SRQ fails in any later operation." => handle_fails;
    "dat_pz_free": "A PZ in use by an RMR or an SRQ cannot be destroyed: DAT_INVALID_STATE." => zone_in_use;
    "dat_ep_create_with_srq": "The query returns the SRQ, and receives cannot be posted to the endpoint." => endpoint;
    "dat_ep_recv_query": "It returns the number of posted receives." => recv_query;
    "dat_ep_recv_query": "On an SRQ a provider may return DAT_VALUE_UNKNOWN." => recv_query_shared;
    "dat_ep_set_watermark": "DAT_WATERMARK_INFINITE sets no watermark; every provider accepts it." => infinite;
    "dat_ep_set_watermark": "A finite watermark is accepted, or refused as DAT_MODEL_NOT_SUPPORTED." => finite;
}

/// `DAT_WATERMARK_INFINITE`.
const INFINITE: i32 = -1;

fn srq<'a>(dat: &'a Dat, depth: i32) -> Check<(Side<'a>, usize)> {
    let side = Side::open(dat)?;
    let srq = expect_ok(dat.srq_create(side.ia, side.pz, depth), "dat_srq_create")?;
    Ok((side, srq))
}

fn post(dat: &Dat, srq: usize, cookies: std::ops::RangeInclusive<u64>) -> Check {
    for cookie in cookies {
        ok(dat.srq_post_recv(srq, &[], cookie), "dat_srq_post_recv")?;
    }
    Ok(())
}

fn on(side: &Side<'_>, srq: usize) -> Check<usize> {
    let evds = [side.recv, side.request, side.conn];
    let ep = side.dat.ep_create_with_srq(side.ia, side.pz, evds, srq);
    expect_ok(ep, "dat_ep_create_with_srq")
}

/// Returns the cookie of the receive that a message to `ep` completes.
fn received(pair: &Pair<'_>, from: usize, to: usize) -> Check<u64> {
    pair.a.post(from, Post::Send, &[], 1)?;
    match pair.b.wait(pair.b.recv)? {
        Seen::Dto { ep, cookie, .. } if ep == to => Ok(cookie),
        other => broken(format!(
            "dat_evd_wait returned {other:?}; expected a receive of that endpoint"
        )),
    }
}

fn shared(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let b = &pair.b;
    let srq = expect_ok(dat.srq_create(b.ia, b.pz, 8), "dat_srq_create")?;
    post(dat, srq, 1..=2)?;
    for cookie in 1..=2 {
        let (from, to) = (pair.a.ep()?, on(b, srq)?);
        pair.join(from, to)?;
        let seen = received(&pair, from, to)?;
        same(&seen, &cookie, "cookie of the receive")?;
    }
    Ok(())
}

fn no_length(dat: &Dat) -> Check {
    let (side, _) = srq(dat, 8)?;
    let code = dat.srq_create(side.ia, side.pz, 0).err().unwrap_or(0);
    refused(code, Kind::InvalidParameter, "dat_srq_create of length 0")
}

fn query(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    post(dat, srq, 1..=3)?;
    let seen = expect_ok(dat.srq_query(srq), "dat_srq_query")?;
    same(
        &(seen.ia_handle, seen.pz_handle),
        &(side.ia, side.pz),
        "IA and PZ",
    )?;
    holds(
        seen.max_recv_dtos >= 8,
        "the query returned fewer DTOs than were requested",
    )?;
    holds(
        seen.max_recv_iov >= 1,
        "the query returned fewer segments than were requested",
    )?;
    let known = [3, DAT_VALUE_UNKNOWN];
    holds(
        known.contains(&seen.outstanding_dto_count) && known.contains(&seen.available_dto_count),
        "dat_srq_query does not return 3 posted receives",
    )
}

fn full(dat: &Dat) -> Check {
    let (_side, srq) = srq(dat, 4)?;
    let room = expect_ok(dat.srq_query(srq), "dat_srq_query")?.max_recv_dtos;
    post(dat, srq, 1..=room as u64)?;
    let code = dat.srq_post_recv(srq, &[], 99);
    refused(code, Kind::InsufficientResources, "dat_srq_post_recv")
}

fn grow(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let b = &pair.b;
    let srq = expect_ok(dat.srq_create(b.ia, b.pz, 4), "dat_srq_create")?;
    post(dat, srq, 1..=4)?;
    ok(dat.srq_resize(srq, 16), "dat_srq_resize")?;
    post(dat, srq, 5..=16)?;
    let to = on(b, srq)?;
    pair.join(pair.from, to)?;
    for cookie in 1..=16 {
        same(&received(&pair, pair.from, to)?, &cookie, "cookie")?;
    }
    Ok(())
}

fn shrink(dat: &Dat) -> Check {
    let (_side, srq) = srq(dat, 8)?;
    post(dat, srq, 1..=6)?;
    refused(dat.srq_resize(srq, 5), Kind::InvalidState, "dat_srq_resize")
}

fn low(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let b = &pair.b;
    let srq = expect_ok(dat.srq_create(b.ia, b.pz, 8), "dat_srq_create")?;
    post(dat, srq, 1..=3)?;
    ok(dat.srq_set_lw(srq, 2), "dat_srq_set_lw")?;
    b.quiet(b.async_evd)?;
    let to = on(b, srq)?;
    pair.join(pair.from, to)?;
    for _ in 1..=3 {
        received(&pair, pair.from, to)?;
    }
    match b.wait(b.async_evd)? {
        Seen::Other(_) => {}
        other => {
            return broken(format!(
                "dat_evd_wait returned {other:?}; expected an asynchronous event"
            ));
        }
    }
    b.quiet(b.async_evd)
}

fn not_yet_low(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let b = &pair.b;
    let srq = expect_ok(dat.srq_create(b.ia, b.pz, 8), "dat_srq_create")?;
    post(dat, srq, 1..=3)?;
    ok(dat.srq_set_lw(srq, 2), "dat_srq_set_lw")?;
    let to = on(b, srq)?;
    pair.join(pair.from, to)?;
    received(&pair, pair.from, to)?;
    b.quiet(b.async_evd)
}

fn message_first(dat: &Dat) -> Check {
    let pair = Pair::apart(dat)?;
    let (a, b) = (&pair.a, &pair.b);
    let srq = expect_ok(dat.srq_create(b.ia, b.pz, 8), "dat_srq_create")?;
    let to = on(b, srq)?;
    pair.join(pair.from, to)?;
    a.post(pair.from, Post::Send, &[], 1)?;
    a.quiet(a.request)?;
    post(dat, srq, 2..=2)?;
    b.completes(b.recv, 2, SUCCESS)?;
    a.completes(a.request, 1, SUCCESS)
}

fn too_high(dat: &Dat) -> Check {
    let (_side, srq) = srq(dat, 8)?;
    let room = expect_ok(dat.srq_query(srq), "dat_srq_query")?.max_recv_dtos;
    let code = dat.srq_set_lw(srq, room + 1);
    refused(code, Kind::InvalidParameter, "dat_srq_set_lw")
}

fn in_use(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    let ep = on(&side, srq)?;
    refused(dat.srq_free(srq), Kind::InvalidState, "dat_srq_free")?;
    ok(dat.ep_free(ep), "dat_ep_free")?;
    ok(dat.srq_free(srq), "dat_srq_free")
}

fn handle_fails(dat: &Dat) -> Check {
    let (_side, srq) = srq(dat, 8)?;
    ok(dat.srq_free(srq), "dat_srq_free")?;
    for code in [
        dat.srq_free(srq),
        dat.srq_resize(srq, 16),
        dat.srq_set_lw(srq, 1),
        dat.srq_post_recv(srq, &[], 1),
        dat.srq_query(srq).err().unwrap_or(0),
    ] {
        refused(code, Kind::InvalidHandle, "a call with a freed SRQ")?;
    }
    Ok(())
}

fn zone_in_use(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    refused(dat.pz_free(side.pz), Kind::InvalidState, "dat_pz_free, SRQ")?;
    ok(dat.srq_free(srq), "dat_srq_free")?;
    if let Ok(rmr) = dat.rmr_create(side.pz) {
        refused(dat.pz_free(side.pz), Kind::InvalidState, "dat_pz_free, RMR")?;
        ok(dat.rmr_free(rmr), "dat_rmr_free")?;
    }
    ok(dat.pz_free(side.pz), "dat_pz_free")
}

fn endpoint(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    let ep = on(&side, srq)?;
    let seen = expect_ok(dat.ep_query(ep), "dat_ep_query")?;
    same(&seen.srq_handle, &srq, "SRQ")?;
    let code = dat.post(ep, Post::Recv, &[], 1, 0);
    holds(
        code != 0,
        "dat_ep_post_recv succeeded on an endpoint with an SRQ",
    )
}

fn recv_query(dat: &Dat) -> Check {
    let side = Side::open(dat)?;
    let ep = side.ep()?;
    for posted in 1..=3 {
        side.post(ep, Post::Recv, &[], 1)?;
        let (allocated, _) = expect_ok(dat.ep_recv_query(ep), "dat_ep_recv_query")?;
        same(&allocated, &posted, "buffers allocated")?;
    }
    Ok(())
}

fn recv_query_shared(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    let ep = on(&side, srq)?;
    let (allocated, spanned) = expect_ok(dat.ep_recv_query(ep), "dat_ep_recv_query")?;
    holds(
        [allocated, spanned]
            .iter()
            .all(|n| (0..i32::MAX).contains(n) || *n == DAT_VALUE_UNKNOWN),
        "dat_ep_recv_query returned an impossible number of buffers",
    )
}

fn infinite(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    let code = dat.ep_set_watermark(on(&side, srq)?, INFINITE, INFINITE);
    ok(code, "dat_ep_set_watermark")
}

fn finite(dat: &Dat) -> Check {
    let (side, srq) = srq(dat, 8)?;
    let ep = on(&side, srq)?;
    match dat.ep_set_watermark(ep, 2, 4) {
        0 => Ok(()),
        code => refused(code, Kind::ModelNotSupported, "dat_ep_set_watermark"),
    }
}
