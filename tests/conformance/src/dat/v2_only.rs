//! Functions that only 2.0 has, and the IB extension's operations. With 1.2 they return `DAT_NOT_IMPLEMENTED`.

use std::ffi::c_void;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::AtomicU8;

use dat_abi::types::{DatCrParam, DatRegionDescription};
use dat_abi::v2_0::types::{
    DatComm, DatCspParam, DatEpAttr, DatIaAttr, DatLmrTriplet, DatRmrTriplet, ib_op,
};
use dat_abi::va_list::VaList;

use super::{Dat, Region, Table, value};

/// `DAT_VA_TYPE_ZB`.
const ZERO_BASED: u32 = 1;

/// An operation of the IB extension: its C macro and its number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Extension {
    /// The macro of `dat_ib_extensions.h`.
    pub name: &'static str,
    op: i32,
}

macro_rules! extensions {
    ($($(#[$doc:meta])* $name:ident = $call:literal / $op:expr;)*) => {
        impl Extension {
            $($(#[$doc])* pub const $name: Self = Self { name: $call, op: $op };)*

            /// All operations.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];
        }
    };
}

extensions! {
    /// Atomic add.
    FETCH_AND_ADD = "dat_ib_post_fetch_and_add" / ib_op::FETCH_AND_ADD;
    /// Atomic compare and swap.
    CMP_AND_SWAP = "dat_ib_post_cmp_and_swap" / ib_op::CMP_AND_SWAP;
    /// RDMA Write with immediate data, which completes a receive.
    WRITE_IMMED = "dat_ib_post_rdma_write_immed" / ib_op::RDMA_WRITE_IMMED;
    /// Datagram.
    SEND_UD = "dat_ib_post_send_ud" / ib_op::UD_SEND;
    /// Counters.
    QUERY_COUNTERS = "dat_ib_query_counters" / ib_op::QUERY_COUNTERS;
    /// Counters, printed to standard output.
    PRINT_COUNTERS = "dat_ib_print_counters" / ib_op::PRINT_COUNTERS;
    /// Starts counters.
    START_COUNTER = "dat_ib_start_counter" / ib_op::START_COUNTERS;
    /// Stops counters.
    STOP_COUNTER = "dat_ib_stop_counter" / ib_op::STOP_COUNTERS;
    /// Frees the resources of a datagram resolution.
    UD_CM_FREE = "dat_ib_ud_cm_free" / ib_op::UD_CM_FREE;
    /// Frees an address handle.
    UD_AH_FREE = "dat_ib_ud_ah_free" / ib_op::UD_AH_FREE;
    /// Attributes of an IA that is not open.
    OPEN_QUERY = "dat_ib_open_query" / ib_op::OPEN_QUERY;
    /// Closes the handle of [`Extension::OPEN_QUERY`].
    CLOSE_QUERY = "dat_ib_close_query" / ib_op::CLOSE_QUERY;
    /// Collectives: one of twenty operations with the same result.
    COLLECTIVES = "dat_ib_collective_*" / 6;
}

/// Results of dat_csp_query.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CommonServicePoint {
    /// The IA.
    pub ia: usize,
    /// The EVD for requests.
    pub evd: usize,
    /// Protocol family, socket type, protocol.
    pub comm: [i32; 3],
    /// The listening address.
    pub at: Option<SocketAddr>,
}

/// Returns a C socket address.
fn sockaddr(at: SocketAddr) -> [u8; 28] {
    let mut bytes = [0; 28];
    let family: u16 = if at.is_ipv4() { 2 } else { 10 };
    bytes[..2].copy_from_slice(&family.to_ne_bytes());
    bytes[2..4].copy_from_slice(&at.port().to_be_bytes());
    match at.ip() {
        IpAddr::V4(ip) => bytes[4..8].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => bytes[8..24].copy_from_slice(&ip.octets()),
    }
    bytes
}

/// Parses a C socket address; `None` for NULL and other families.
///
/// # Safety
/// `at` is NULL or a socket address as long as its family says.
pub(crate) unsafe fn socket_address(at: *const u8) -> Option<SocketAddr> {
    if at.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let ip = match at.cast::<u16>().read_unaligned() {
            2 => IpAddr::from(at.add(4).cast::<[u8; 4]>().read()),
            10 => IpAddr::from(at.add(8).cast::<[u8; 16]>().read()),
            _ => return None,
        };
        let port = u16::from_be_bytes(at.add(2).cast::<[u8; 2]>().read());
        Some(SocketAddr::new(ip, port))
    }
}

/// Returns the address of an IA from dat_ia_query's attributes.
#[must_use]
pub fn address_of(attr: &DatIaAttr) -> Option<IpAddr> {
    // SAFETY: the provider keeps it.
    unsafe { socket_address(attr.ia_address_ptr.cast()) }.map(|at| at.ip())
}

/// Returns the address of the peer from dat_cr_query's parameters.
#[must_use]
pub fn remote_address(param: &DatCrParam) -> Option<IpAddr> {
    // SAFETY: the provider keeps it with the request.
    unsafe { socket_address(param.remote_ia_address_ptr.cast()) }.map(|at| at.ip())
}

/// Data of DAT_IB_UD_CONNECTION_EVENT_ESTABLISHED.
#[derive(Clone, Copy, Debug)]
pub struct DatagramPeer {
    /// A `DAT_IB_ADDR_HANDLE`.
    pub address: [u64; 5],
    /// Context for dat_ib_ud_cm_free.
    pub context: u64,
}

const DTO_COMPLETION: u32 = dat_abi::types::event_number::DTO_COMPLETION;
const UD_CONNECTION_REQUEST: u32 = 0x4_0001;
const UD_ESTABLISHED: u32 = 0x4_0002;

/// Returns true if the descriptor is readable now.
#[must_use]
pub fn readable(fd: i32) -> bool {
    let mut asked = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one entry, which lives.
    let ready = unsafe { libc::poll(&raw mut asked, 1, 0) };
    ready == 1 && asked.revents & libc::POLLIN != 0
}

impl Dat {
    /// Calls an operation of the IB extension, with its arguments after handle and number.
    pub fn extension(&self, handle: usize, extension: Extension, arguments: &[u64]) -> u32 {
        let mut words = arguments.to_vec();
        // Padded: no provider reads beyond, whichever operation it performs.
        words.resize(16, 0);
        let mut list = VaList::in_memory(&words);
        let list = list.as_parameter();
        // Opening uses the provider's registered table, as there is no handle yet.
        let table = if extension == Extension::OPEN_QUERY {
            self.opener
        } else {
            self.table
        };
        let _inside = crate::calls::enter(extension.name);
        let code = match table {
            Table::V1_2(_) => None,
            // SAFETY: a list with as many words as any operation takes, each an integer or a pointer to a local.
            Table::V2_0(table) => table
                .handle_extendedop
                .map(|slot| unsafe { slot(handle, extension.op, list) }),
        };
        let code = self.noted("handle_extendedop", code);
        self.coverage.note(extension.name, code);
        code
    }

    /// Calls dat_ib_open_query; returns a handle for dat_ib_close_query, and the attributes.
    ///
    /// # Errors
    /// The code of the call.
    pub fn open_query(&self) -> Result<(usize, DatIaAttr), u32> {
        let mut ia = 0_usize;
        let mut attr = std::mem::MaybeUninit::<DatIaAttr>::zeroed();
        let arguments = [
            &raw mut ia as u64,
            u64::MAX >> 1,
            attr.as_mut_ptr() as u64,
            0,
            0,
        ];
        let name = self.name.as_ptr() as usize;
        let code = self.extension(name, Extension::OPEN_QUERY, &arguments);
        // SAFETY: all zero is a value: words and NULL pointers.
        value(code, (ia, unsafe { attr.assume_init() }))
    }

    /// Calls dat_cno_fd_create; returns descriptor and CNO.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_fd_create(&self, ia: usize) -> Result<(i32, usize), u32> {
        let (mut fd, mut cno) = (-1, 0);
        let code = v2_only!(self.cno_fd_create(ia, &mut fd, &mut cno));
        value(code, (fd, cno))
    }

    /// Calls dat_cno_trigger; returns the EVD.
    ///
    /// # Errors
    /// The code of the call.
    pub fn cno_trigger(&self, cno: usize) -> Result<usize, u32> {
        let mut evd = 0;
        value(v2_only!(self.cno_trigger(cno, &mut evd)), evd)
    }

    /// Calls dat_ia_ha_related.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ia_ha_related(&self, ia: usize) -> Result<bool, u32> {
        let mut answer = u32::MAX;
        let code = v2_only!(self.ia_ha_related(ia, self.name.as_ptr(), &mut answer));
        value(code, answer != 0)
    }

    /// Calls dat_rmr_create_for_ep.
    ///
    /// # Errors
    /// The code of the call.
    pub fn rmr_create_for_ep(&self, pz: usize) -> Result<usize, u32> {
        let mut rmr = 0;
        value(v2_only!(self.rmr_create_for_ep(pz, &mut rmr)), rmr)
    }

    /// Calls dat_evd_wait for a completion of the IB extension; returns its `DAT_IB_EXT_TYPE`, its `DAT_DTO_COMPLETION_STATUS` and its
    /// immediate data.
    ///
    /// # Errors
    /// The code of dat_evd_wait.
    pub fn evd_wait_immediate(
        &self,
        evd: usize,
        microseconds: u32,
    ) -> Result<(u32, u32, u32), u32> {
        let (event, _) = self.wait(evd, microseconds, 1)?;
        let [kind, value, ..] = event.event_extension_data;
        // SAFETY: the event of a completion has this field; all are plain words.
        let dto = unsafe { event.event_data.dto_completion_event_data };
        Ok((kind as u32, dto.status, value as u32))
    }

    /// Calls dat_evd_wait for a completion of the IB extension; returns its length.
    ///
    /// # Errors
    /// The code of dat_evd_wait.
    pub fn evd_wait_length(&self, evd: usize, microseconds: u32) -> Result<u32, u32> {
        let (event, _) = self.wait(evd, microseconds, 1)?;
        // SAFETY: the event of a completion has this field; all are plain words.
        let dto = unsafe { event.event_data.dto_completion_event_data };
        Ok(dto.transfered_length)
    }

    /// Calls dat_lmr_create with `DAT_VA_TYPE_ZB`.
    ///
    /// # Errors
    /// The code of the call.
    pub fn lmr_create_from_zero(
        &self,
        ia: usize,
        bytes: &'static [AtomicU8],
        pz: usize,
        privileges: u32,
    ) -> Result<Region, u32> {
        let (address, length) = (bytes.as_ptr() as usize, bytes.len() as u64);
        let region = DatRegionDescription {
            address,
            shared_memory_id: std::ptr::null(),
        };
        let (mut lmr, mut lmr_context, mut rmr_context) = (0, 0, 0);
        let (mut size, mut at) = (0, 0);
        let code = v2_only!(self.lmr_create(
            ia,
            0,
            region,
            length,
            pz,
            privileges,
            ZERO_BASED,
            &mut lmr,
            &mut lmr_context,
            &mut rmr_context,
            &mut size,
            &mut at
        ));
        let region = Region {
            lmr,
            lmr_context,
            rmr_context,
        };
        value(code, region)
    }

    /// Calls dat_rmr_bind with `DAT_VA_TYPE_ZB`; returns the new rmr_context.
    ///
    /// # Errors
    /// The code of the call.
    pub fn rmr_bind_from_zero(
        &self,
        rmr: usize,
        lmr: usize,
        piece: &DatLmrTriplet,
        privileges: u32,
        ep: usize,
        cookie: u64,
    ) -> Result<u32, u32> {
        let mut key = 0;
        let code = v2_only!(self.rmr_bind(
            rmr, lmr, piece, privileges, ZERO_BASED, ep, cookie, 0, &mut key
        ));
        value(code, key)
    }

    /// Calls dat_ep_post_send_with_invalidate with the peer's `rmr_context`.
    pub fn post_send_with_invalidate(
        &self,
        ep: usize,
        iov: &[DatLmrTriplet],
        cookie: u64,
        rmr_context: u32,
    ) -> u32 {
        let (mut iov, count) = (iov.to_vec(), iov.len() as i32);
        let at = iov.as_mut_ptr();
        v2_only!(self.ep_post_send_with_invalidate(ep, count, at, cookie, 0, 1, rmr_context))
    }

    /// Calls dat_evd_wait for a completed receive; returns its `DAT_DTOS` and the window that the message invalidated,
    /// `None` for another event.
    ///
    /// # Errors
    /// The code of dat_evd_wait.
    pub fn evd_wait_invalidated(
        &self,
        evd: usize,
        microseconds: u32,
    ) -> Result<Option<(u32, u32)>, u32> {
        let (event, _) = self.wait(evd, microseconds, 1)?;
        // SAFETY: the number says that this field is set; all are plain words.
        Ok((event.event_number == DTO_COMPLETION).then(|| unsafe {
            let dto = event.event_data.dto_completion_event_data;
            (dto.operation, dto.rmr_context)
        }))
    }

    /// Calls dat_ep_post_rdma_read_to_rmr.
    pub fn post_rdma_read_to_rmr(
        &self,
        ep: usize,
        local: &DatRmrTriplet,
        remote: &DatRmrTriplet,
        cookie: u64,
    ) -> u32 {
        v2_only!(self.ep_post_rdma_read_to_rmr(ep, local, cookie, remote, 0))
    }

    /// Calls dat_csp_create at `at`, for the protocol family, socket type and protocol of `comm`.
    ///
    /// # Errors
    /// The code of the call.
    pub fn csp_create(
        &self,
        ia: usize,
        comm: [i32; 3],
        at: SocketAddr,
        evd: usize,
    ) -> Result<usize, u32> {
        let [domain, r#type, protocol] = comm;
        let mut comm = DatComm {
            domain,
            r#type,
            protocol,
        };
        let (mut csp, mut at) = (0, sockaddr(at));
        let at = at.as_mut_ptr().cast::<c_void>();
        let code = v2_only!(self.csp_create(ia, &mut comm, at, evd, &mut csp));
        value(code, csp)
    }

    /// Calls dat_csp_query; returns IA, EVD, communicator and where it listens.
    ///
    /// # Errors
    /// The code of the call.
    pub fn csp_query(&self, csp: usize) -> Result<CommonServicePoint, u32> {
        let mut param = std::mem::MaybeUninit::<DatCspParam>::zeroed();
        let code = v2_only!(self.csp_query(csp, 0xf, param.as_mut_ptr()));
        if code != 0 {
            return Err(code);
        }
        // SAFETY: filled in; the provider keeps what it points to.
        unsafe {
            let param = param.assume_init();
            let comm = param.comm.read();
            Ok(CommonServicePoint {
                ia: param.ia_handle,
                evd: param.evd_handle,
                comm: [comm.domain, comm.r#type, comm.protocol],
                at: socket_address(param.address_ptr.cast()),
            })
        }
    }

    /// Calls dat_csp_free.
    pub fn csp_free(&self, csp: usize) -> u32 {
        v2_only!(self.csp_free(csp))
    }

    /// Calls dat_ep_common_connect.
    pub fn ep_common_connect(
        &self,
        ep: usize,
        to: SocketAddr,
        microseconds: u32,
        data: &[u8],
    ) -> u32 {
        let mut to = sockaddr(to);
        let at = to.as_mut_ptr().cast::<c_void>();
        let (size, data) = (data.len() as i32, data.as_ptr().cast::<c_void>());
        v2_only!(self.ep_common_connect(ep, at, microseconds, size, data))
    }

    /// Calls dat_ep_create for an endpoint of service type UD.
    ///
    /// # Errors
    /// The code of the call.
    pub fn ep_create_datagram(&self, ia: usize, pz: usize, evds: [usize; 3]) -> Result<usize, u32> {
        let [recv, request, connect] = evds;
        // SAFETY: all zero is a value: words and NULL pointers.
        let mut attr: DatEpAttr = unsafe { std::mem::zeroed() };
        attr.service_type = 1;
        (attr.max_recv_dtos, attr.max_request_dtos) = (8, 8);
        (attr.max_recv_iov, attr.max_request_iov) = (1, 1);
        let mut ep = 0;
        let code = v2_only!(self.ep_create(ia, pz, recv, request, connect, &attr, &mut ep));
        self.coverage.note("an endpoint for datagrams", code);
        value(code, ep)
    }

    /// Calls dat_evd_wait for a datagram request; `None` for another event.
    ///
    /// # Errors
    /// The code of dat_evd_wait.
    pub fn evd_wait_datagram_request(
        &self,
        evd: usize,
        microseconds: u32,
    ) -> Result<Option<usize>, u32> {
        let (event, _) = self.wait(evd, microseconds, 1)?;
        // SAFETY: the number says that this field is set; all are plain words.
        Ok((event.event_number == UD_CONNECTION_REQUEST)
            .then_some(unsafe { event.event_data.cr_arrival_event_data.cr_handle }))
    }

    /// Calls dat_evd_wait for a resolved datagram peer; `None` for another event.
    ///
    /// # Errors
    /// The code of dat_evd_wait.
    pub fn evd_wait_datagram_peer(
        &self,
        evd: usize,
        microseconds: u32,
    ) -> Result<Option<DatagramPeer>, u32> {
        let (event, _) = self.wait(evd, microseconds, 1)?;
        let words = event.event_extension_data;
        Ok(
            (event.event_number == UD_ESTABLISHED).then(|| DatagramPeer {
                address: [words[2], words[3], words[4], words[5], words[6]],
                context: words[7],
            }),
        )
    }
}
