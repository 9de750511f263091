//! Valid arguments: the words of a call that should succeed, for a world.

use dat_abi::types::event_number;
use dat_core::error::Subtype;

use super::WORDS;
use super::functions::{Arg, Function, Thing};
use super::memory::ArgumentMemory;
use super::world::{MEMORY, World};
use crate::api::Api;

/// Returns the index of each argument's word: structures by value take two.
pub(crate) fn places(function: &Function) -> Vec<usize> {
    let mut next = 0;
    function
        .args
        .iter()
        .map(|arg| {
            let here = next;
            next += if matches!(arg, Arg::Region | Arg::Agent) {
                2
            } else {
                1
            };
            here
        })
        .collect()
}

/// Returns a `DAT_LMR_TRIPLET` or `DAT_RMR_TRIPLET` as words of a version.
pub(crate) fn triplet(version: Api, address: u64, length: u64, context: u32) -> Vec<u64> {
    match version {
        Api::V1_2 => vec![context.into(), address, length],
        Api::V2_0 => vec![
            address,
            length & u64::from(u32::MAX) | u64::from(context) << 32,
        ],
    }
}

/// Returns the words of a call with valid arguments.
pub(crate) fn good(
    world: &World,
    target: &super::Target,
    function: &Function,
    memory_of_arguments: &mut ArgumentMemory,
) -> [usize; WORDS] {
    let mut words = [0; WORDS];
    let version = world.table.api();
    let memory = world.memory.as_ptr() as usize;
    for (index, (arg, place)) in function.args.iter().zip(places(function)).enumerate() {
        words[place] = match *arg {
            Arg::Handle(Thing::Ep, _) => endpoint(world, function.name, index),
            Arg::Optional(Thing::Cno, _) => 0,
            Arg::Handle(thing, subtype) | Arg::Optional(thing, subtype) => {
                world.one(thing, subtype)
            }
            Arg::Any => world.one(Thing::Evd, Subtype::NoSubtype),
            Arg::Made(_) | Arg::Out | Arg::Maybe => memory_of_arguments.out(place),
            Arg::Count(good) => good as usize,
            Arg::Positive | Arg::Segments | Arg::SyncedCount => 1,
            Arg::Mark => 2,
            Arg::Word(good, _) => good as usize,
            Arg::Free | Arg::Timeout | Arg::EpMask | Arg::MemType | Arg::EpAttr => 0,
            Arg::Mask => usize::MAX,
            Arg::Attempt => 1_000_000,
            Arg::Qual => world.qual as usize + 100,
            Arg::Iov | Arg::Synced | Arg::Local => {
                let local = triplet(version, memory as u64, 64, world.lmr_context);
                memory_of_arguments.words(place, &local)
            }
            Arg::Remote => {
                let remote = triplet(version, memory as u64 + 2048, 64, world.rmr_context);
                memory_of_arguments.words(place, &remote)
            }
            Arg::DataSize => 4,
            Arg::Data => memory_of_arguments.out(place),
            Arg::Address => world.address,
            Arg::Comm => memory_of_arguments.halves(place, &world.comm()),
            Arg::Event => memory_of_arguments.words(place, &[event_number::SOFTWARE.into()]),
            Arg::EpParam => memory_of_arguments.words(place, &[]),
            Arg::SrqAttr => memory_of_arguments.halves(place, &[4, 1, 0]),
            Arg::Region => memory,
            Arg::Length => MEMORY,
            Arg::Agent => 0,
            Arg::Name | Arg::Other => target.name.as_ptr() as usize,
            Arg::AsyncEvd => memory_of_arguments.words(place, &[]),
        };
    }
    words
}

/// Returns the endpoint that a function needs: connected for posts, else unconnected.
fn endpoint(world: &World, name: &str, index: usize) -> usize {
    let posts = name.starts_with("ep_post") || name == "rmr_bind" || name == "ep_disconnect";
    // The second one of dat_ep_dup_connect is the model.
    if posts || index == 1 && name == "ep_dup_connect" {
        world.joined[0]
    } else {
        world.ep
    }
}
