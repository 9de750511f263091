//! libibverbs objects. Each is freed when dropped and keeps alive the objects that it was created from.

pub(crate) mod ah;
pub(crate) mod cq;
pub(crate) mod device;
pub(crate) mod lmr;
pub(crate) mod mr;
pub(crate) mod mw;
pub(crate) mod pd;
pub(crate) mod placeholder;
pub(crate) mod qp;
pub(crate) mod rmr;
pub(crate) mod srq;
mod work_request;
