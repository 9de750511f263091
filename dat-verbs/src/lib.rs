//! The DAT transport over libibverbs and librdmacm.
