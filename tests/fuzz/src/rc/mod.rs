//! A reliable connection whose peer is hostile: requests and answers that nobody should send, with keys of all sorts.
//!
//! `world` is the engine with what its consumer posted and the promises that are checked after each step; `steps` is what may happen.

mod steps;
mod world;

use crate::input::Input;
pub(crate) use steps::RAW_STEP;
use world::World;

/// Steps of one run at most.
const STEPS: usize = 300;

/// The peer sends requests to a queue pair that has receives posted.
///
/// # Panics
/// When a promise is broken.
pub fn responder(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..4 {
        world.post_receive(&mut input);
    }
    run(world, &mut input);
}

/// The peer answers requests of ours.
///
/// # Panics
/// When a promise is broken.
pub fn requester(data: &[u8]) {
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..4 {
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
