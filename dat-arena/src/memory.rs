//! What stands between a process that has little memory left and its end: stable Rust aborts where a small allocation fails.

use std::hint::black_box;

/// As much as the small allocations of one call need together (an `Arc`, a place in a map, a name): a call that makes something begins
/// with the question for it. glibc serves those from what was just given back, unless another thread takes it meanwhile.
const SPARE: usize = 64 << 10;

/// Returns true if memory for the small allocations of a call can be had. What is large is allocated so that it can fail.
#[must_use]
pub fn is_spare() -> bool {
    let mut room: Vec<u8> = Vec::new();
    let reserved = room.try_reserve_exact(SPARE).is_ok();
    // Else the compiler leaves out an allocation that nothing is written to.
    black_box(&room);
    reserved
}
