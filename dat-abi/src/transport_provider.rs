//! Every transport is a provider that opens itself: [`OpenRequest::with`] opens an IA on a transport, whose objects carry the
//! function table of that transport and of the caller's version.

use dat_core::error::{Result, Subtype};
use dat_core::head::raw;
use dat_core::ia::{AsyncEvd, Ia};
use dat_core::transport::Transport;

use crate::boundary::{V1_2, Version};
use crate::provider::{OpenRequest, OpenedIa, Provider};
use crate::types::{DAT_EVD_ASYNC_EXISTS, DAT_HANDLE_NULL};
use crate::{fork, handle, intern, table, v1_2, v2_0};

impl<T: Transport> Provider for T {
    type Transport = T;

    fn open(request: &OpenRequest<'_>) -> Result<OpenedIa> {
        request.with::<T>()
    }
}

impl OpenRequest<'_> {
    /// Opens the IA on transport `T`.
    ///
    /// # Errors
    /// The same as [`Ia::open`]; `DAT_INVALID_HANDLE` for an asynchronous EVD that is none of `T`'s.
    pub fn with<T: Transport>(&self) -> Result<OpenedIa> {
        let async_evd = match self.async_evd {
            DAT_HANDLE_NULL => AsyncEvd::New,
            DAT_EVD_ASYNC_EXISTS => AsyncEvd::OutOfScope,
            other => AsyncEvd::Existing(handle::evd::<T>(other, Subtype::InvalidHandleEvdAsync)?),
        };
        table::reserved(T::arenas().reserve_all())?;
        fork::invalidate_in_children::<T>();
        let table = table_address::<T>(self.name, self.major);
        let ia = Ia::<T>::open(self.name, self.params, self.async_qlen, async_evd, table)?;
        Ok(OpenedIa {
            ia: raw(ia),
            async_evd: ia.async_evd().map(raw),
        })
    }
}

/// Returns the address of the table that the objects of an IA carry: of `T` and a version, with the IA's name. It makes tables on the
/// stack, which is free again when the adapter is opened.
#[inline(never)]
fn table_address<T: Transport>(name: &str, major: u32) -> usize {
    match major {
        V1_2::MAJOR => intern::table::<T, _>(name, major, v1_2::tables::table::<T>),
        _ => intern::table::<T, _>(name, major, v2_0::tables::table::<T>),
    }
}
