//! Making and ending connections (dat_ep_connect, dat_ep_dup_connect, dat_ep_disconnect).

use std::net::IpAddr;
use std::time::Duration;

use super::Ep;
use crate::error::{Error, Kind, Result};
use crate::flags::Close;
use crate::private_data::PrivateData;
use crate::transport::{Token, Transport};
use crate::upcall::ConnInput;

impl<T: Transport> Ep<T> {
    /// dat_ep_connect. `timeout` `None` is `DAT_TIMEOUT_INFINITE`.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` unless Unconnected, `DAT_INVALID_PARAMETER` (timeout 0 is argument 4, private data
    /// too long 5), `DAT_MODEL_NOT_SUPPORTED` for a quality of service or multipathing,
    /// `DAT_INVALID_ADDRESS`, `DAT_INSUFFICIENT_RESOURCES`.
    pub fn connect(
        &'static self,
        _remote: IpAddr,
        _conn_qual: u64,
        _timeout: Option<Duration>,
        _private_data: &[u8],
        _qos: u32,
        _flags: u32,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_dup_connect: to where `model` is connected.
    ///
    /// # Errors
    /// As [`Ep::connect`]; `DAT_INVALID_STATE` unless `model` is connected.
    pub fn dup_connect(
        &'static self,
        _model: &'static Self,
        _timeout: Option<Duration>,
        _private_data: &[u8],
        _qos: u32,
    ) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// dat_ep_disconnect.
    ///
    /// # Errors
    /// `DAT_INVALID_STATE` in Unconnected, Reserved, Passive and Tentative Connection Pending.
    pub fn disconnect(&'static self, _how: Close) -> Result<()> {
        Err(Error::of(Kind::NotImplemented))
    }

    /// Private data of the last connection event: stays at its address until the endpoint's next connection.
    pub fn private_data(&self) -> &PrivateData {
        &self.private_data
    }

    /// A transport's word about the connection named `token`.
    pub(crate) fn transport_input(_token: Token, _input: ConnInput<'_>) {}
}
