//! What every object has: a word of the program's own, and a kind.

use dat_abi::types::handle_type;

use crate::error::{Code, Error, Kind, Result};
use crate::sys::{Handle, call};
use crate::{
    Cno, CommonListener, ConnRequest, Ep, Evd, Ia, Listener, Pz, Region, ReservedListener, Rmr, Srq,
};

/// Kind of an object (`DAT_HANDLE_TYPE`).
///
/// Example: [`Object`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ObjectKind {
    /// [`ConnRequest`].
    ConnRequest,
    /// [`Ep`].
    Ep,
    /// [`Evd`].
    Evd,
    /// [`Ia`].
    Ia,
    /// [`Region`].
    Region,
    /// [`Listener`].
    Listener,
    /// [`Pz`].
    Pz,
    /// [`Rmr`].
    Rmr,
    /// [`ReservedListener`].
    ReservedListener,
    /// [`Cno`].
    Cno,
    /// [`Srq`].
    Srq,
    /// [`CommonListener`].
    CommonListener,
}

mod sealed {
    /// Objects of this crate.
    pub trait Sealed {
        /// Returns the handle.
        fn raw(&self) -> usize;
    }
}

/// An object of an adapter.
///
/// ```
/// use udapl::{Ia, Object, ObjectKind};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let pz = ia.create_pz()?;
/// pz.set_context(42)?; // e.g. an index of the program's own table
/// assert_eq!((pz.context()?, pz.kind()?), (42, ObjectKind::Pz));
/// # Ok(())
/// # }
/// ```
pub trait Object: sealed::Sealed {
    /// Sets a word that the object keeps for the program (dat_set_consumer_context).
    ///
    /// # Errors
    /// [`Error::Call`].
    fn set_context(&self, context: u64) -> Result<()> {
        call!(Handle(self.raw()), set_consumer_context(context))
    }

    /// Returns the word of [`Object::set_context`], 0 if none was set (dat_get_consumer_context).
    ///
    /// # Errors
    /// [`Error::Call`].
    fn context(&self) -> Result<u64> {
        let mut context = 0;
        call!(Handle(self.raw()), get_consumer_context(&raw mut context))?;
        Ok(context)
    }

    /// Returns the kind that the provider knows the object as (dat_get_handle_type).
    ///
    /// # Errors
    /// [`Error::Call`].
    fn kind(&self) -> Result<ObjectKind> {
        let mut number = 0;
        call!(Handle(self.raw()), get_handle_type(&raw mut number))?;
        Ok(match number {
            handle_type::CR => ObjectKind::ConnRequest,
            handle_type::EP => ObjectKind::Ep,
            handle_type::EVD => ObjectKind::Evd,
            handle_type::IA => ObjectKind::Ia,
            handle_type::LMR => ObjectKind::Region,
            handle_type::PSP => ObjectKind::Listener,
            handle_type::PZ => ObjectKind::Pz,
            handle_type::RMR => ObjectKind::Rmr,
            handle_type::RSP => ObjectKind::ReservedListener,
            handle_type::CNO => ObjectKind::Cno,
            handle_type::SRQ => ObjectKind::Srq,
            handle_type::CSP => ObjectKind::CommonListener,
            _ => {
                return Err(Error::of(
                    "dat_get_handle_type",
                    Code::of(Kind::InternalError),
                ));
            }
        })
    }
}

macro_rules! objects {
    ($($object:ty),* $(,)?) => {$(
        impl sealed::Sealed for $object {
            fn raw(&self) -> usize {
                self.handle().0
            }
        }
        impl Object for $object {}
    )*};
}

objects!(
    Cno,
    CommonListener,
    ConnRequest,
    Ep,
    Evd,
    Ia,
    Listener,
    Pz,
    Region,
    ReservedListener,
    Rmr,
    Srq,
);
