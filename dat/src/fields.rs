//! All attributes of an adapter and of its provider as names and values, for programs that show them.

use dat_abi::v2_0::types::{DatIaAttr, DatProviderAttr};

use crate::attributes::{address, text_of};
use crate::error::Result;
use crate::ia::Ia;

/// A name of the specification and a value in words.
///
/// Example: [`AllAttributes`].
pub type Field = (&'static str, String);

/// All attributes that dat_ia_query returns, except the named ones, which [`Attributes::named`](crate::Attributes::named) has.
///
/// ```
/// use udapl::Ia;
///
/// # fn main() -> Result<(), udapl::Error> {
/// let all = Ia::open("softrxe-lo")?.all_attributes()?;
/// for (name, value) in all.ia.iter().chain(&all.provider) {
///     println!("{name:35} {value}"); // "max_message_size", "2147483648"
/// }
/// # assert!(all.ia.iter().any(|(name, _)| name.contains("max_message_size")));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct AllAttributes {
    /// Fields of `DAT_IA_ATTR`.
    pub ia: Vec<Field>,
    /// Fields of `DAT_PROVIDER_ATTR`.
    pub provider: Vec<Field>,
}

/// `numbers!(from; name ...)`: fields whose values are numbers.
macro_rules! numbers {
    ($from:expr; $($name:ident)*) => {
        [$((stringify!($name), $from.$name.to_string()),)*]
    };
}

/// `truths!(from; name ...)`: fields whose values are true or false.
macro_rules! truths {
    ($from:expr; $($name:ident)*) => {
        [$((stringify!($name), ($from.$name != 0).to_string()),)*]
    };
}

/// Bits of `completion_flags_supported`.
const COMPLETION: &[&str] = &[
    "suppress",
    "solicited-wait",
    "unsignalled",
    "barrier-fence",
    "evd-threshold",
];
/// Bits of `dat_qos_supported`.
const QOS: &[&str] = &["high-throughput", "low-latency", "economy", "premium"];

impl Ia {
    /// Returns all attributes of the adapter and of its provider (dat_ia_query).
    ///
    /// # Errors
    /// [`Error::Call`](crate::Error::Call).
    pub fn all_attributes(&self) -> Result<AllAttributes> {
        let (ia, provider) = self.raw_attributes()?;
        Ok(AllAttributes {
            ia: of_ia(&ia),
            provider: of_provider(&provider),
        })
    }
}

fn of_ia(ia: &DatIaAttr) -> Vec<Field> {
    let version = |major: u32, minor: u32| format!("{major}.{minor}");
    let mut all = vec![
        ("adapter_name", text_of(&ia.adapter_name)),
        ("vendor_name", text_of(&ia.vendor_name)),
        (
            "hardware_version",
            version(ia.hardware_version_major, ia.hardware_version_minor),
        ),
        (
            "firmware_version",
            version(ia.firmware_version_major, ia.firmware_version_minor),
        ),
        ("ia_address", address(ia.ia_address_ptr.cast()).to_string()),
    ];
    all.extend(numbers!(ia;
        max_eps max_dto_per_ep max_rdma_read_per_ep_in max_rdma_read_per_ep_out max_rdma_read_in max_rdma_read_out max_evds
        max_evd_qlen max_iov_segments_per_dto max_iov_segments_per_rdma_read max_iov_segments_per_rdma_write max_lmrs
        max_lmr_block_size));
    all.push((
        "max_lmr_virtual_address",
        format!("{:#x}", ia.max_lmr_virtual_address),
    ));
    all.extend(numbers!(ia; max_pzs max_message_size max_rdma_size max_rmrs));
    all.push((
        "max_rmr_target_address",
        format!("{:#x}", ia.max_rmr_target_address),
    ));
    all.extend(numbers!(ia; max_srqs max_ep_per_srq max_recv_per_srq));
    all.extend(truths!(ia; max_rdma_read_per_ep_in_guaranteed max_rdma_read_per_ep_out_guaranteed zb_supported));
    all.extend(
        numbers!(ia; extension_supported extension_version num_transport_attr num_vendor_attr),
    );
    all
}

fn of_provider(of: &DatProviderAttr) -> Vec<Field> {
    let version = |major: u32, minor: u32| format!("{major}.{minor}");
    let choice = |words: &[&str], number: u32| {
        let word = words.get(number as usize);
        word.map_or_else(|| number.to_string(), |word| (*word).to_owned())
    };
    let mut all = vec![
        ("provider_name", text_of(&of.provider_name)),
        (
            "provider_version",
            version(of.provider_version_major, of.provider_version_minor),
        ),
        (
            "dapl_version",
            version(of.dapl_version_major, of.dapl_version_minor),
        ),
        (
            "lmr_mem_types_supported",
            format!("{:#x}", of.lmr_mem_types_supported),
        ),
        (
            "iov_ownership_on_return",
            choice(
                &["consumer", "provider, unmodified", "provider"],
                of.iov_ownership_on_return,
            ),
        ),
        ("dat_qos_supported", bits(QOS, of.dat_qos_supported)),
        (
            "completion_flags_supported",
            bits(COMPLETION, of.completion_flags_supported),
        ),
    ];
    all.extend(truths!(of; is_thread_safe));
    all.extend(numbers!(of; max_private_data_size));
    all.extend(truths!(of; supports_multipath));
    all.push((
        "ep_creator",
        choice(&["never", "if-asked", "always"], of.ep_creator),
    ));
    all.push(("pz_support", choice(&["unique", "shared"], of.pz_support)));
    all.extend(numbers!(of; optimal_buffer_alignment));
    let merges = of.evd_stream_merging_supported.iter();
    let merges = merges.map(|row| {
        row.iter()
            .map(|m| if *m == 0 { '-' } else { 'x' })
            .collect::<String>()
    });
    all.push((
        "evd_stream_merging_supported",
        merges.collect::<Vec<_>>().join(" "),
    ));
    all.extend(truths!(of; srq_supported));
    all.extend(numbers!(of; srq_watermarks_supported));
    all.extend(truths!(of; srq_ep_pz_difference_supported));
    all.extend(numbers!(of; srq_info_supported ep_recv_info_supported));
    all.extend(truths!(of;
        lmr_sync_req dto_async_return_guaranteed rdma_write_for_rdma_read_req rdma_read_lmr_rmr_context_exposure));
    all.push((
        "rmr_scope_supported",
        choice(&["ep", "pz", "any"], of.rmr_scope_supported),
    ));
    all.extend(truths!(of; is_signal_safe ha_supported));
    all.extend(numbers!(of; ha_loadbalancing num_provider_specific_attr));
    all
}

/// Returns the names of the bits that are set, and the number.
fn bits(names: &[&str], value: u32) -> String {
    let set = names
        .iter()
        .enumerate()
        .filter(|(bit, _)| value & (1 << bit) != 0);
    let set: Vec<&str> = set.map(|(_, name)| *name).collect();
    format!("{value:#x} ({})", set.join(" "))
}
