//! Creation of endpoints.

use std::sync::atomic::{AtomicUsize, Ordering};

use dat_abi::types::{DAT_HANDLE_NULL, DatHandle};
use dat_abi::v2_0::types::DatEpAttr;

use super::{Ep, Parts};
use crate::CompletionFlags;
use crate::attributes::Attributes;
use crate::error::{Error, Result};
use crate::evd::Evd;
use crate::ia::Ia;
use crate::limits::{self, Wish};
use crate::pz::Pz;
use crate::srq::Srq;
use crate::sys::{Handle, call, count, free};

/// `DAT_IB_SERVICE_TYPE_UD`.
const DATAGRAMS: u32 = 1;

/// Minimum and maximum number of handles in a row that are passed over because events of earlier endpoints may be queued.
const PASSED_OVER: [usize; 2] = [2, 32];
/// How many the next creation passes over at most. Where the queues of a program are never empty, every handle may have such events after
/// a while, and each one that is passed over costs a creation.
static PASSES: AtomicUsize = AtomicUsize::new(PASSED_OVER[1]);

/// Parameters of a new endpoint (dat_ep_create, dat_ep_create_with_srq).
///
/// ```
/// use udapl::{CompletionFlags, Error, Ia, Streams};
///
/// # fn main() -> Result<(), udapl::Error> {
/// let ia = Ia::open("softrxe-lo")?;
/// let pz = ia.create_pz()?;
/// let (done, connections) = (ia.create_evd(256, Streams::DTO)?, ia.create_evd(8, Streams::CONNECTION)?);
/// let ep = ia
///     .endpoint(&pz)
///     .recv_evd(&done)
///     .request_evd(&done)
///     .connect_evd(&connections)
///     .max_recv(100)
///     .max_requests(100)
///     .max_segments(2)
///     .max_reads(8)
///     .request_completions(CompletionFlags::UNSIGNALLED) // posts say which of them wake a waiter
///     .create()?;
/// assert!(ep.info()?.limits.max_requests >= 100);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct EpBuilder<'a> {
    ia: &'a Ia,
    pz: &'a Pz,
    evds: [Option<&'a Evd>; 3],
    srq: Option<&'a Srq>,
    attr: DatEpAttr,
}

impl<'a> EpBuilder<'a> {
    pub(crate) fn new(ia: &'a Ia, pz: &'a Pz) -> Self {
        let attr = DatEpAttr {
            service_type: 0,
            max_message_size: 0,
            max_rdma_size: 0,
            qos: 0,
            recv_completion_flags: 0,
            request_completion_flags: 0,
            max_recv_dtos: 16,
            max_request_dtos: 16,
            max_recv_iov: 4,
            max_request_iov: 4,
            max_rdma_read_in: 4,
            max_rdma_read_out: 4,
            srq_soft_hw: -1,
            max_rdma_read_iov: 4,
            max_rdma_write_iov: 4,
            ep_transport_specific_count: 0,
            ep_transport_specific: std::ptr::null_mut(),
            ep_provider_specific_count: 0,
            ep_provider_specific: std::ptr::null_mut(),
        };
        Self {
            ia,
            pz,
            evds: [None; 3],
            srq: None,
            attr,
        }
    }

    /// Sets the dispatcher for completions of receives.
    pub fn recv_evd(mut self, evd: &'a Evd) -> Self {
        self.evds[0] = Some(evd);
        self
    }

    /// Sets the dispatcher for completions of requests.
    pub fn request_evd(mut self, evd: &'a Evd) -> Self {
        self.evds[1] = Some(evd);
        self
    }

    /// Sets the dispatcher for connection events.
    pub fn connect_evd(mut self, evd: &'a Evd) -> Self {
        self.evds[2] = Some(evd);
        self
    }

    /// Takes receives from a shared queue (dat_ep_create_with_srq).
    pub fn srq(mut self, srq: &'a Srq) -> Self {
        self.srq = Some(srq);
        self
    }

    /// Makes an endpoint for unreliable datagrams (IB extension) instead of connections.
    pub fn datagrams(mut self) -> Self {
        self.attr.service_type = DATAGRAMS;
        self
    }

    /// Sets the maximum of outstanding receives; the default is 16.
    pub fn max_recv(mut self, most: u32) -> Self {
        self.attr.max_recv_dtos = count(most as usize);
        self
    }

    /// Sets the maximum of outstanding requests; the default is 16.
    pub fn max_requests(mut self, most: u32) -> Self {
        self.attr.max_request_dtos = count(most as usize);
        self
    }

    /// Sets the maximum of segments of a post; the default is 4, the largest number 16.
    pub fn max_segments(mut self, most: u32) -> Self {
        let most = count(most as usize);
        self.attr.max_recv_iov = most;
        self.attr.max_request_iov = most;
        self.attr.max_rdma_read_iov = most;
        self.attr.max_rdma_write_iov = most;
        self
    }

    /// Sets the maximum of concurrent RDMA Reads, of the peer's and of ours; the default is 4.
    pub fn max_reads(mut self, most: u32) -> Self {
        self.attr.max_rdma_read_in = count(most as usize);
        self.attr.max_rdma_read_out = self.attr.max_rdma_read_in;
        self
    }

    /// Sets which completions of receives notify a waiter (`recv_completion_flags`): `UNSIGNALLED` and `SOLICITED_WAIT` make that
    /// the posts' choice.
    pub fn recv_completions(mut self, flags: CompletionFlags) -> Self {
        self.attr.recv_completion_flags = flags.bits();
        self
    }

    /// Sets which completions of requests notify a waiter (`request_completion_flags`).
    pub fn request_completions(mut self, flags: CompletionFlags) -> Self {
        self.attr.request_completion_flags = flags.bits();
        self
    }

    /// Creates the endpoint.
    ///
    /// # Errors
    /// [`Error::Limit`], [`Error::WrongStreams`], [`Error::Resources`], [`Error::Unsupported`], [`Error::Call`].
    pub fn create(mut self) -> Result<Ep> {
        let attributes = self.ia.attributes()?;
        let size = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        self.attr.max_message_size = size(attributes.max_message_size);
        if self.attr.service_type != DATAGRAMS {
            self.attr.max_rdma_size = size(attributes.max_rdma_size);
        }
        let (mut passed_over, passes) = (Vec::new(), PASSES.load(Ordering::Relaxed));
        let handle = loop {
            let made = self.create_handle();
            let has_late = |handle: &Handle| crate::ids::entry(handle.0).has_late();
            if made.as_ref().is_ok_and(has_late) && passed_over.len() < passes {
                passed_over.extend(made);
                continue;
            }
            let [least, most] = PASSED_OVER;
            match &made {
                Ok(handle) if has_late(handle) => PASSES.store(least, Ordering::Relaxed),
                Ok(_) if passed_over.is_empty() && passes < most => {
                    PASSES.store(passes + 1, Ordering::Relaxed);
                }
                _ => {}
            }
            // Those that are passed over may be all that the adapter has room for.
            break made.or_else(|error| passed_over.pop().ok_or(error));
        };
        for handle in passed_over {
            free!(handle, ep_free());
        }
        let parts = Parts {
            evds: self.evds.map(Option::<&Evd>::cloned),
            earlier: Vec::new(),
            srq: self.srq.cloned(),
            pz: self.pz.clone(),
        };
        let segments = [self.attr.max_request_iov, self.attr.max_recv_iov];
        let segments = segments.map(|count| u32::try_from(count).unwrap_or(0));
        let wishes = self.wishes(&attributes);
        let handle = handle.map_err(|error| limits::explained(error, &wishes))?;
        Ok(Ep::own(handle, parts, segments))
    }

    /// Returns the numbers that an adapter may refuse.
    fn wishes(&self, limits: &Attributes) -> [Wish; 5] {
        let asked = |count: i32| u32::try_from(count).unwrap_or(u32::MAX);
        [
            ("receives", asked(self.attr.max_recv_dtos), limits.max_posts),
            (
                "requests",
                asked(self.attr.max_request_dtos),
                limits.max_posts,
            ),
            (
                "segments",
                asked(self.attr.max_request_iov),
                limits.max_segments,
            ),
            (
                "RDMA Reads of the peer",
                asked(self.attr.max_rdma_read_in),
                limits.max_reads.0,
            ),
            (
                "RDMA Reads",
                asked(self.attr.max_rdma_read_out),
                limits.max_reads.1,
            ),
        ]
    }

    fn create_handle(&self) -> Result<Handle, Error> {
        let raw = |evd: Option<&Evd>| evd.map_or(DAT_HANDLE_NULL, |e| e.handle().0);
        let [recv, request, connect] = self.evds.map(raw);
        let mut handle: DatHandle = DAT_HANDLE_NULL;
        let (pz, attr) = (self.pz.handle().0, &raw const self.attr);
        let out = &raw mut handle;
        match self.srq {
            None => call!(
                self.ia.handle(),
                ep_create(pz, recv, request, connect, attr, out)
            )?,
            Some(srq) => call!(
                self.ia.handle(),
                ep_create_with_srq(pz, recv, request, connect, srq.handle().0, attr, out)
            )?,
        }
        Ok(Handle(handle))
    }
}

impl Ia {
    /// Returns the parameters of a new endpoint; [`EpBuilder::create`] creates it.
    pub fn endpoint<'a>(&'a self, pz: &'a Pz) -> EpBuilder<'a> {
        EpBuilder::new(self, pz)
    }
}
