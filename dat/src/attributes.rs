//! Attributes of adapters and their providers (dat_ia_query).

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr};

use dat_abi::sockaddr;
use dat_abi::types::DatNamedAttr;
use dat_abi::v2_0::types::{DatIaAttr, DatProviderAttr};

use crate::CompletionFlags;

/// Attributes of an adapter and of its provider.
///
/// ```
/// use udapl::Ia;
///
/// # fn main() -> Result<(), udapl::Error> {
/// let attributes = Ia::open("softrxe-lo")?.attributes()?;
/// let largest = attributes.max_message_size;
/// println!("messages of up to {largest} bytes, peers connect to {}", attributes.address);
/// if attributes.ib_extension {
///     println!("it has atomics, immediate data and datagrams");
/// }
/// let mtu = attributes.named.iter().find(|(name, _)| name == "DAT_IB_TRANSPORT_MTU");
/// if let Some((_, bytes)) = mtu {
///     println!("datagrams of up to {bytes} bytes");
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attributes {
    /// Name of the device.
    pub adapter: String,
    /// Name of the vendor.
    pub vendor: String,
    /// Name of the provider.
    pub provider: String,
    /// Version of the hardware.
    pub hardware_version: (u32, u32),
    /// Version of the firmware.
    pub firmware_version: (u32, u32),
    /// Version of the provider.
    pub provider_version: (u32, u32),
    /// Address to which peers connect.
    pub address: IpAddr,
    /// Maximum of endpoints.
    pub max_eps: u32,
    /// Maximum of outstanding posts of an endpoint.
    pub max_posts: u32,
    /// Maximum of event dispatchers.
    pub max_evds: u32,
    /// Maximum of events of a dispatcher.
    pub max_evd_queue: u32,
    /// Maximum of segments of a post.
    pub max_segments: u32,
    /// Maximum of segments of an RDMA Read.
    pub max_read_segments: u32,
    /// Maximum of segments of an RDMA Write.
    pub max_write_segments: u32,
    /// Maximum of concurrent RDMA Reads of an endpoint: of the peer, and of this side.
    pub max_reads: (u32, u32),
    /// Maximum of regions.
    pub max_regions: u32,
    /// Largest region, in bytes; 0 is no limit.
    pub max_region_size: u32,
    /// Maximum of memory windows.
    pub max_windows: u32,
    /// Maximum of protection zones.
    pub max_pzs: u32,
    /// Maximum of shared receive queues.
    pub max_srqs: u32,
    /// Maximum of receives of a shared receive queue.
    pub max_srq_recv: u32,
    /// Maximum of endpoints of a shared receive queue.
    pub max_srq_eps: u32,
    /// Maximum length of a message, in bytes.
    pub max_message_size: u64,
    /// Maximum length of an RDMA operation, in bytes.
    pub max_rdma_size: u64,
    /// Maximum length of private data in a connection request, in bytes.
    pub max_private_data: u32,
    /// Alignment at which buffers are fastest, in bytes.
    pub optimal_alignment: u32,
    /// Whether regions may be zero-based ([`Pz::register_zero_based`](crate::Pz::register_zero_based)).
    pub zero_based: bool,
    /// Whether memory needs [`Ia::sync_rdma_read`](crate::Ia::sync_rdma_read) and
    /// [`Ia::sync_rdma_write`](crate::Ia::sync_rdma_write).
    pub sync_needed: bool,
    /// Whether the provider has shared receive queues.
    pub srq: bool,
    /// Completion flags that posts may have.
    pub completion_flags: CompletionFlags,
    /// Whether several threads may call the provider at a time.
    pub thread_safe: bool,
    /// Whether the provider has the IB extension: atomics, immediate data, datagrams, counters.
    pub ib_extension: bool,
    /// The provider's named attributes, e.g. `DAT_IB_TRANSPORT_MTU`.
    pub named: Vec<(String, String)>,
    /// Named attributes of the transport.
    pub transport: Vec<(String, String)>,
    /// Named attributes of the vendor.
    pub vendor_named: Vec<(String, String)>,
}

impl Attributes {
    /// Converts what a provider filled.
    ///
    /// # Safety
    /// A provider filled both structures; what they point to lives.
    pub(crate) unsafe fn of(ia: &DatIaAttr, provider: &DatProviderAttr) -> Self {
        let number = |n: i32| u32::try_from(n).unwrap_or(0);
        // SAFETY: the caller's promise.
        let (own, transport, vendor_named) = unsafe {
            (
                named(
                    provider.provider_specific_attr,
                    provider.num_provider_specific_attr,
                ),
                named(ia.transport_attr, ia.num_transport_attr),
                named(ia.vendor_attr, ia.num_vendor_attr),
            )
        };
        Self {
            adapter: text_of(&ia.adapter_name),
            vendor: text_of(&ia.vendor_name),
            provider: text_of(&provider.provider_name),
            hardware_version: (ia.hardware_version_major, ia.hardware_version_minor),
            firmware_version: (ia.firmware_version_major, ia.firmware_version_minor),
            provider_version: (
                provider.provider_version_major,
                provider.provider_version_minor,
            ),
            address: address(ia.ia_address_ptr.cast()),
            max_eps: number(ia.max_eps),
            max_posts: number(ia.max_dto_per_ep),
            max_evds: number(ia.max_evds),
            max_evd_queue: number(ia.max_evd_qlen),
            max_segments: number(ia.max_iov_segments_per_dto),
            max_read_segments: number(ia.max_iov_segments_per_rdma_read),
            max_write_segments: number(ia.max_iov_segments_per_rdma_write),
            max_reads: (
                number(ia.max_rdma_read_per_ep_in),
                number(ia.max_rdma_read_per_ep_out),
            ),
            max_regions: number(ia.max_lmrs),
            max_region_size: ia.max_lmr_block_size,
            max_windows: number(ia.max_rmrs),
            max_pzs: number(ia.max_pzs),
            max_srqs: number(ia.max_srqs),
            max_srq_recv: number(ia.max_recv_per_srq),
            max_srq_eps: number(ia.max_ep_per_srq),
            max_message_size: ia.max_message_size.into(),
            max_rdma_size: ia.max_rdma_size.into(),
            max_private_data: number(provider.max_private_data_size),
            optimal_alignment: provider.optimal_buffer_alignment,
            zero_based: ia.zb_supported != 0,
            sync_needed: provider.lmr_sync_req != 0,
            srq: provider.srq_supported != 0,
            completion_flags: CompletionFlags::from_bits_retain(
                provider.completion_flags_supported,
            ),
            thread_safe: provider.is_thread_safe != 0,
            ib_extension: ia.extension_supported == dat_abi::v2_0::types::DAT_EXTENSION_IB,
            named: own,
            transport,
            vendor_named,
        }
    }
}

/// # Safety
/// NULL, or an array of `count` entries of C strings.
unsafe fn named(array: *const DatNamedAttr, count: i32) -> Vec<(String, String)> {
    let count = if array.is_null() {
        0
    } else {
        count.max(0) as usize
    };
    (0..count)
        .map(|at| {
            // SAFETY: the caller's promise.
            unsafe {
                let attr = *array.add(at);
                (text(attr.name), text(attr.value))
            }
        })
        .collect()
}

/// # Safety
/// NULL or a C string.
unsafe fn text(c: *const std::ffi::c_char) -> String {
    if c.is_null() {
        return String::new();
    }
    // SAFETY: not NULL, so a C string by the caller's promise.
    unsafe { CStr::from_ptr(c) }.to_string_lossy().into_owned()
}

pub(crate) fn text_of(name: &[std::ffi::c_char]) -> String {
    let bytes: Vec<u8> = name
        .iter()
        .map(|c| *c as u8)
        .take_while(|b| *b != 0)
        .collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns the IP address of a provider's socket address; the unspecified one if there is none.
pub(crate) fn address(at: *const u8) -> IpAddr {
    // SAFETY: a provider's DAT_IA_ADDRESS_PTR is NULL or a socket address of the size that its family says.
    let at = unsafe { sockaddr::read(at) };
    at.map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |at| at.ip())
}
