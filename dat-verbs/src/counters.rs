//! Counters of a verbs device, from sysfs (dat_ib_query_counters' link and diagnostic counters).

use std::path::{Path, PathBuf};

use dat_core::counters::IaCounter as C;

/// Files of each counter below the device's folder, `{}` for the port. The first file that exists is read:
/// InfiniBand's port counters and mlx4's diagnostics, then those of rdma_rxe and newer devices with the same meaning.
const FILES: [(C, &[&str]); 18] = [
    (C::LnkErrRcv, &["ports/{}/counters/port_rcv_errors"]),
    (
        C::LnkErrRcvRemPhys,
        &["ports/{}/counters/port_rcv_remote_physical_errors"],
    ),
    (
        C::LnkErrRcvConstraint,
        &["ports/{}/counters/port_rcv_constraint_errors"],
    ),
    (
        C::LnkErrXmtDiscards,
        &["ports/{}/counters/port_xmit_discards"],
    ),
    (
        C::LnkErrXmtContraint,
        &["ports/{}/counters/port_xmit_constraint_errors"],
    ),
    (
        C::LnkErrIntegrity,
        &["ports/{}/counters/local_link_integrity_errors"],
    ),
    (
        C::LnkErrExcBufOverrun,
        &["ports/{}/counters/excessive_buffer_overrun_errors"],
    ),
    (
        C::LnkWarnRcvSwRelay,
        &["ports/{}/counters/port_rcv_switch_relay_errors"],
    ),
    (C::LnkWarnXmtWait, &["ports/{}/counters/port_xmit_wait"]),
    (C::DiagErrRqRae, &["diag_counters/rq_num_rae"]),
    (
        C::DiagErrRqOos,
        &[
            "diag_counters/rq_num_oos",
            "ports/{}/hw_counters/out_of_seq_request",
            "ports/{}/hw_counters/out_of_sequence",
        ],
    ),
    (C::DiagErrRqRire, &["diag_counters/rq_num_rire"]),
    (C::DiagErrRqUdsdprd, &["diag_counters/rq_num_udsdprd"]),
    (C::DiagErrSqRae, &["diag_counters/sq_num_rae"]),
    (
        C::DiagErrSqOos,
        &[
            "diag_counters/sq_num_oos",
            "ports/{}/hw_counters/rcvd_seq_err",
            "ports/{}/hw_counters/packet_seq_err",
        ],
    ),
    (C::DiagErrSqRire, &["diag_counters/sq_num_rire"]),
    (
        C::DiagErrSqRree,
        &[
            "diag_counters/sq_num_rree",
            "ports/{}/hw_counters/retry_rnr_exceeded_err",
        ],
    ),
    (
        C::DiagErrSqTree,
        &[
            "diag_counters/sq_num_tree",
            "ports/{}/hw_counters/retry_exceeded_err",
        ],
    ),
];

/// Returns the counters that the device `name` has.
pub(crate) fn of_device(name: &str, port: u8) -> Vec<(C, u64)> {
    in_folder(&PathBuf::from("/sys/class/infiniband").join(name), port)
}

fn in_folder(folder: &Path, port: u8) -> Vec<(C, u64)> {
    let value = |file: &&str| {
        let file = folder.join(file.replace("{}", &port.to_string()));
        std::fs::read_to_string(file).ok()?.trim().parse().ok()
    };
    FILES
        .iter()
        .filter_map(|(counter, files)| Some((*counter, files.iter().find_map(value)?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_file_that_there_is_counts() {
        let folder =
            std::env::temp_dir().join(format!("dat-verbs-counters-{}", std::process::id()));
        for (file, text) in [
            ("ports/2/counters/port_rcv_errors", "7\n"),
            ("ports/2/hw_counters/out_of_seq_request", "4\n"),
            ("ports/1/hw_counters/rcvd_seq_err", "5\n"),
            ("diag_counters/sq_num_tree", "1\n"),
            ("ports/2/hw_counters/retry_exceeded_err", "2\n"),
            ("diag_counters/sq_num_rae", "no number\n"),
        ] {
            let file = folder.join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        let seen = in_folder(&folder, 2);
        std::fs::remove_dir_all(&folder).unwrap();
        let expected = [
            (C::LnkErrRcv, 7),
            (C::DiagErrRqOos, 4),
            (C::DiagErrSqTree, 1),
        ];
        assert_eq!(seen, expected);
    }
}
