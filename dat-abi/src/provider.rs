//! What a shared object provides: the trait [`Provider`], and what it is given and returns when an IA is opened.
//!
//! Tables and thunks use the trait; that each transport is a provider stands in `transport_provider.rs`, which uses the tables.

use dat_core::error::Result;
use dat_core::ia_params::IaParams;
use dat_core::transport::Transport;

use crate::handle;
use crate::types::DatHandle;

/// A provider of IAs. Every [`Transport`] is a provider that opens itself. One with several transports implements this trait
/// and chooses a transport at each open with [`OpenRequest::with`].
pub trait Provider: 'static {
    /// The transport whose table is registered, and which answers queries before an IA is open.
    type Transport: Transport;

    /// Opens an IA (dat_ia_open) on the transport that the request asks for.
    ///
    /// # Errors
    /// The same as [`Transport::open`].
    fn open(request: &OpenRequest<'_>) -> Result<OpenedIa>;

    /// Returns true if `handle` is one, alive or dead, of any transport that this provider opens.
    fn owns(handle: DatHandle) -> bool {
        handle::owns::<Self::Transport>(handle)
    }
}

/// The arguments of one call of dat_ia_open.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The IA's name.
    pub name: &'a str,
    /// The IA's parameters from dat.conf.
    pub params: &'a IaParams,
    pub(crate) major: u32,
    pub(crate) async_qlen: u32,
    pub(crate) async_evd: DatHandle,
}

impl OpenRequest<'_> {
    /// Returns the same request with other parameters, for a provider that has removed its own from the list.
    #[must_use]
    pub fn with_params<'b>(&'b self, params: &'b IaParams) -> OpenRequest<'b> {
        OpenRequest { params, ..*self }
    }
}

/// The handles of an open IA.
#[derive(Clone, Copy, Debug)]
pub struct OpenedIa {
    pub(crate) ia: DatHandle,
    /// The IA's asynchronous EVD; `None` when it is out of the provider's scope.
    pub(crate) async_evd: Option<DatHandle>,
}
