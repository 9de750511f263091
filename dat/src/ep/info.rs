//! Queries and changes of endpoints.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use dat_abi::sockaddr;
use dat_abi::v2_0::types::{DatEpAttr, DatEpParam};

use super::{Ep, EpState, Parts};
use crate::CompletionFlags;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::pz::Pz;
use crate::sys::{call, count, query};

/// Limits of an endpoint (`DAT_EP_ATTR`).
///
/// Example: [`EpInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpLimits {
    /// Whether it is an endpoint for datagrams.
    pub datagrams: bool,
    /// Maximum length of a message, in bytes.
    pub max_message_size: u32,
    /// Maximum length of an RDMA operation, in bytes.
    pub max_rdma_size: u32,
    /// Quality of service (`DAT_QOS`).
    pub quality_of_service: u32,
    /// Which completions of receives notify.
    pub recv_completions: CompletionFlags,
    /// Which completions of requests notify.
    pub request_completions: CompletionFlags,
    /// Maximum of outstanding receives.
    pub max_recv: u32,
    /// Maximum of outstanding requests.
    pub max_requests: u32,
    /// Maximum of segments of a receive.
    pub max_recv_segments: u32,
    /// Maximum of segments of a send.
    pub max_request_segments: u32,
    /// Maximum of segments of an RDMA Read.
    pub max_read_segments: u32,
    /// Maximum of segments of an RDMA Write.
    pub max_write_segments: u32,
    /// Maximum of concurrent RDMA Reads of the peer.
    pub max_reads_in: u32,
    /// Maximum of concurrent RDMA Reads of this side.
    pub max_reads_out: u32,
}

/// What a provider knows of an endpoint (dat_ep_query).
///
/// ```
/// use udapl::EpState;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let (pz, (client, sent), (server, received)) = pair()?;
/// // `client` is a connected endpoint.
/// let info = client.info()?;
/// assert_eq!(info.state, EpState::Connected);
/// println!("connected to {:?}, qualifier {}", info.remote, info.remote_qual);
/// println!("up to {} requests at a time", info.limits.max_requests);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct EpInfo {
    /// State.
    pub state: EpState,
    /// Own address, with the low 16 bits of the qualifier as port.
    pub local: Option<SocketAddr>,
    /// Own connection qualifier.
    pub local_qual: u64,
    /// The peer's address while there is one.
    pub remote: Option<SocketAddr>,
    /// The peer's connection qualifier.
    pub remote_qual: u64,
    /// Limits.
    pub limits: EpLimits,
}

/// The receives of an endpoint (dat_ep_recv_query); `None` where the provider does not know.
///
/// ```
/// use udapl::Access;
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/common/connected.rs"));
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let (pz, (client, sent), (server, received)) = pair()?;
/// # let room = pz.allocate(64, Access::LOCAL_READ | Access::LOCAL_WRITE)?;
/// server.post_recv(&[room.slice(0..64)], 1)?;
/// if let Some(count) = server.receive_use()?.in_use {
///     println!("messages use {count} receives");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiveUse {
    /// Receives that messages use.
    pub in_use: Option<u32>,
    /// Receives from the first to the last of them.
    pub spanned: Option<u32>,
}

/// Changes of an unconnected endpoint (dat_ep_modify). What is `None` stays.
///
/// ```
/// use udapl::{Changes, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// # let ia = Ia::open("softrxe-lo")?;
/// # let pz = ia.create_pz()?;
/// let small = ia.create_evd(8, Streams::DTO)?;
/// let ep = ia.endpoint(&pz).recv_evd(&small).create()?;
///
/// let large = ia.create_evd(1000, Streams::DTO)?;
/// ep.modify(&Changes { recv_evd: Some(&large), max_recv: Some(500), ..Changes::default() })?;
/// assert!(ep.info()?.limits.max_recv >= 500);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct Changes<'a> {
    /// Dispatcher for receives.
    pub recv_evd: Option<&'a Evd>,
    /// Dispatcher for requests.
    pub request_evd: Option<&'a Evd>,
    /// Dispatcher for connections.
    pub connect_evd: Option<&'a Evd>,
    /// Protection zone.
    pub pz: Option<&'a Pz>,
    /// Maximum of outstanding receives.
    pub max_recv: Option<u32>,
    /// Maximum of outstanding requests.
    pub max_requests: Option<u32>,
    /// Maximum of segments of a receive.
    pub max_recv_segments: Option<u32>,
    /// Maximum of segments of a send.
    pub max_request_segments: Option<u32>,
    /// Maximum of concurrent RDMA Reads of the peer.
    pub max_reads_in: Option<u32>,
    /// Maximum of concurrent RDMA Reads of this side.
    pub max_reads_out: Option<u32>,
    /// Maximum length of a message, in bytes.
    pub max_message_size: Option<u32>,
    /// Maximum length of an RDMA operation, in bytes.
    pub max_rdma_size: Option<u32>,
}

/// `DAT_EP_FIELD_*`.
mod field {
    pub(super) const PZ: u64 = 0x80;
    pub(super) const RECV_EVD: u64 = 0x100;
    pub(super) const REQUEST_EVD: u64 = 0x200;
    pub(super) const CONNECT_EVD: u64 = 0x400;
    pub(super) const MAX_MESSAGE_SIZE: u64 = 0x2000;
    pub(super) const MAX_RDMA_SIZE: u64 = 0x4000;
    pub(super) const MAX_RECV: u64 = 0x4_0000;
    pub(super) const MAX_REQUESTS: u64 = 0x8_0000;
    pub(super) const MAX_RECV_IOV: u64 = 0x10_0000;
    pub(super) const MAX_REQUEST_IOV: u64 = 0x20_0000;
    pub(super) const READS_IN: u64 = 0x40_0000;
    pub(super) const READS_OUT: u64 = 0x80_0000;
    pub(super) const ALL: u64 = 0x7fff_ffff;
}

fn limits(attr: &DatEpAttr) -> EpLimits {
    let number = |count: i32| u32::try_from(count).unwrap_or(0);
    EpLimits {
        datagrams: attr.service_type != 0,
        max_message_size: attr.max_message_size,
        max_rdma_size: attr.max_rdma_size,
        quality_of_service: attr.qos,
        recv_completions: CompletionFlags::from_bits_retain(attr.recv_completion_flags),
        request_completions: CompletionFlags::from_bits_retain(attr.request_completion_flags),
        max_recv: number(attr.max_recv_dtos),
        max_requests: number(attr.max_request_dtos),
        max_recv_segments: number(attr.max_recv_iov),
        max_request_segments: number(attr.max_request_iov),
        max_read_segments: number(attr.max_rdma_read_iov),
        max_write_segments: number(attr.max_rdma_write_iov),
        max_reads_in: number(attr.max_rdma_read_in),
        max_reads_out: number(attr.max_rdma_read_out),
    }
}

/// The code of a refused change has the endpoint's state. It may be the right one, where posts are outstanding.
fn refused(error: Error) -> Error {
    match error {
        Error::NotConnected { call, code } => Error::State { call, code },
        other => other,
    }
}

impl Changes<'_> {
    /// Writes the new values to `param`, and returns the mask of their fields.
    fn write(&self, param: &mut DatEpParam) -> u64 {
        let mut mask = 0;
        let attr = &mut param.ep_attr;
        let counts = [
            (self.max_recv, &mut attr.max_recv_dtos, field::MAX_RECV),
            (
                self.max_requests,
                &mut attr.max_request_dtos,
                field::MAX_REQUESTS,
            ),
            (
                self.max_recv_segments,
                &mut attr.max_recv_iov,
                field::MAX_RECV_IOV,
            ),
            (
                self.max_request_segments,
                &mut attr.max_request_iov,
                field::MAX_REQUEST_IOV,
            ),
            (
                self.max_reads_in,
                &mut attr.max_rdma_read_in,
                field::READS_IN,
            ),
            (
                self.max_reads_out,
                &mut attr.max_rdma_read_out,
                field::READS_OUT,
            ),
        ];
        for (new, old, bit) in counts {
            if let Some(new) = new {
                *old = count(new as usize);
                mask |= bit;
            }
        }
        let sizes = [
            (
                self.max_message_size,
                &mut attr.max_message_size,
                field::MAX_MESSAGE_SIZE,
            ),
            (
                self.max_rdma_size,
                &mut attr.max_rdma_size,
                field::MAX_RDMA_SIZE,
            ),
        ];
        for (new, old, bit) in sizes {
            if let Some(new) = new {
                *old = new;
                mask |= bit;
            }
        }
        let evds = [
            (self.recv_evd, &mut param.recv_evd_handle, field::RECV_EVD),
            (
                self.request_evd,
                &mut param.request_evd_handle,
                field::REQUEST_EVD,
            ),
            (
                self.connect_evd,
                &mut param.connect_evd_handle,
                field::CONNECT_EVD,
            ),
        ];
        for (new, old, bit) in evds {
            if let Some(new) = new {
                *old = new.handle().0;
                mask |= bit;
            }
        }
        if let Some(pz) = self.pz {
            param.pz_handle = pz.handle().0;
            mask |= field::PZ;
        }
        mask
    }
}

impl Ep {
    fn param(&self) -> Result<DatEpParam> {
        Ok(query!(self.handle(), ep_query(field::ALL)))
    }

    /// Queries the endpoint (dat_ep_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn info(&self) -> Result<EpInfo> {
        let param = self.param()?;
        let with_port =
            |at: Option<SocketAddr>, qual: u64| at.map(|at| SocketAddr::new(at.ip(), qual as u16));
        // SAFETY: addresses are NULL, or valid until the endpoint is reset or freed.
        let (local, remote) = unsafe {
            (
                sockaddr::read(param.local_ia_address_ptr.cast()),
                sockaddr::read(param.remote_ia_address_ptr.cast()),
            )
        };
        Ok(EpInfo {
            state: EpState::from_number(param.ep_state).unwrap_or(EpState::Unconnected),
            local: with_port(local, param.local_port_qual),
            local_qual: param.local_port_qual,
            remote: with_port(remote, param.remote_port_qual),
            remote_qual: param.remote_port_qual,
            limits: limits(&param.ep_attr),
        })
    }

    /// Changes the endpoint (dat_ep_modify).
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State) while it is connected, [`Error::Resources`](crate::Error::Resources),
    /// [`Error::Call`](crate::Error::Call).
    pub fn modify(&self, changes: &Changes<'_>) -> Result<()> {
        let mut param = self.param()?;
        let mask = changes.write(&mut param);
        let parts = self.inner.parts.lock();
        let mut parts = parts.unwrap_or_else(std::sync::PoisonError::into_inner);
        call!(self.handle(), ep_modify(mask, &raw const param)).map_err(refused)?;
        self.adopt(changes, &mut parts);
        Ok(())
    }

    /// Keeps what the endpoint uses from now on.
    fn adopt(&self, changes: &Changes<'_>, parts: &mut Parts) {
        let evds = [changes.recv_evd, changes.request_evd, changes.connect_evd];
        for (at, new) in evds.into_iter().enumerate() {
            if let Some(new) = new {
                let old = parts.evds[at].replace(new.clone());
                parts.earlier.extend(old);
            }
        }
        if let Some(pz) = changes.pz {
            parts.pz.ia().limbo().change_zone(self.entry, pz.handle().0);
            parts.pz = pz.clone();
        }
        let segments = [changes.max_request_segments, changes.max_recv_segments];
        for (at, new) in segments.into_iter().enumerate() {
            if let Some(new) = new {
                self.inner.segments[at].store(new as usize, Ordering::Relaxed);
            }
        }
        self.set_zones(parts);
    }

    /// Returns how many receives messages use (dat_ep_recv_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn receive_use(&self) -> Result<ReceiveUse> {
        let (mut in_use, mut spanned) = (0, 0);
        call!(
            self.handle(),
            ep_recv_query(&raw mut in_use, &raw mut spanned)
        )?;
        // DAT_VALUE_UNKNOWN is negative.
        Ok(ReceiveUse {
            in_use: u32::try_from(in_use).ok(),
            spanned: u32::try_from(spanned).ok(),
        })
    }

    /// Sets how many receives of its SRQ the endpoint may use: beyond `soft` an asynchronous event is reported, beyond `hard` the
    /// connection ends (dat_ep_set_watermark). `None` is no limit.
    ///
    /// ```
    /// use udapl::{Error, Ia, Streams};
    ///
    /// # fn main() -> Result<(), udapl::Error> {
    /// # let ia = Ia::open("softrxe-lo")?;
    /// # let pz = ia.create_pz()?;
    /// # let done = ia.create_evd(8, Streams::DTO)?;
    /// let srq = ia.create_srq(&pz, 100, 1)?;
    /// let ep = ia.endpoint(&pz).srq(&srq).recv_evd(&done).create()?;
    /// match ep.set_watermark(Some(10), Some(20)) {
    ///     Ok(()) => println!("one client cannot use all receives"),
    ///     Err(Error::Unsupported { .. }) => println!("the adapter has no such limit"),
    ///     Err(error) => return Err(error),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::State`](crate::Error::State) without an SRQ, [`Error::Unsupported`](crate::Error::Unsupported),
    /// [`Error::Call`](crate::Error::Call).
    pub fn set_watermark(&self, soft: Option<u32>, hard: Option<u32>) -> Result<()> {
        // DAT_HW_DEFAULT and DAT_WATERMARK_INFINITE.
        let mark = |mark: Option<u32>| mark.map_or(-1, |mark| count(mark as usize));
        call!(self.handle(), ep_set_watermark(mark(soft), mark(hard)))
    }
}
