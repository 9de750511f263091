//! A reliable connection with a hostile peer: illegal requests and answers, with keys of all kinds.
//!
//! `world` has the engine, the posted work and the invariants that are checked after each step; `steps` has the possible
//! steps, `lent` those with memory that records lend.

mod lent;
mod steps;
mod world;

use softrxe_proto::Link;

use crate::input::Input;
use crate::records;
pub(crate) use lent::seed as lent_seed;
pub(crate) use steps::RAW_STEP;
use world::World;

/// Limit of steps of one run.
const STEPS: usize = 300;

/// The peer sends requests to a queue pair that has receives posted.
///
/// # Panics
/// If an invariant is violated.
pub fn responder(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::over(&mut input, Link::Wire);
    for _ in 0..4 {
        world.post_receive(&mut input);
    }
    run(world, &mut input);
}

/// The peer answers requests of ours.
///
/// # Panics
/// If an invariant is violated.
pub fn requester(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::over(&mut input, Link::Wire);
    for _ in 0..4 {
        world.post_send(&mut input);
        world.settle();
    }
    run(world, &mut input);
}

/// The peer writes records of a channel: requests, answers, and any bytes.
///
/// # Panics
/// If an invariant is violated.
pub fn near(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::over(&mut input, Link::Near(records::ID));
    for _ in 0..2 {
        world.post_receive(&mut input);
        world.post_send(&mut input);
        world.settle();
    }
    run(world, &mut input);
}

fn run(mut world: World, input: &mut Input<'_>) {
    for _ in 0..STEPS {
        if input.is_empty() {
            break;
        }
        world.step(input);
        world.settle();
    }
    world.end();
}
