//! Sizes of what C functions take and return, for the comparison with `rdma-sys`.

/// Sizes of a function's arguments and of its result.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape(Vec<usize>);

impl Shape {
    pub(super) fn of<F: Function>() -> Self {
        Self(F::sizes())
    }

    pub(super) fn of_value<F: Function>(_: F) -> Self {
        Self::of::<F>()
    }
}

/// A C function that both have.
pub(super) struct Signatures {
    pub(super) name: &'static str,
    pub(super) ours: Shape,
    pub(super) theirs: Shape,
}

/// Pointers to C functions.
pub(super) trait Function {
    fn sizes() -> Vec<usize>;
}

macro_rules! function {
    ($($($argument:ident)*;)*) => {
        $(impl<Result, $($argument),*> Function for unsafe extern "C" fn($($argument),*) -> Result {
            fn sizes() -> Vec<usize> {
                vec![$(size_of::<$argument>(),)* size_of::<Result>()]
            }
        })*
    };
}

function! { ; A; A B; A B C; A B C D; A B C D E; }
