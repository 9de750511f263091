//! The C function table as methods: all `unsafe` calls of the suite. Handles are plain words here: that a provider
//! refuses those that are wrong is what is tested.

use std::ffi::{CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use dat_abi::types::{
    DAT_NAME_MAX_LENGTH, DatCrParam, DatEvdParam, DatOsWaitProxyAgent, DatPspParam, DatPzParam,
    DatRegionDescription, DatRspParam, DatSrqAttr, DatSrqParam, event_number,
};
use dat_abi::v2_0::table::DatProvider;
use dat_abi::v2_0::types::{
    DatCnoParam, DatEpParam, DatEvent, DatIaAttr, DatLmrParam, DatLmrTriplet, DatProviderAttr,
    DatRmrParam, DatRmrTriplet,
};
use dat_core::error::{Error, Kind};

use crate::event::Seen;

/// A provider under test: its 2.0 table and the name of an IA.
#[derive(Clone, Debug)]
pub struct Dat {
    /// What the provider registered: opens.
    opener: &'static DatProvider,
    /// What its handles begin with: everything else. A provider with several engines has one each.
    table: &'static DatProvider,
    name: CString,
}

/// Calls a slot; a missing one answers `DAT_NOT_IMPLEMENTED`.
macro_rules! call {
    ($self:ident.$slot:ident($($arg:expr),* $(,)?)) => {
        match $self.table.$slot {
            // SAFETY: pointers are to locals or leaked memory of the types that the slot names; handles may be
            // anything, which is what a provider is tested for.
            Some(slot) => unsafe { slot($($arg),*) },
            None => Error::of(Kind::NotImplemented).code(),
        }
    };
}

/// Methods that pass a few words and return the code.
macro_rules! plain {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        pub fn $name(&self, $($arg: $ty),*) -> u32 {
            call!(self.$name($($arg),*))
        }
    )*};
}

/// Methods that pass a few words and get a handle.
macro_rules! makes {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*);)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The code of the call.
        pub fn $name(&self, $($arg: $ty),*) -> Result<usize, u32> {
            let mut handle = 0;
            value(call!(self.$name($($arg,)* &mut handle)), handle)
        }
    )*};
}

/// Methods that fill a parameter structure.
macro_rules! queries {
    ($($(#[$doc:meta])* $name:ident -> $param:ty = $mask:literal;)*) => {$(
        $(#[$doc])*
        ///
        /// # Errors
        /// The code of the call.
        pub fn $name(&self, handle: usize) -> Result<$param, u32> {
            let mut param = MaybeUninit::<$param>::zeroed();
            let code = call!(self.$name(handle, $mask, param.as_mut_ptr()));
            // SAFETY: all zero is a value of these structures: words, NULL pointers, no function.
            value(code, unsafe { param.assume_init() })
        }
    )*};
}

fn value<T>(code: u32, value: T) -> Result<T, u32> {
    if code == 0 { Ok(value) } else { Err(code) }
}

/// What dat_lmr_create gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The LMR.
    pub lmr: usize,
    /// For local segments.
    pub lmr_context: u32,
    /// For the peer.
    pub rmr_context: u32,
}

/// Which request dat_ep_post_* is to post.
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

impl Dat {
    /// The provider of `table`, which knows an IA of that name.
    ///
    /// # Panics
    /// If the name has a 0 in it.
    pub fn new(table: &'static DatProvider, name: &str) -> Self {
        let mut dat = Self {
            opener: table,
            table,
            name: CString::new(name).expect("a name without 0"),
        };
        if let Ok((ia, _)) = dat.ia_open() {
            // SAFETY: the first word of a handle is its table, which lives as long as the provider is loaded.
            dat.table = unsafe { &**(ia as *const *const DatProvider) };
            dat.ia_close(ia, 0);
        }
        dat
    }

    /// dat_ia_open with an asynchronous EVD of its own: IA and EVD.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_open(&self) -> Result<(usize, usize), u32> {
        self.ia_open_as(&self.name.to_string_lossy())
    }

    /// The same by another name.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_open_as(&self, name: &str) -> Result<(usize, usize), u32> {
        let name = CString::new(name).unwrap_or_default();
        let name: *const c_char = name.as_ptr();
        let (mut ia, mut evd) = (0, 0);
        let Some(slot) = self.opener.ia_open else {
            return Err(Error::of(Kind::NotImplemented).code());
        };
        // SAFETY: pointers are to locals.
        let code = unsafe { slot(name, 8, &mut evd, &mut ia) };
        value(code, (ia, evd))
    }

    /// dat_ia_query: attributes of adapter and provider.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_query(&self, ia: usize) -> Result<(DatIaAttr, DatProviderAttr), u32> {
        let mut evd = 0;
        let mut attr = MaybeUninit::<DatIaAttr>::zeroed();
        let mut provider = MaybeUninit::<DatProviderAttr>::zeroed();
        let all = u64::MAX >> 1;
        let code = call!(self.ia_query(
            ia,
            &mut evd,
            all,
            attr.as_mut_ptr(),
            all,
            provider.as_mut_ptr()
        ));
        // SAFETY: all zero is a value of both: words and NULL pointers.
        value(code, unsafe {
            (attr.assume_init(), provider.assume_init())
        })
    }

    plain! {
        /// dat_ia_close.
        ia_close(ia: usize, flags: u32);
        /// dat_set_consumer_context.
        set_consumer_context(any: usize, context: u64);
        /// dat_cno_free.
        cno_free(cno: usize);
        /// dat_cr_handoff.
        cr_handoff(cr: usize, conn_qual: u64);
        /// dat_evd_modify_cno.
        evd_modify_cno(evd: usize, cno: usize);
        /// dat_evd_enable.
        evd_enable(evd: usize);
        /// dat_evd_disable.
        evd_disable(evd: usize);
        /// dat_evd_resize.
        evd_resize(evd: usize, qlen: i32);
        /// dat_evd_free.
        evd_free(evd: usize);
        /// dat_evd_set_unwaitable.
        evd_set_unwaitable(evd: usize);
        /// dat_evd_clear_unwaitable.
        evd_clear_unwaitable(evd: usize);
        /// dat_ep_disconnect.
        ep_disconnect(ep: usize, flags: u32);
        /// dat_ep_free.
        ep_free(ep: usize);
        /// dat_ep_reset.
        ep_reset(ep: usize);
        /// dat_ep_set_watermark.
        ep_set_watermark(ep: usize, soft: i32, hard: i32);
        /// dat_lmr_free.
        lmr_free(lmr: usize);
        /// dat_rmr_free.
        rmr_free(rmr: usize);
        /// dat_psp_free.
        psp_free(psp: usize);
        /// dat_rsp_free.
        rsp_free(rsp: usize);
        /// dat_pz_free.
        pz_free(pz: usize);
        /// dat_srq_free.
        srq_free(srq: usize);
        /// dat_srq_resize.
        srq_resize(srq: usize, dtos: i32);
        /// dat_srq_set_lw.
        srq_set_lw(srq: usize, low: i32);
    }

    makes! {
        /// dat_evd_create.
        evd_create(ia: usize, qlen: i32, cno: usize, flags: u32);
        /// dat_pz_create.
        pz_create(ia: usize);
        /// dat_rmr_create.
        rmr_create(pz: usize);
        /// dat_psp_create.
        psp_create(ia: usize, conn_qual: u64, evd: usize, flags: u32);
        /// dat_rsp_create.
        rsp_create(ia: usize, conn_qual: u64, ep: usize, evd: usize);
    }

    queries! {
        /// dat_cno_query.
        cno_query -> DatCnoParam = 0x3;
        /// dat_cr_query.
        cr_query -> DatCrParam = 0x1f;
        /// dat_evd_query.
        evd_query -> DatEvdParam = 0x1f;
        /// dat_ep_query.
        ep_query -> DatEpParam = 0x3fff_ffff;
        /// dat_lmr_query.
        lmr_query -> DatLmrParam = 0x7ff;
        /// dat_rmr_query.
        rmr_query -> DatRmrParam = 0xff;
        /// dat_psp_query.
        psp_query -> DatPspParam = 0xf;
        /// dat_rsp_query.
        rsp_query -> DatRspParam = 0xf;
        /// dat_pz_query.
        pz_query -> DatPzParam = 0x1;
        /// dat_srq_query.
        srq_query -> DatSrqParam = 0xff;
    }

    /// dat_get_consumer_context.
    ///
    /// # Errors
    /// The code of the call.
    pub fn get_consumer_context(&self, any: usize) -> Result<u64, u32> {
        let mut context = 0;
        value(call!(self.get_consumer_context(any, &mut context)), context)
    }

    /// dat_get_handle_type.
    ///
    /// # Errors
    /// The code of the call.
    pub fn get_handle_type(&self, any: usize) -> Result<u32, u32> {
        let mut kind = u32::MAX;
        value(call!(self.get_handle_type(any, &mut kind)), kind)
    }

    /// dat_cno_create without an agent.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_create(&self, ia: usize) -> Result<usize, u32> {
        let agent = DatOsWaitProxyAgent {
            instance_data: ptr::null_mut(),
            proxy_agent_func: None,
        };
        let mut cno = 0;
        value(call!(self.cno_create(ia, agent, &mut cno)), cno)
    }

    /// dat_cno_wait: the EVD.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_wait(&self, cno: usize, microseconds: u32) -> Result<usize, u32> {
        let mut evd = 0;
        value(call!(self.cno_wait(cno, microseconds, &mut evd)), evd)
    }

    /// dat_cr_accept.
    pub fn cr_accept(&self, cr: usize, ep: usize, data: &[u8]) -> u32 {
        call!(self.cr_accept(cr, ep, data.len() as i32, data.as_ptr().cast::<c_void>()))
    }

    /// dat_cr_reject.
    pub fn cr_reject(&self, cr: usize, data: &[u8]) -> u32 {
        call!(self.cr_reject(cr, data.len() as i32, data.as_ptr().cast::<c_void>()))
    }

    /// The first `length` bytes of private data that dat_cr_query points to, if there are as many.
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

    /// dat_evd_wait: the event, and how many more there are.
    ///
    /// # Errors
    /// The code of the call.
    pub fn evd_wait(
        &self,
        evd: usize,
        microseconds: u32,
        threshold: i32,
    ) -> Result<(Seen, i32), u32> {
        let (mut event, mut more) = (DatEvent::default(), 0);
        let code = call!(self.evd_wait(evd, microseconds, threshold, &mut event, &mut more));
        value(code, (Seen::of(&event), more))
    }

    /// dat_evd_dequeue.
    ///
    /// # Errors
    /// The code of the call.
    pub fn evd_dequeue(&self, evd: usize) -> Result<Seen, u32> {
        let mut event = DatEvent::default();
        let code = call!(self.evd_dequeue(evd, &mut event));
        value(code, Seen::of(&event))
    }

    /// dat_evd_post_se.
    pub fn evd_post_se(&self, evd: usize, pointer: usize) -> u32 {
        let mut event = DatEvent {
            event_number: event_number::SOFTWARE,
            ..DatEvent::default()
        };
        event.event_data.software_event_data = dat_abi::types::DatSoftwareEventData { pointer };
        call!(self.evd_post_se(evd, &event))
    }

    /// dat_ep_create with default attributes; `evds` are for receives, requests and connections.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_create(&self, ia: usize, pz: usize, evds: [usize; 3]) -> Result<usize, u32> {
        let mut ep = 0;
        let [recv, request, connect] = evds;
        let code = call!(self.ep_create(ia, pz, recv, request, connect, ptr::null(), &mut ep));
        value(code, ep)
    }

    /// dat_ep_connect to where IA `to` is.
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

    /// dat_ep_post_*.
    pub fn post(
        &self,
        ep: usize,
        what: Post,
        iov: &[DatLmrTriplet],
        cookie: u64,
        flags: u32,
    ) -> u32 {
        let mut iov = iov.to_vec();
        let (count, at) = (iov.len() as i32, iov.as_mut_ptr());
        match what {
            Post::Send => call!(self.ep_post_send(ep, count, at, cookie, flags)),
            Post::Recv => call!(self.ep_post_recv(ep, count, at, cookie, flags)),
            Post::Read(from) => {
                call!(self.ep_post_rdma_read(ep, count, at, cookie, &from, flags))
            }
            Post::Write(to) => call!(self.ep_post_rdma_write(ep, count, at, cookie, &to, flags)),
        }
    }

    /// dat_ep_post_recv of `count` segments of which there are none: for counts that are refused.
    pub fn post_recv_count(&self, ep: usize, count: i32) -> u32 {
        let mut none = DatLmrTriplet::default();
        call!(self.ep_post_recv(ep, count.min(0), &mut none, 0, 0))
    }

    /// dat_ep_get_status: the state, and whether receives and requests are idle.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_get_status(&self, ep: usize) -> Result<(u32, bool, bool), u32> {
        let (mut state, mut recv, mut request) = (0, 0, 0);
        let code = call!(self.ep_get_status(ep, &mut state, &mut recv, &mut request));
        value(code, (state, recv != 0, request != 0))
    }

    /// dat_lmr_create of virtual memory, which must stay for ever.
    ///
    /// # Errors
    /// The code of the call.
    pub fn lmr_create(
        &self,
        ia: usize,
        memory: &'static [std::sync::atomic::AtomicU8],
        pz: usize,
        privileges: u32,
    ) -> Result<Region, u32> {
        let region = DatRegionDescription {
            address: memory.as_ptr() as usize,
            shared_memory_id: ptr::null(),
        };
        let length = memory.len() as u64;
        let (mut lmr, mut lmr_context, mut rmr_context) = (0, 0, 0);
        let (mut size, mut address) = (0, 0);
        let code = call!(self.lmr_create(
            ia,
            0,
            region,
            length,
            pz,
            privileges,
            0,
            &mut lmr,
            &mut lmr_context,
            &mut rmr_context,
            &mut size,
            &mut address
        ));
        let region = Region {
            lmr,
            lmr_context,
            rmr_context,
        };
        value(code, region)
    }

    /// dat_rmr_bind: the new rmr_context.
    ///
    /// # Errors
    /// The code of the call.
    pub fn rmr_bind(
        &self,
        rmr: usize,
        lmr: usize,
        piece: &DatLmrTriplet,
        privileges: u32,
        ep: usize,
        cookie: u64,
    ) -> Result<u32, u32> {
        let mut context = 0;
        let code =
            call!(self.rmr_bind(rmr, lmr, piece, privileges, 0, ep, cookie, 0, &mut context));
        value(code, context)
    }

    /// dat_psp_create_any: PSP and qualifier.
    ///
    /// # Errors
    /// The code of the call.
    pub fn psp_create_any(&self, ia: usize, evd: usize, flags: u32) -> Result<(usize, u64), u32> {
        let (mut psp, mut qual) = (0, 0);
        let code = call!(self.psp_create_any(ia, &mut qual, evd, flags, &mut psp));
        value(code, (psp, qual))
    }

    /// dat_srq_create for receives of one segment.
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

    /// dat_ep_create_with_srq, otherwise like [`Dat::ep_create`].
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
        let none = ptr::null();
        let code =
            call!(self.ep_create_with_srq(ia, pz, recv, request, connect, srq, none, &mut ep));
        value(code, ep)
    }

    /// dat_srq_post_recv.
    pub fn srq_post_recv(&self, srq: usize, iov: &[DatLmrTriplet], cookie: u64) -> u32 {
        let mut iov = iov.to_vec();
        call!(self.srq_post_recv(srq, iov.len() as i32, iov.as_mut_ptr(), cookie))
    }
}

/// Text of a name in the specification's fixed room.
pub(crate) fn text(name: &[c_char; DAT_NAME_MAX_LENGTH]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|c| *c as u8)
        .take_while(|b| *b != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
