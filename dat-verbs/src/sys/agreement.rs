//! Compares the declarations of this module with those that `rdma-sys` generates from the installed headers.

use std::io::Write as _;
use std::mem::{align_of, offset_of, size_of};
use std::process::{Command, Stdio};

use super::functions::{Ibverbs, Rdmacm};
use super::*;

/// Compares a structure: its size and alignment, and the offset and the size of each member. A member that either side
/// has and the list lacks does not compile.
macro_rules! same {
    ($($ours:ident $(as $theirs:ident)? { $($member:ident $(as $other:ident)?),* })*) => {
        $(one_same!([$ours] [$($theirs)? $ours] $([$member] [$($other)? $member])*);)*
    };
}

macro_rules! one_same {
    ([$ours:ident] [$theirs:ident $($_:ident)?] $([$member:ident] [$other:ident $($__:ident)?])*) => {{
        let _all = |ours: $ours, theirs: rdma_sys::$theirs| {
            let $ours { $($member: _),* } = ours;
            let rdma_sys::$theirs { $($other: _),* } = theirs;
        };
        same_size!($ours, $theirs);
        $(
            assert_eq!(
                offset_of!($ours, $member),
                offset_of!(rdma_sys::$theirs, $other),
                "offset of {}.{}", stringify!($ours), stringify!($member),
            );
            assert_eq!(
                member_size(|x: &$ours| &raw const x.$member),
                member_size(|x: &rdma_sys::$theirs| &raw const x.$other),
                "size of {}.{}", stringify!($ours), stringify!($member),
            );
        )*
    }};
}

macro_rules! same_size {
    ($ours:ident, $theirs:ident) => {
        assert_eq!(
            size_of::<$ours>(),
            size_of::<rdma_sys::$theirs>(),
            "size of {}",
            stringify!($ours)
        );
        assert_eq!(
            align_of::<$ours>(),
            align_of::<rdma_sys::$theirs>(),
            "alignment of {}",
            stringify!($ours)
        );
    };
}

fn member_size<T, M>(_: fn(&T) -> *const M) -> usize {
    size_of::<M>()
}

#[test]
fn structures_agree_in_size_alignment_and_members() {
    same! {
        ibv_gid_global as ibv_gid_global_t { subnet_prefix, interface_id }
        ibv_global_route { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        ibv_ah_attr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        ibv_device { _ops, node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        ibv_device_attr {
            fw_ver, node_guid, sys_image_guid, max_mr_size, page_size_cap, vendor_id, vendor_part_id, hw_ver, max_qp,
            max_qp_wr, device_cap_flags, max_sge, max_sge_rd, max_cq, max_cqe, max_mr, max_pd, max_qp_rd_atom,
            max_ee_rd_atom, max_res_rd_atom, max_qp_init_rd_atom, max_ee_init_rd_atom, atomic_cap, max_ee, max_rdd,
            max_mw, max_raw_ipv6_qp, max_raw_ethy_qp, max_mcast_grp, max_mcast_qp_attach, max_total_mcast_qp_attach,
            max_ah, max_fmr, max_map_per_fmr, max_srq, max_srq_wr, max_srq_sge, max_pkeys, local_ca_ack_delay,
            phys_port_cnt
        }
        ibv_port_attr {
            state, max_mtu, active_mtu, gid_tbl_len, port_cap_flags, max_msg_sz, bad_pkey_cntr, qkey_viol_cntr,
            pkey_tbl_len, lid, sm_lid, lmc, max_vl_num, sm_sl, subnet_timeout, init_type_reply, active_width,
            active_speed, phys_state, link_layer, flags, port_cap_flags2
        }
        ibv_context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        ibv_context_ops {
            _compat_query_device, _compat_query_port, _compat_alloc_pd, _compat_dealloc_pd, _compat_reg_mr,
            _compat_rereg_mr, _compat_dereg_mr, alloc_mw, bind_mw, dealloc_mw, _compat_create_cq, poll_cq,
            req_notify_cq, _compat_cq_event, _compat_resize_cq, _compat_destroy_cq, _compat_create_srq,
            _compat_modify_srq, _compat_query_srq, _compat_destroy_srq, post_srq_recv, _compat_create_qp,
            _compat_query_qp, _compat_modify_qp, _compat_destroy_qp, post_send, post_recv, _compat_create_ah,
            _compat_destroy_ah, _compat_attach_mcast, _compat_detach_mcast, _compat_async_event
        }
        ibv_comp_channel { context, fd, refcnt }
        ibv_cq {
            context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed, async_events_completed
        }
        ibv_pd { context, handle }
        ibv_ah { context, pd, handle }
        ibv_mr { context, pd, addr, length, handle, lkey, rkey }
        ibv_mw { context, pd, rkey, handle, type_ }
        ibv_mw_bind_info { mr, addr, length, mw_access_flags }
        ibv_mw_bind { wr_id, send_flags, bind_info }
        ibv_srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        ibv_srq_attr { max_wr, max_sge, srq_limit }
        ibv_srq_init_attr { srq_context, attr }
        ibv_qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond,
            events_completed
        }
        ibv_qp_cap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        ibv_qp_init_attr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        ibv_qp_attr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, alt_pkey_index, en_sqd_async_notify, sq_draining, max_rd_atomic,
            max_dest_rd_atomic, min_rnr_timer, port_num, timeout, retry_cnt, rnr_retry, alt_port_num, alt_timeout,
            rate_limit
        }
        ibv_sge { addr, length, lkey }
        ibv_recv_wr { wr_id, next, sg_list, num_sge }
        RdmaWr as rdma_t { remote_addr, rkey }
        AtomicWr as atomic_t { remote_addr, compare_add, swap, rkey }
        DatagramWr as ud_t { ah, remote_qpn, remote_qkey }
        BindWr as bind_mw_t { mw, rkey, bind_info }
        TsoWr as tso_t { hdr, hdr_sz, mss }
        ibv_send_wr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_or_rkey as imm_data_invalidated_rkey_union, wr,
            remote_srqn as qp_type, bind_or_tso as bind_mw_tso_union
        }
        Wc as ibv_wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_or_rkey as imm_data_invalidated_rkey_union, qp_num,
            src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits
        }
        AsyncEvent as ibv_async_event { element, number as event_type }
        rdma_event_channel { fd }
        rdma_ib_addr { sgid, dgid, pkey }
        rdma_addr { src as src_addr_union, dst as dst_addr_union, ibaddr as addr }
        rdma_route { addr, path_rec, num_paths }
        rdma_cm_id {
            verbs, channel, context, qp, route, ps, port_num, event, send_cq_channel, send_cq, recv_cq_channel,
            recv_cq, srq, pd, qp_type
        }
        rdma_conn_param {
            private_data, private_data_len, responder_resources, initiator_depth, flow_control, retry_count,
            rnr_retry_count, srq, qp_num
        }
        rdma_ud_param { private_data, private_data_len, ah_attr, qp_num, qkey }
        rdma_cm_event { id, listen_id, event, status, param }
    }
    same_size!(ibv_gid, ibv_gid);
    same_size!(RemoteWr, wr_t);
    same_size!(BindOrTsoWr, bind_mw_tso_union_t);
    same_size!(EventParam, param_t);
}

/// Each type with a layout is in the list above.
#[test]
fn no_type_is_left_out() {
    let declared = [
        include_str!("verbs.rs"),
        include_str!("cma.rs"),
        include_str!("wc.rs"),
    ];
    let this = include_str!("agreement.rs");
    for line in declared.iter().flat_map(|text| text.lines()) {
        let mut words = line.split_whitespace().skip_while(|w| w.starts_with("pub"));
        let (kind, name) = (words.next(), words.next());
        if let (Some("struct" | "union"), Some(name)) = (kind, name) {
            let compared = [
                format!(" {name} {{"),
                format!(" {name} as "),
                format!("same_size!({name},"),
            ];
            assert!(
                compared.iter().any(|text| this.contains(text)),
                "{name} is not compared"
            );
        }
    }
}

#[test]
fn functions_agree_in_the_sizes_of_arguments_and_results() {
    for signatures in Ibverbs::signatures()
        .into_iter()
        .chain(Rdmacm::signatures())
    {
        assert_eq!(signatures.ours, signatures.theirs, "{}", signatures.name);
    }
}

/// Numbers that are macros or members of unnamed enumerations, which rdma-sys leaves out: the C compiler compares them.
const IN_C: &[(&str, i64)] = &[
    ("RDMA_OPTION_ID", option::LEVEL_ID as i64),
    ("RDMA_OPTION_ID_TOS", option::ID_TOS as i64),
    ("RDMA_OPTION_ID_REUSEADDR", option::ID_REUSEADDR as i64),
    ("RDMA_UDP_QKEY", DATAGRAM_QKEY as i64),
    ("IBV_LINK_LAYER_INFINIBAND", LINK_LAYER_INFINIBAND as i64),
];

#[test]
fn numbers_that_only_c_has_agree() {
    let mut text = String::from("#include <infiniband/verbs.h>\n#include <rdma/rdma_cma.h>\n");
    for (name, number) in IN_C {
        text += &format!("_Static_assert({name} == {number}, \"{name}\");\n");
    }
    let mut cc = Command::new("cc")
        .args(["-fsyntax-only", "-x", "c", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("cc starts");
    let mut input = cc.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("cc reads");
    drop(input);
    assert!(cc.wait().expect("cc ends").success(), "{text}");
}

/// Compares pairs of numbers, and returns how many.
macro_rules! same_numbers {
    ($($module:ident { $($name:ident $(as $enumeration:ident::$other:ident)?),* })*) => {
        [$($(number_pair!([$module $name] $($enumeration $other)?),)*)*]
    };
}

macro_rules! number_pair {
    ([$module:ident $name:ident]) => {
        (
            stringify!($name),
            i64::from($module::$name),
            i64::from(rdma_sys::$module::$name),
        )
    };
    ([$module:ident $name:ident] ibv_event_type $other:ident) => {
        (
            stringify!($name),
            i64::from($module::$name),
            rdma_sys::ibv_event_type::$other as i64,
        )
    };
    ([$module:ident $name:ident] $enumeration:ident $other:ident) => {
        (
            stringify!($name),
            i64::from($module::$name),
            i64::from(rdma_sys::$enumeration::$other.0),
        )
    };
}

#[test]
fn numbers_agree() {
    let pairs = same_numbers! {
        ibv_atomic_cap {
            IBV_ATOMIC_NONE,
            IBV_ATOMIC_HCA
        }
        ibv_port_state {
            IBV_PORT_ACTIVE
        }
        ibv_wc_status {
            IBV_WC_SUCCESS,
            IBV_WC_LOC_LEN_ERR,
            IBV_WC_LOC_PROT_ERR,
            IBV_WC_WR_FLUSH_ERR,
            IBV_WC_MW_BIND_ERR,
            IBV_WC_BAD_RESP_ERR,
            IBV_WC_LOC_ACCESS_ERR,
            IBV_WC_REM_INV_REQ_ERR,
            IBV_WC_REM_ACCESS_ERR,
            IBV_WC_REM_OP_ERR,
            IBV_WC_RETRY_EXC_ERR,
            IBV_WC_RNR_RETRY_EXC_ERR,
            IBV_WC_REM_INV_RD_REQ_ERR,
            IBV_WC_REM_ABORT_ERR,
            IBV_WC_RESP_TIMEOUT_ERR
        }
        ibv_wc_opcode {
            IBV_WC_RDMA_WRITE,
            IBV_WC_RDMA_READ,
            IBV_WC_COMP_SWAP,
            IBV_WC_FETCH_ADD,
            IBV_WC_BIND_MW,
            IBV_WC_LOCAL_INV,
            IBV_WC_RECV,
            IBV_WC_RECV_RDMA_WITH_IMM
        }
        ibv_wr_opcode {
            IBV_WR_RDMA_WRITE,
            IBV_WR_RDMA_WRITE_WITH_IMM,
            IBV_WR_SEND,
            IBV_WR_SEND_WITH_IMM,
            IBV_WR_RDMA_READ,
            IBV_WR_ATOMIC_CMP_AND_SWP,
            IBV_WR_ATOMIC_FETCH_AND_ADD,
            IBV_WR_BIND_MW,
            IBV_WR_SEND_WITH_INV
        }
        ibv_qp_type {
            IBV_QPT_RC,
            IBV_QPT_UD
        }
        ibv_qp_state {
            IBV_QPS_RESET,
            IBV_QPS_INIT,
            IBV_QPS_RTR,
            IBV_QPS_RTS,
            IBV_QPS_ERR
        }
        ibv_mw_type {
            IBV_MW_TYPE_1,
            IBV_MW_TYPE_2
        }
        rdma_cm_event_type {
            RDMA_CM_EVENT_ADDR_RESOLVED,
            RDMA_CM_EVENT_ADDR_ERROR,
            RDMA_CM_EVENT_ROUTE_RESOLVED,
            RDMA_CM_EVENT_ROUTE_ERROR,
            RDMA_CM_EVENT_CONNECT_REQUEST,
            RDMA_CM_EVENT_CONNECT_RESPONSE,
            RDMA_CM_EVENT_CONNECT_ERROR,
            RDMA_CM_EVENT_UNREACHABLE,
            RDMA_CM_EVENT_REJECTED,
            RDMA_CM_EVENT_ESTABLISHED,
            RDMA_CM_EVENT_DISCONNECTED,
            RDMA_CM_EVENT_DEVICE_REMOVAL,
            RDMA_CM_EVENT_TIMEWAIT_EXIT
        }
        rdma_port_space {
            RDMA_PS_TCP,
            RDMA_PS_UDP
        }
        access {
            LOCAL_WRITE as ibv_access_flags::IBV_ACCESS_LOCAL_WRITE,
            REMOTE_WRITE as ibv_access_flags::IBV_ACCESS_REMOTE_WRITE,
            REMOTE_READ as ibv_access_flags::IBV_ACCESS_REMOTE_READ,
            REMOTE_ATOMIC as ibv_access_flags::IBV_ACCESS_REMOTE_ATOMIC,
            MW_BIND as ibv_access_flags::IBV_ACCESS_MW_BIND
        }
        send {
            FENCE as ibv_send_flags::IBV_SEND_FENCE,
            SIGNALED as ibv_send_flags::IBV_SEND_SIGNALED,
            SOLICITED as ibv_send_flags::IBV_SEND_SOLICITED,
            INLINE as ibv_send_flags::IBV_SEND_INLINE
        }
        qp_mask {
            STATE as ibv_qp_attr_mask::IBV_QP_STATE,
            ACCESS_FLAGS as ibv_qp_attr_mask::IBV_QP_ACCESS_FLAGS,
            PKEY_INDEX as ibv_qp_attr_mask::IBV_QP_PKEY_INDEX,
            PORT as ibv_qp_attr_mask::IBV_QP_PORT,
            QKEY as ibv_qp_attr_mask::IBV_QP_QKEY,
            AV as ibv_qp_attr_mask::IBV_QP_AV,
            PATH_MTU as ibv_qp_attr_mask::IBV_QP_PATH_MTU,
            TIMEOUT as ibv_qp_attr_mask::IBV_QP_TIMEOUT,
            RETRY_CNT as ibv_qp_attr_mask::IBV_QP_RETRY_CNT,
            RNR_RETRY as ibv_qp_attr_mask::IBV_QP_RNR_RETRY,
            RQ_PSN as ibv_qp_attr_mask::IBV_QP_RQ_PSN,
            MAX_RD_ATOMIC as ibv_qp_attr_mask::IBV_QP_MAX_QP_RD_ATOMIC,
            MIN_RNR_TIMER as ibv_qp_attr_mask::IBV_QP_MIN_RNR_TIMER,
            SQ_PSN as ibv_qp_attr_mask::IBV_QP_SQ_PSN,
            MAX_DEST_RD_ATOMIC as ibv_qp_attr_mask::IBV_QP_MAX_DEST_RD_ATOMIC,
            DEST_QPN as ibv_qp_attr_mask::IBV_QP_DEST_QPN
        }
        wc_flag {
            WITH_IMM as ibv_wc_flags::IBV_WC_WITH_IMM,
            WITH_INV as ibv_wc_flags::IBV_WC_WITH_INV
        }
        device_cap {
            MEM_WINDOW as ibv_device_cap_flags::IBV_DEVICE_MEM_WINDOW
        }
        srq_mask {
            MAX_WR as ibv_srq_attr_mask::IBV_SRQ_MAX_WR,
            LIMIT as ibv_srq_attr_mask::IBV_SRQ_LIMIT
        }
        event {
            CQ_ERR as ibv_event_type::IBV_EVENT_CQ_ERR,
            QP_FATAL as ibv_event_type::IBV_EVENT_QP_FATAL,
            QP_REQ_ERR as ibv_event_type::IBV_EVENT_QP_REQ_ERR,
            QP_ACCESS_ERR as ibv_event_type::IBV_EVENT_QP_ACCESS_ERR,
            COMM_EST as ibv_event_type::IBV_EVENT_COMM_EST,
            DEVICE_FATAL as ibv_event_type::IBV_EVENT_DEVICE_FATAL,
            SRQ_ERR as ibv_event_type::IBV_EVENT_SRQ_ERR,
            SRQ_LIMIT_REACHED as ibv_event_type::IBV_EVENT_SRQ_LIMIT_REACHED,
            QP_LAST_WQE_REACHED as ibv_event_type::IBV_EVENT_QP_LAST_WQE_REACHED
        }
    };
    for (name, ours, theirs) in pairs {
        assert_eq!(ours, theirs, "{name}");
    }
    // Two numbers are the kernel's and have no name in the headers.
    let declared = include_str!("constants.rs").matches(" const ").count();
    assert_eq!(
        pairs.len() + IN_C.len() + 2,
        declared,
        "a number is not compared"
    );
}
