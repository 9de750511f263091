//! The attributes of an adapter (dat_ia_query), as the transport in C has them.

use dat_core::attributes::AdapterAttr;

use crate::convert::from_c;
use crate::object::Adapter;
use crate::table::{Attr, table, text};

/// Returns the attributes that the transport in C sets, and core's defaults for the others.
pub(crate) fn of(adapter: &Adapter) -> AdapterAttr {
    let mut attr = AdapterAttr::default();
    // SAFETY: zeros are a value of this structure.
    let mut c: Attr = unsafe { std::mem::zeroed() };
    c.max_message_size = attr.max_message_size;
    c.max_rdma_size = attr.max_rdma_size;
    c.max_eps = attr.max_eps;
    c.max_dto_per_ep = attr.max_dto_per_ep;
    c.max_iov = attr.max_iov;
    c.max_rdma_read_in = attr.max_rdma_read_per_ep_in;
    c.max_rdma_read_out = attr.max_rdma_read_per_ep_out;
    c.max_private_data_size = attr.max_private_data_size;
    if let Some(attributes) = table().attributes {
        // SAFETY: a context of `open`, and a structure that lives until the call returns.
        unsafe { attributes(adapter.object.context, &raw mut c) }
    }
    // The last byte ends each text, whatever C wrote.
    (c.adapter_name[63], c.vendor_name[63]) = (0, 0);
    // SAFETY: C strings, as a zero ends them.
    (attr.adapter_name, attr.vendor_name) =
        unsafe { (text(c.adapter_name.as_ptr()), text(c.vendor_name.as_ptr())) };
    match from_c(&c.address) {
        Some(address) => attr.address = address.ip(),
        None => {
            tracing::error!("the transport in C set no IPv4 or IPv6 address in its attributes");
        }
    }
    attr.max_message_size = c.max_message_size;
    attr.max_rdma_size = c.max_rdma_size;
    attr.max_eps = c.max_eps;
    attr.max_dto_per_ep = c.max_dto_per_ep;
    (
        attr.max_iov,
        attr.max_iov_rdma_read,
        attr.max_iov_rdma_write,
    ) = (c.max_iov, c.max_iov, c.max_iov);
    attr.max_rdma_read_per_ep_in = c.max_rdma_read_in;
    attr.max_rdma_read_per_ep_out = c.max_rdma_read_out;
    attr.max_private_data_size = c.max_private_data_size;
    if table().create_srq.is_some() && c.max_srqs != 0 {
        attr.max_srqs = c.max_srqs;
        (attr.max_ep_per_srq, attr.max_recv_per_srq) = (c.max_eps, c.max_dto_per_ep);
    }
    attr.windows = table().create_rmr.is_some() && c.max_rmrs != 0;
    attr.max_rmrs = if attr.windows { c.max_rmrs } else { 0 };
    attr.zero_based = c.zero_based != 0;
    attr.atomics = c.atomics != 0;
    attr.immediate_data = c.immediate != 0;
    attr
}
