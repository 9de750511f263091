//! Every function with each of its arguments invalid in every way: the exact code.

use dat_core::error::{Error, Kind, Subtype};

use super::functions::{Arg, FUNCTIONS, Function, Thing};
use super::memory::{ArgumentMemory, followed, impostor, large};
use super::valid::{good, places};
use super::world::{Target, World};
use crate::verdict::{Check, broken};

/// More segments than any adapter supports, and more bytes than private data may have.
const TOO_MANY: usize = 100_000;

/// Calls each function with one invalid argument at a time, in all ways in which it can be invalid, and expects the
/// code that names it. Then calls it with valid arguments, which must succeed: this proves that the invalid one caused
/// the refusal. Returns the number of calls.
///
/// # Errors
/// The first other code.
pub fn invalid_arguments(target: &Target) -> Check<usize> {
    let mut calls = 0;
    let mut wrong = Vec::new();
    for function in FUNCTIONS {
        if function.is_of(target.opener.api()) {
            calls += one_function(target, function, &mut wrong)?;
        }
    }
    if wrong.is_empty() {
        Ok(calls)
    } else {
        broken(wrong.join("\n"))
    }
}

fn one_function(target: &Target, function: &Function, wrong: &mut Vec<String>) -> Check<usize> {
    let world = World::open(target)?;
    let mut memory_of_arguments = ArgumentMemory::new();
    let mut calls = 0;
    let name = function.name;
    let table = if name == "ia_open" {
        target.opener
    } else {
        world.table
    };
    for (index, place) in places(function).into_iter().enumerate() {
        for (value, expected) in bad(&world, function, index) {
            let mut words = good(&world, target, function, &mut memory_of_arguments);
            if matches!(function.args[index], Arg::EpAttr) {
                memory_of_arguments.room(place).fill(value as u64);
                words[place] = memory_of_arguments.room(place).as_mut_ptr() as usize;
            } else {
                words[place] = value;
            }
            if matches!(function.args[index], Arg::Segments | Arg::DataSize) {
                words[place + 1] = large();
            }
            // SAFETY: pointers are good or NULL.
            let code = unsafe { table.call(name, &words) };
            calls += 1;
            if code != Some(expected.code()) {
                let told = code.and_then(Error::from_code);
                wrong.push(format!(
                    "dat_{name} with argument {} = {value:#x} returned {told:?}; expected {expected}",
                    index + 1
                ));
            }
        }
    }
    if followed() != 0 {
        return broken(format!(
            "dat_{name} called a function through an object that is no handle"
        ));
    }
    let words = good(&world, target, function, &mut memory_of_arguments);
    // SAFETY: all pointers are good.
    let code = unsafe { table.call(name, &words) };
    let is_expected = match code.and_then(Error::from_code) {
        None => code == Some(0),
        Some(error) => expected_error(name, error),
    };
    if !is_expected {
        wrong.push(format!(
            "dat_{name} with valid arguments returned {:?}; expected success",
            code.and_then(Error::from_code)
        ));
    }
    if name == "ia_open" {
        let opened = memory_of_arguments.room(3)[0] as usize;
        // SAFETY: no pointers.
        unsafe { table.call("ia_close", &[opened, 0]) };
    }
    Ok(calls + 1)
}

/// Returns true for the error of a call with valid arguments that cannot succeed.
fn expected_error(name: &str, error: Error) -> bool {
    let in_use = |subtype| error == Error::state(subtype);
    match name {
        // The queue is empty.
        "evd_dequeue" => error.kind() == Some(Kind::QueueEmpty),
        "evd_wait" => error.kind() == Some(Kind::TimeoutExpired),
        // DAPL returns the code without the class bit.
        "cno_wait" | "cno_trigger" => error == Error::of(Kind::QueueEmpty).without_class(),
        // There is no service point to hand off to.
        "cr_handoff" => error == Error::arg(2),
        // The world uses them.
        "lmr_free" => in_use(Subtype::InvalidStateLmrInUse),
        "pz_free" => in_use(Subtype::InvalidStatePzInUse),
        // The address of an IA contains no port.
        "ep_common_connect" => error.kind() == Some(Kind::InvalidAddress),
        // Not supported by this transport.
        "ep_post_send_with_invalidate"
        | "ep_post_rdma_read_to_rmr"
        | "ep_set_watermark"
        | "ep_recv_query"
        | "srq_resize" => {
            matches!(
                error.kind(),
                Some(Kind::ModelNotSupported | Kind::NotImplemented)
            )
        }
        _ => false,
    }
}

/// Returns numbers that are no handles, and handles that are invalid for an argument of a kind.
fn no_handles(world: &World, thing: Option<Thing>) -> Vec<usize> {
    let mut all = vec![1, 3, 8, 4096, 1 << 63, !0, !7, impostor(), impostor() + 8];
    all.extend([world.ia + 8, world.pz + 1, world.ep + 8, world.ep + 64]);
    for (other, handle) in world.all() {
        if thing.is_some_and(|thing| thing != other) {
            all.push(handle);
        }
    }
    all.extend(world.freed().iter().map(|(_, handle)| *handle));
    all
}

/// Returns invalid values for the argument, each with the code it gets.
fn bad(world: &World, function: &Function, index: usize) -> Vec<(usize, Error)> {
    let number = index as u16 + 1;
    let arg = |values: &[usize]| values.iter().map(|v| (*v, Error::arg(number))).collect();
    let handles = |values: Vec<usize>, subtype| {
        values
            .into_iter()
            .map(|value| (value, Error::handle(subtype)))
            .collect::<Vec<_>>()
    };
    let minus = |value: i32| value as u32 as usize;
    match function.args[index] {
        Arg::Handle(thing, subtype) => {
            let mut values = no_handles(world, Some(thing));
            values.push(0);
            handles(values, subtype)
        }
        Arg::Optional(thing, subtype) => handles(no_handles(world, Some(thing)), subtype),
        Arg::Any => {
            let mut values = no_handles(world, None);
            values.push(0);
            handles(values, Subtype::InvalidHandle1)
        }
        Arg::Made(_)
        | Arg::Out
        | Arg::Remote
        | Arg::Local
        | Arg::Address
        | Arg::Comm
        | Arg::Event
        | Arg::EpParam
        | Arg::SrqAttr
        | Arg::Name
        | Arg::Other
        | Arg::AsyncEvd
        | Arg::Iov
        | Arg::Synced
        | Arg::Data => arg(&[0]),
        Arg::Count(_) => arg(&[minus(-1), minus(i32::MIN)]),
        Arg::Positive => arg(&[0, minus(-1), minus(i32::MIN)]),
        Arg::Word(_, wrong) => arg(&[wrong as usize, minus(-1)]),
        Arg::Attempt => arg(&[0]),
        Arg::Segments => arg(&[TOO_MANY, minus(-1), minus(i32::MIN)]),
        Arg::SyncedCount => arg(&[!0, 1 << 31]),
        Arg::DataSize => arg(&[TOO_MANY, minus(-1), minus(i32::MIN)]),
        Arg::EpMask => arg(&[1, 1 << 40]),
        Arg::EpAttr => arg(&[!0]),
        Arg::MemType => arg(&[9, minus(-1)]),
        Arg::Region => arg(&[0]),
        Arg::Length => vec![(0, Error::of(Kind::LengthError)), (!0, Error::arg(number))],
        Arg::Maybe | Arg::Mark | Arg::Mask | Arg::Free | Arg::Timeout | Arg::Qual | Arg::Agent => {
            Vec::new()
        }
    }
}
