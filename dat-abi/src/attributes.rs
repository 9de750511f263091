//! Attributes that all our providers have alike (dat_ia_query), in either version.

/// `evd_stream_merging_supported`: the streams that may share an EVD, in the order SOFTWARE, CR, DTO, CONNECTION, RMR_BIND, ASYNC.
pub(crate) const MERGING: [[u32; 6]; 6] = {
    let mut all = [[1; 6]; 6];
    let mut i = 0;
    while i < 5 {
        all[5][i] = 0;
        all[i][5] = 0;
        i += 1;
    }
    all
};

/// `lmr_mem_types_supported`: VIRTUAL, LMR and SHARED_VIRTUAL in DAPL's numbers, which clients compare.
pub(crate) const LMR_MEM_TYPES: u32 = 3;

/// `completion_flags_supported`: all that the specification has.
pub(crate) const COMPLETION_FLAGS: u32 = dat_core::flags::CompletionFlags::all().bits() & 0x1f;

/// `DAT_PSP_CREATES_EP_IFASKED`: the provider makes the endpoint for a service point with DAT_PSP_PROVIDER_FLAG.
pub(crate) const EP_CREATOR: u32 = 1;

/// `optimal_buffer_alignment`, in bytes.
pub(crate) const BUFFER_ALIGNMENT: u32 = 256;

/// `DAT_RMR_SCOPE_ANY`.
pub(crate) const RMR_SCOPE_ANY: u32 = 2;
