//! Connections that tests of the connection manager attack: a foreign client's, and whether they still carry messages.

use std::time::Duration;

use super::memory::ALL;
use super::pair::{Pair, Side};
use super::stranger::{self, FOREIGN};
use softrxe_proto::wire::cm::{CmMessage, Rep};
use softrxe_proto::{
    Accept, Agreement, CmEvent, CmEventKind, CmId, Op, Path, Psn, Qpn, SendRequest, Status,
    service_id,
};

/// The service that the second side has.
pub const SERVICE: u64 = service_id::tcp(4000);

/// Sends a message from the first side to the other one and back.
#[track_caller]
pub fn talk(pair: &mut Pair, qpns: [Qpn; 2]) {
    let from = pair.sides[0].memory.register(b"data".to_vec(), ALL);
    let to = pair.sides[1].memory.register(vec![0; 4], ALL);
    for (side, there) in [(0, 1), (1, 0)] {
        pair.receive(there, qpns[there], 1, &[if there == 1 { to } else { from }]);
        pair.post(
            side,
            qpns[side],
            &SendRequest::new(2, Op::Send, &[if side == 0 { from } else { to }]),
        );
        pair.run_until(Duration::from_secs(5), |p| {
            !p.sides[side].completions.is_empty() && !p.sides[there].completions.is_empty()
        });
        for side in &mut pair.sides {
            let done: Vec<_> = side.completions.drain(..).map(|c| c.status).collect();
            assert_eq!(done, [Status::Success]);
        }
    }
    assert_eq!(pair.sides[1].memory.bytes(&to), b"data");
}

/// Returns the ids of the requests that were raised; there must be no other event.
#[track_caller]
pub fn requests(side: &mut Side) -> Vec<CmId> {
    let events = side.cm_events();
    let request = |event: CmEvent| {
        assert!(matches!(event.kind, CmEventKind::Request(_)), "{event:?}");
        event.id
    };
    events.into_iter().map(request).collect()
}

/// Connects the first side as rdma_rxe does: with another GUID, and from any port.
pub fn foreign_client(pair: &mut Pair, comm_id: u32) -> ([Qpn; 2], CmId) {
    let [from, to] = [0, 1].map(|i: usize| pair.sides[i].address);
    let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
    let _ = pair.sides[1].engine.listen(SERVICE);
    let req = stranger::req(from.ip(), to.ip(), SERVICE, (FOREIGN, comm_id, qpns[0]));
    let now = pair.now;
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, from, 5, &CmMessage::Req(req));
    pair.run_until(Duration::from_millis(1), |_| false);
    let id = requests(&mut pair.sides[1])[0];
    let engine = &mut pair.sides[1].engine;
    engine.accept(now, id, qpns[1], &Accept::new(&[])).unwrap();
    let answers = stranger::sent(engine, now);
    let rep: Vec<Rep> = answers
        .iter()
        .filter_map(|(_, bytes)| match stranger::message(bytes)? {
            CmMessage::Rep(rep) => Some(rep),
            _ => None,
        })
        .collect();
    let path = Path {
        agreement: Agreement::FOREIGN,
        ..pair.path(1, rep[0].qpn, [rep[0].starting_psn, Psn::new(100)])
    };
    pair.sides[0].engine.connect_qp(qpns[0], &path).unwrap();
    let rtu = stranger::rtu(comm_id, id.number());
    let engine = &mut pair.sides[1].engine;
    stranger::inject(engine, now, from, 5, &rtu);
    pair.run_until(Duration::from_millis(1), |_| false);
    let up = pair.sides[1].cm_event();
    assert!(matches!(up.kind, CmEventKind::Established(_)), "{up:?}");
    (qpns, id)
}
