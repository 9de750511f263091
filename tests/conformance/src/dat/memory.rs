//! Calls for LMRs and RMRs.

use std::ptr;
use std::sync::atomic::AtomicU8;

use dat_abi::types::{DAT_LMR_COOKIE_SIZE, DatRegionDescription};
use dat_abi::v2_0::types::DatLmrTriplet;

use super::{Dat, Table, convert, value};

/// `DAT_MEM_TYPE` with its `DAT_REGION_DESCRIPTION`. The memory must never be freed: a peer may write to it late.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// `DAT_MEM_TYPE_VIRTUAL`.
    Virtual(&'static [AtomicU8]),
    /// `DAT_MEM_TYPE_LMR`: the range of this LMR.
    Lmr(usize),
    /// `DAT_MEM_TYPE_SHARED_VIRTUAL`, with a name chosen by the consumer.
    Shared(&'static [AtomicU8], [u8; DAT_LMR_COOKIE_SIZE]),
}

/// Results of dat_lmr_create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The LMR.
    pub lmr: usize,
    /// Key for local segments.
    pub lmr_context: u32,
    /// Key for the peer.
    pub rmr_context: u32,
}

impl Dat {
    /// Calls dat_lmr_create.
    ///
    /// # Errors
    /// The code of the call.
    pub fn lmr_create(
        &self,
        ia: usize,
        source: Source,
        pz: usize,
        privileges: u32,
    ) -> Result<Region, u32> {
        let (mem_type, address, length, cookie, name) = match &source {
            Source::Virtual(m) => (0, m.as_ptr() as usize, m.len(), None, "virtual memory"),
            Source::Lmr(lmr) => (1, *lmr, 0, None, "an LMR's range"),
            Source::Shared(m, c) => (2, m.as_ptr() as usize, m.len(), Some(c), "shared memory"),
        };
        let region = DatRegionDescription {
            address,
            shared_memory_id: cookie.map_or(ptr::null(), ptr::from_ref),
        };
        let length = length as u64;
        let (mut lmr, mut lmr_context, mut rmr_context) = (0, 0, 0);
        let (mut size, mut address) = (0, 0);
        let code = each!(self.lmr_create {
            V1_2(
                ia, mem_type, region, length, pz, privileges,
                &mut lmr, &mut lmr_context, &mut rmr_context, &mut size, &mut address
            ),
            V2_0(
                ia, mem_type, region, length, pz, privileges, 0,
                &mut lmr, &mut lmr_context, &mut rmr_context, &mut size, &mut address
            )
        });
        self.coverage.note(name, code);
        let region = Region {
            lmr,
            lmr_context,
            rmr_context,
        };
        value(code, region)
    }

    /// Calls dat_lmr_sync_rdma_read, or dat_lmr_sync_rdma_write, of the pieces.
    pub fn lmr_sync(&self, ia: usize, pieces: &[DatLmrTriplet], write: bool) -> u32 {
        let (old, count) = (convert::local(pieces), pieces.len() as u64);
        if write {
            each!(self.lmr_sync_rdma_write {
                V1_2(ia, old.as_ptr(), count),
                V2_0(ia, pieces.as_ptr(), count)
            })
        } else {
            each!(self.lmr_sync_rdma_read {
                V1_2(ia, old.as_ptr(), count),
                V2_0(ia, pieces.as_ptr(), count)
            })
        }
    }

    /// Calls dat_rmr_bind; returns the new rmr_context. 1.2 finds the LMR by the context in `piece`.
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
        let old = convert::local(&[*piece]);
        let code = each!(self.rmr_bind {
            V1_2(rmr, old.as_ptr(), privileges, ep, cookie, 0, &mut context),
            V2_0(rmr, lmr, piece, privileges, 0, ep, cookie, 0, &mut context)
        });
        value(code, context)
    }
}
