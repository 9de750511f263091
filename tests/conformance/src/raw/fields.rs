//! Output structures: a call fills every field of every structure, whatever it contained before.

use dat_abi::types::{
    CLayout, DatCrParam, DatEvdParam, DatPspParam, DatPzParam, DatRspParam, DatSrqParam,
    event_number,
};
use dat_abi::{v1_2, v2_0};
use dat_core::error::Subtype;

use super::functions::Thing;
use super::valid::triplet;
use super::world::{Target, World};
use crate::api::Api;
use crate::verdict::{Check, broken};

/// Buffer size in words: larger than the largest structure.
const ROOM: usize = 128;

/// Makes the call twice, with a buffer of zeros and one of ones: a field whose bytes differ afterwards was not
/// written.
fn filled(what: &str, fields: &[(&str, usize)], mut call: impl FnMut(usize) -> Check) -> Check {
    let (mut zeros, mut ones) = ([0_u64; ROOM], [!0_u64; ROOM]);
    call(zeros.as_mut_ptr() as usize)?;
    call(ones.as_mut_ptr() as usize)?;
    let byte = |room: &[u64; ROOM], at: usize| room[at / 8].to_ne_bytes()[at % 8];
    let missing: Vec<_> = fields
        .iter()
        .filter(|(_, at)| byte(&zeros, *at) == 0 && byte(&ones, *at) == 0xff)
        .map(|(name, _)| *name)
        .collect();
    if missing.is_empty() {
        Ok(())
    } else {
        broken(format!("{what} did not write the fields {missing:?}"))
    }
}

/// Lists the fields of the two versions' structure.
macro_rules! fields {
    ($api:expr, $name:ident) => {
        match $api {
            Api::V1_2 => v1_2::types::$name::FIELDS,
            Api::V2_0 => v2_0::types::$name::FIELDS,
        }
    };
}

/// Calls every query on the objects of a world, and takes a completion of each kind of request.
///
/// # Errors
/// A structure with fields that were not written.
pub fn every_field_is_filled(target: &Target) -> Check {
    let world = World::open(target)?;
    let api = world.table.api();
    let all = usize::MAX;
    filled(
        "dat_ia_query (DAT_IA_ATTR)",
        fields!(api, DatIaAttr),
        |at| world.call("ia_query", &[world.ia, 0, all, at, 0, 0]),
    )?;
    filled(
        "dat_ia_query (DAT_PROVIDER_ATTR)",
        fields!(api, DatProviderAttr),
        |at| world.call("ia_query", &[world.ia, 0, 0, 0, all, at]),
    )?;
    for (call, thing, fields) in [
        ("ep_query", Thing::Ep, fields!(api, DatEpParam)),
        ("lmr_query", Thing::Lmr, fields!(api, DatLmrParam)),
        ("rmr_query", Thing::Rmr, fields!(api, DatRmrParam)),
        ("cno_query", Thing::Cno, fields!(api, DatCnoParam)),
        ("cr_query", Thing::Cr, DatCrParam::FIELDS),
        ("evd_query", Thing::Evd, DatEvdParam::FIELDS),
        ("psp_query", Thing::Psp, DatPspParam::FIELDS),
        ("rsp_query", Thing::Rsp, DatRspParam::FIELDS),
        ("pz_query", Thing::Pz, DatPzParam::FIELDS),
        ("srq_query", Thing::Srq, DatSrqParam::FIELDS),
        ("csp_query", Thing::Csp, v2_0::types::DatCspParam::FIELDS),
    ] {
        let handle = world.one(thing, Subtype::NoSubtype);
        if thing == Thing::Csp && api == Api::V1_2 {
            continue;
        }
        filled(&format!("dat_{call}"), fields, |at| {
            world.call(call, &[handle, all, at])
        })?;
    }
    completions(&world)
}

/// Checks the events of a receive, a send, an RDMA write and an RDMA read: endpoint, operation and length.
fn completions(world: &World) -> Check {
    let api = world.table.api();
    let memory = world.memory.as_ptr() as u64;
    let iov = triplet(api, memory, 64, world.lmr_context);
    let remote = triplet(api, memory + 2048, 64, world.rmr_context);
    let (iov, remote) = (iov.as_ptr() as usize, remote.as_ptr() as usize);
    let [from, to] = world.joined;
    let data = std::mem::offset_of!(v2_0::types::DatEvent, event_data);
    let mut fields = vec![("event_number", 0), ("evd_handle", 8)];
    let of_data = fields!(api, DatDtoCompletionEventData);
    fields.extend(of_data.iter().map(|(name, at)| (*name, data + at)));
    for (call, words, waits) in [
        (
            "ep_post_send",
            vec![from, 1, iov, 7, 0],
            vec![world.evds()[1], world.evds()[0]],
        ),
        (
            "ep_post_rdma_write",
            vec![from, 1, iov, 7, remote, 0],
            vec![world.evds()[1]],
        ),
        (
            "ep_post_rdma_read",
            vec![from, 1, iov, 7, remote, 0],
            vec![world.evds()[1]],
        ),
    ] {
        for evd in &waits {
            let mut more = 0_i32;
            let other: Vec<usize> = waits.iter().copied().filter(|e| e != evd).collect();
            filled(&format!("completion of dat_{call}"), &fields, |at| {
                if waits.len() > 1 {
                    world.call("ep_post_recv", &[to, 1, iov, 8, 0])?;
                }
                world.call(call, &words)?;
                let more = &raw mut more as usize;
                world.call("evd_wait", &[*evd, WAIT, 1, at, more])?;
                // SAFETY: the room that the event was written to.
                let number = unsafe { *(at as *const u32) };
                if number != event_number::DTO_COMPLETION {
                    return broken(format!(
                        "dat_{call} produced event {number:#x}; expected a DTO completion"
                    ));
                }
                for evd in &other {
                    let mut rest = [0_u64; ROOM];
                    let rest = rest.as_mut_ptr() as usize;
                    world.call("evd_wait", &[*evd, WAIT, 1, rest, more])?;
                }
                Ok(())
            })?;
        }
    }
    Ok(())
}

/// Timeout of a completion, in microseconds.
const WAIT: usize = 10_000_000;

/// Returns the shortest of `times` abrupt disconnects, in microseconds: DAPL sleeps at least 10 ms in each.
///
/// # Errors
/// A call that failed.
pub fn shortest_disconnect(target: &Target, times: usize) -> Check<u128> {
    let mut shortest = u128::MAX;
    for _ in 0..times {
        let world = World::open(target)?;
        let begun = std::time::Instant::now();
        world.call("ep_disconnect", &[world.joined[0], 0])?;
        shortest = shortest.min(begun.elapsed().as_micros());
    }
    Ok(shortest)
}

/// Starts `count` connections at once, accepts all, and expects all to be established.
///
/// # Errors
/// A call that failed, or an unexpected event.
pub fn connection_storm(target: &Target, count: usize) -> Check {
    let world = World::open(target)?;
    let evd = |flags| world.make("evd_create", &[world.ia, 4 * count, 0, flags]);
    let (conn, requests) = (evd(0x40)?, evd(0x10)?);
    let mut qual = 0_u64;
    let at = &raw mut qual as usize;
    world.make("psp_create_any", &[world.ia, at, requests, 0])?;
    let [recv, request, ..] = world.evds();
    let parts = [world.ia, world.pz, recv, request, conn, 0];
    let mut passive = Vec::new();
    for _ in 0..count {
        let ep = world.make("ep_create", &parts)?;
        passive.push(world.make("ep_create", &parts)?);
        let words = [ep, world.address, qual as usize, WAIT, 0, 0, 0, 0];
        world.call("ep_connect", &words)?;
    }
    for ep in passive {
        let (number, cr) = world.event(requests)?;
        if number != event_number::CONNECTION_REQUEST {
            return broken(format!(
                "event {number:#x} on the EVD of requests; expected a connection request"
            ));
        }
        world.call("cr_accept", &[cr, ep, 0, 0])?;
    }
    for established in 0..2 * count {
        let (number, _) = world.event(conn)?;
        if number != ESTABLISHED {
            return broken(format!(
                "found event {number:#x} after {established} established connections; expected another established one"
            ));
        }
    }
    Ok(())
}

/// `DAT_CONNECTION_EVENT_ESTABLISHED`.
const ESTABLISHED: u32 = 0x4001;
