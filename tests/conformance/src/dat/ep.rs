//! Calls for endpoints, connections and posts.

use std::ffi::c_void;
use std::ptr;

use dat_abi::types::DatSrqAttr;
use dat_abi::v2_0::types::{DatEpAttr, DatEpParam, DatIaAttr, DatLmrTriplet, DatRmrTriplet};

use super::{Dat, Table, convert, value};

/// The request that [`Dat::post`] posts.
#[derive(Clone, Copy, Debug)]
pub enum Post {
    /// dat_ep_post_send.
    Send,
    /// dat_ep_post_recv.
    Recv,
    /// dat_ep_post_rdma_read.
    Read(DatRmrTriplet),
    /// dat_ep_post_rdma_write.
    Write(DatRmrTriplet),
}

/// Bits of 2.0's `DAT_EP_PARAM_MASK`.
pub mod field {
    /// The state, which cannot be set.
    pub const EP_STATE: u64 = 0x2;
    /// The protection zone.
    pub const PZ: u64 = 0x80;
    /// The EVD for receives.
    pub const RECV_EVD: u64 = 0x100;
    /// The EVD for requests.
    pub const REQUEST_EVD: u64 = 0x200;
    /// The EVD for connections.
    pub const CONNECT_EVD: u64 = 0x400;
    /// Completion flags of receives.
    pub const RECV_FLAGS: u64 = 0x1_0000;
    /// Completion flags of requests.
    pub const REQUEST_FLAGS: u64 = 0x2_0000;
    /// Maximum of outstanding receives.
    pub const MAX_RECV_DTOS: u64 = 0x4_0000;
    /// Maximum of outstanding requests.
    pub const MAX_REQUEST_DTOS: u64 = 0x8_0000;
}

impl Dat {
    /// Calls dat_cr_accept.
    pub fn cr_accept(&self, cr: usize, ep: usize, data: &[u8]) -> u32 {
        call!(self.cr_accept(cr, ep, data.len() as i32, data.as_ptr().cast::<c_void>()))
    }

    /// Calls dat_cr_reject; 1.2 has no parameter for `data`.
    pub fn cr_reject(&self, cr: usize, data: &[u8]) -> u32 {
        let bytes = data.as_ptr().cast::<c_void>();
        each!(self.cr_reject { V1_2(cr), V2_0(cr, data.len() as i32, bytes) })
    }

    /// Returns the first `length` bytes of the private data of dat_cr_query, if it has as many.
    pub fn cr_private_data(&self, cr: usize, length: usize) -> Option<Vec<u8>> {
        let param = self.cr_query(cr).ok()?;
        let enough = usize::try_from(param.private_data_size).is_ok_and(|size| size >= length);
        if !enough || param.private_data.is_null() {
            return None;
        }
        let at = param.private_data.cast::<u8>();
        // SAFETY: the provider says that so many bytes are there as long as the CR is.
        Some(unsafe { std::slice::from_raw_parts(at, length) }.to_vec())
    }

    /// Calls dat_ep_create with default attributes; `evds` are for receives, requests and connections.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_create(&self, ia: usize, pz: usize, evds: [usize; 3]) -> Result<usize, u32> {
        let mut ep = 0;
        let [recv, request, connect] = evds;
        let code = each!(self.ep_create {
            V1_2(ia, pz, recv, request, connect, ptr::null(), &mut ep),
            V2_0(ia, pz, recv, request, connect, ptr::null(), &mut ep)
        });
        value(code, ep)
    }

    /// Calls dat_ep_create with these attributes; `evds` are for receives, requests and connections.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_create_with(
        &self,
        ia: usize,
        pz: usize,
        evds: [usize; 3],
        attr: &DatEpAttr,
    ) -> Result<usize, u32> {
        let mut ep = 0;
        let [recv, request, connect] = evds;
        let old = convert::ep_attr_in(attr);
        let code = each!(self.ep_create {
            V1_2(ia, pz, recv, request, connect, &old, &mut ep),
            V2_0(ia, pz, recv, request, connect, attr, &mut ep)
        });
        value(code, ep)
    }

    /// Calls dat_ep_connect to the address of IA `to`.
    pub fn ep_connect(
        &self,
        ep: usize,
        to: &DatIaAttr,
        conn_qual: u64,
        microseconds: u32,
        data: &[u8],
    ) -> u32 {
        let at = to.ia_address_ptr;
        let size = data.len() as i32;
        let bytes = data.as_ptr().cast::<c_void>();
        call!(self.ep_connect(ep, at, conn_qual, microseconds, size, bytes, 0, 0))
    }

    /// Calls a dat_ep_post_* function.
    pub fn post(
        &self,
        ep: usize,
        what: Post,
        iov: &[DatLmrTriplet],
        cookie: u64,
        flags: u32,
    ) -> u32 {
        let (mut old, mut iov) = (convert::local(iov), iov.to_vec());
        let (count, old, new) = (iov.len() as i32, old.as_mut_ptr(), iov.as_mut_ptr());
        match what {
            Post::Send => each!(self.ep_post_send {
                V1_2(ep, count, old, cookie, flags),
                V2_0(ep, count, new, cookie, flags)
            }),
            Post::Recv => each!(self.ep_post_recv {
                V1_2(ep, count, old, cookie, flags),
                V2_0(ep, count, new, cookie, flags)
            }),
            Post::Read(from) => each!(self.ep_post_rdma_read {
                V1_2(ep, count, old, cookie, &convert::remote(&from), flags),
                V2_0(ep, count, new, cookie, &from, flags)
            }),
            Post::Write(to) => each!(self.ep_post_rdma_write {
                V1_2(ep, count, old, cookie, &convert::remote(&to), flags),
                V2_0(ep, count, new, cookie, &to, flags)
            }),
        }
    }

    /// Calls dat_ep_post_recv with `count` but no segments, for counts that are refused.
    pub fn post_recv_count(&self, ep: usize, count: i32) -> u32 {
        let mut none = DatLmrTriplet::default();
        let mut old = convert::local(&[none]);
        let count = count.min(0);
        each!(self.ep_post_recv {
            V1_2(ep, count, old.as_mut_ptr(), 0, 0),
            V2_0(ep, count, &mut none, 0, 0)
        })
    }

    /// Calls dat_ep_get_status; returns the state, and whether receives and requests are idle.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_get_status(&self, ep: usize) -> Result<(u32, bool, bool), u32> {
        let (mut state, mut recv, mut request) = (0, 0, 0);
        let code = call!(self.ep_get_status(ep, &mut state, &mut recv, &mut request));
        value(code, (state, recv != 0, request != 0))
    }

    /// Calls dat_psp_create_any; returns PSP and qualifier.
    ///
    /// # Errors
    /// The code of the call.
    pub fn psp_create_any(&self, ia: usize, evd: usize, flags: u32) -> Result<(usize, u64), u32> {
        let (mut psp, mut qual) = (0, 0);
        let code = call!(self.psp_create_any(ia, &mut qual, evd, flags, &mut psp));
        value(code, (psp, qual))
    }

    /// Calls dat_srq_create for receives of one segment.
    ///
    /// # Errors
    /// The code of the call.
    pub fn srq_create(&self, ia: usize, pz: usize, max_recv_dtos: i32) -> Result<usize, u32> {
        let mut attr = DatSrqAttr {
            max_recv_dtos,
            max_recv_iov: 1,
            low_watermark: 0,
        };
        let mut srq = 0;
        value(call!(self.srq_create(ia, pz, &mut attr, &mut srq)), srq)
    }

    /// Calls dat_ep_create_with_srq, otherwise like [`Dat::ep_create`].
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_create_with_srq(
        &self,
        ia: usize,
        pz: usize,
        evds: [usize; 3],
        srq: usize,
    ) -> Result<usize, u32> {
        let mut ep = 0;
        let [recv, request, connect] = evds;
        let code = each!(self.ep_create_with_srq {
            V1_2(ia, pz, recv, request, connect, srq, ptr::null(), &mut ep),
            V2_0(ia, pz, recv, request, connect, srq, ptr::null(), &mut ep)
        });
        value(code, ep)
    }

    /// Calls dat_srq_post_recv.
    pub fn srq_post_recv(&self, srq: usize, iov: &[DatLmrTriplet], cookie: u64) -> u32 {
        let (mut old, mut iov) = (convert::local(iov), iov.to_vec());
        let count = iov.len() as i32;
        each!(self.srq_post_recv {
            V1_2(srq, count, old.as_mut_ptr(), cookie),
            V2_0(srq, count, iov.as_mut_ptr(), cookie)
        })
    }

    /// Calls dat_ep_modify of the fields that 2.0's `mask` names.
    pub fn ep_modify(&self, ep: usize, mask: u64, param: &DatEpParam) -> u32 {
        let old = convert::ep_param_in(param);
        each!(self.ep_modify {
            V1_2(ep, convert::ep_mask(mask), &old),
            V2_0(ep, mask, param)
        })
    }

    /// Calls dat_ep_dup_connect to the peer of `model`.
    pub fn ep_dup_connect(&self, ep: usize, model: usize, microseconds: u32, data: &[u8]) -> u32 {
        let bytes = data.as_ptr().cast::<c_void>();
        call!(self.ep_dup_connect(ep, model, microseconds, data.len() as i32, bytes, 0))
    }

    /// Calls dat_ep_set_watermark.
    pub fn ep_set_watermark(&self, ep: usize, soft: i32, hard: i32) -> u32 {
        let code = call!(self.ep_set_watermark(ep, soft, hard));
        if soft >= 0 || hard >= 0 {
            self.coverage.note("a watermark", code);
        }
        code
    }

    /// Calls dat_ep_recv_query; returns buffers allocated and spanned.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_recv_query(&self, ep: usize) -> Result<(i32, i32), u32> {
        let (mut allocated, mut spanned) = (0, 0);
        let code = call!(self.ep_recv_query(ep, &mut allocated, &mut spanned));
        value(code, (allocated, spanned))
    }

    /// Calls dat_ep_connect with a quality of service or multipathing.
    pub fn ep_connect_with(&self, ep: usize, to: &DatIaAttr, qos: u32, flags: u32) -> u32 {
        let at = to.ia_address_ptr;
        let code = call!(self.ep_connect(ep, at, 1, u32::MAX, 0, ptr::null(), qos, flags));
        if qos != 0 {
            self.coverage.note("a quality of service", code);
        }
        if flags != 0 {
            self.coverage.note("multipathing", code);
        }
        code
    }
}
