//! The function tables of 1.2 and 2.0 as C sees them: words in, a code out. Invalid arguments of a buggy program have
//! no Rust type, so functions are data here (`functions`). Arguments are generated (`world`) and passed through the
//! table one invalid one at a time ([`invalid_arguments`]) or at random ([`fuzz()`]).

mod end_during_connect;
mod fields;
mod functions;
mod fuzz;
mod invalid;
mod memory;
mod races;
mod valid;
mod world;

pub use end_during_connect::ends_during_connect;
pub use fields::{connection_storm, every_field_is_filled, shortest_disconnect};
pub use functions::{Arg, FUNCTIONS, Function, Thing};
pub use fuzz::{Plan, Tally, fuzz};
pub use invalid::invalid_arguments;
pub use races::{close_under_way, two_ends};
pub use world::{Target, World};

use dat_abi::types::CLayout;
use dat_abi::{v1_2, v2_0};

use crate::api::Table;

/// Maximum number of words of a call: dat_lmr_create of 2.0, whose region takes two.
pub const WORDS: usize = 13;

type Slot = unsafe extern "C" fn(
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
    usize,
) -> u32;

impl Table {
    /// Returns the function in the slot of `name` as a number; `None` if the version has no such slot.
    pub(crate) fn slot(self, name: &str) -> Option<usize> {
        let (fields, at) = match self {
            Self::V1_2(table) => (
                v1_2::table::DatProvider::FIELDS,
                std::ptr::from_ref(table) as usize,
            ),
            Self::V2_0(table) => (
                v2_0::table::DatProvider::FIELDS,
                std::ptr::from_ref(table) as usize,
            ),
        };
        let slot = |field: &str| field.strip_suffix("_func") == Some(name);
        let (_, offset) = fields.iter().find(|(field, _)| slot(field))?;
        // SAFETY: the table has a pointer to a function there, or NULL.
        let function = unsafe { *((at + offset) as *const usize) };
        (function != 0).then_some(function)
    }

    /// Calls the slot of `name` with words as arguments; returns the code in 2.0's numbers, `None` if the version has
    /// no such slot.
    ///
    /// # Safety
    /// Pointers among the words are NULL, or valid for the slot's accesses; handles may have any value.
    pub(crate) unsafe fn call(self, name: &str, words: &[usize]) -> Option<u32> {
        let function = self.slot(name)?;
        let mut all = [0; WORDS];
        all[..words.len()].copy_from_slice(words);
        let [a, b, c, d, e, f, g, h, i, j, k, l, m] = all;
        // SAFETY: that is a function. Every argument of every slot is of the class INTEGER of the System V ABI
        // (structures by value are pairs of such words). A function takes as many words as it has arguments and ignores
        // the others; the rest is the caller's promise.
        let code = unsafe {
            let slot = std::mem::transmute::<usize, Slot>(function);
            slot(a, b, c, d, e, f, g, h, i, j, k, l, m)
        };
        Some(self.code(code))
    }
}
