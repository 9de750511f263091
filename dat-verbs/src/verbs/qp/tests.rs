use dat_core::iov::RmrTriplet;
use dat_core::transport::WrId;

use super::*;
use crate::cm::rdma::id::{CmId, PortSpace};
use crate::fake::{self, FakeContext};
use crate::verbs::lmr::Lmr;

fn queue_pair(adapter: &Arc<crate::adapter::Adapter>) -> Qp {
    let pd = Arc::new(Pd::new(adapter).unwrap());
    let cq = Arc::new(Cq::new(adapter, 16, Token::default()).unwrap());
    let caps = QpCaps {
        max_request: 4,
        max_request_iov: 1,
        ..QpCaps::default()
    };
    Qp::new(&pd, &caps, &cq, &cq, None, Token::default()).unwrap()
}

/// The driver library copies inline data from the address of its segment. That of a zero-based region is an offset, so
/// the process would end by SIGSEGV.
#[test]
fn data_of_a_zero_based_region_is_not_inline() {
    let adapter = fake::adapter("inline=64");
    let qp = queue_pair(&adapter);
    let is_inline = || {
        let request = Request {
            id: WrId(1),
            op: Op::Send,
            iov: &[LmrTriplet {
                segment_length: 8,
                ..LmrTriplet::default()
            }],
            length: 8,
            signaled: true,
            solicited: false,
            fence: false,
        };
        qp.post_send(&request).unwrap();
        let flags = FakeContext::of(&adapter).send_flags.load(Ordering::Relaxed);
        flags & send::INLINE != 0
    };
    assert!(is_inline());
    let memory = [0_u8; 64];
    let address = memory.as_ptr().addr();
    let region = Lmr::register(&qp.pd, address, 64, &[0], false).unwrap();
    assert!(is_inline());
    let zero_based = Lmr::register(&qp.pd, address, 64, &[0], true).unwrap();
    assert!(!is_inline());
    drop((region, zero_based));
}

#[test]
fn a_connection_uses_the_partition_of_its_path() {
    let adapter = fake::adapter("");
    let qp = queue_pair(&adapter);
    let partition = || FakeContext::of(&adapter).partition.load(Ordering::Relaxed);
    assert_eq!(partition(), 0);
    let id = CmId::new(&adapter.shared.channel, 1, PortSpace::Connection).unwrap();
    let limits = PathLimits {
        reads_in: 1,
        reads_out: 1,
    };
    let attr_for =
        |attr: &mut sys::ibv_qp_attr| Ok(id.qp_attr(attr).expect("the fake always answers"));
    qp.to_rts(limits, attr_for).unwrap();
    assert_eq!(partition(), fake::PARTITION);
}

/// rdma_rxe leaves such a request in the queue: it never completes, and nothing behind it.
#[test]
fn reads_are_refused_where_the_connection_has_none() {
    let adapter = fake::adapter("");
    let id = CmId::new(&adapter.shared.channel, 1, PortSpace::Connection).unwrap();
    let attr_for =
        |attr: &mut sys::ibv_qp_attr| Ok(id.qp_attr(attr).expect("the fake always answers"));
    let remote = RmrTriplet::default();
    for reads_out in [0, 1] {
        let qp = queue_pair(&adapter);
        let limits = PathLimits {
            reads_in: 1,
            reads_out,
        };
        qp.to_rts(limits, attr_for).unwrap();
        let post = |op| {
            qp.post_send(&Request {
                id: WrId(1),
                op,
                iov: &[],
                length: 0,
                signaled: true,
                solicited: false,
                fence: false,
            })
        };
        let refused = (reads_out == 0).then_some(Error::of(Kind::NotImplemented));
        assert_eq!(post(Op::RdmaRead(remote)).err(), refused);
        assert_eq!(post(Op::RdmaWrite(remote)), Ok(()));
        assert_eq!(post(Op::Send), Ok(()));
    }
}
