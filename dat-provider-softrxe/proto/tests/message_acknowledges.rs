//! A message that acknowledges a request: the request completes first, as with adapters.

mod common;

use std::time::Duration;

use common::channel::{self, ID};
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::wire::Bth;
use softrxe_proto::{
    CompletedOp, Completion, NearOut, Op, PostError, Psn, Qpn, RecordPart, SendRequest, Sge, Status,
};

/// Side 0 has sent a message, and its answer, which acknowledges it, has arrived at the end of `new`.
struct Bench {
    pair: Pair,
    qpns: [Qpn; 2],
    from: Sge,
}

impl Bench {
    fn new(depth: usize) -> Self {
        let mut pair = Pair::new("late_acknowledgement");
        pair.open_channels(1024);
        let qpns = [0, 1].map(|side: usize| {
            let side = &mut pair.sides[side];
            let mut init = side.init();
            init.send_depth = depth;
            side.engine.create_qp(&init).unwrap()
        });
        pair.join(qpns, [100, 5000].map(Psn::new));
        let from = pair.sides[0].memory.register(vec![1; 64], ALL);
        let mut bench = Self { pair, qpns, from };
        let answer = bench.pair.sides[1].memory.register(vec![2; 64], ALL);
        for (side, qpn) in qpns.into_iter().enumerate() {
            let to = bench.pair.sides[side].memory.register(vec![0; 64], ALL);
            bench.pair.receive(side, qpn, 7, &[to]);
        }
        bench.post(0, 1, from).unwrap();
        bench.post(1, 2, answer).unwrap();
        bench
    }

    /// Posts a message that makes its record at once, and passes that to the other side. Returns true if it did.
    fn post(&mut self, side: usize, id: u64, sge: Sge) -> Result<bool, PostError> {
        let (now, qpn) = (self.pair.now, self.qpns[side]);
        let memory = self.pair.sides[side].memory.clone();
        memory.lend_record(&self.pair.sides[1 - side].memory, channel::ROOM);
        let engine = &mut self.pair.sides[side].engine;
        let near = engine.near_for_post(qpn, 64).expect("a channel");
        let mut out = NearOut::EMPTY;
        let sges = [sge];
        let request = SendRequest::new(id, Op::Send, &sges);
        let sent = engine.post_near(now, near, &request, channel::ROOM, |made| out = *made)?;
        if sent {
            self.deliver(1 - side, &out);
        }
        Ok(sent)
    }

    fn deliver(&mut self, to: usize, out: &NearOut) {
        let payload = RecordPart {
            at: out.payload_at,
            length: out.payload_length,
            lent: false,
        };
        let memory = self.pair.sides[1 - to].memory.clone();
        let peer = &mut self.pair.sides[to];
        peer.memory.lend_record(&memory, channel::ROOM);
        let now = self.pair.now;
        peer.engine.handle_near(now, ID, out.header(), payload);
    }

    fn take(&mut self) -> Vec<(CompletedOp, Status)> {
        let side = &mut self.pair.sides[0];
        let mut all = [Completion::default(); 8];
        let count = side.engine.poll_cq(side.cq, &mut all);
        let all = all[..count].iter();
        all.map(|done| (done.op, done.status)).collect()
    }
}

const RECEIVED: (CompletedOp, Status) = (CompletedOp::Receive, Status::Success);
const SENT: (CompletedOp, Status) = (CompletedOp::Send, Status::Success);

#[test]
fn the_request_that_a_message_acknowledges_completes_before_it() {
    assert_eq!(Bench::new(8).take(), [SENT, RECEIVED]);
}

#[test]
fn a_full_queue_has_room_once_the_message_arrived() {
    let mut bench = Bench::new(1);
    let from = bench.from;
    assert!(bench.post(0, 3, from).is_ok());
    assert_eq!(bench.take(), [SENT, RECEIVED]);
    let (now, qpn) = (bench.pair.now, bench.qpns[0]);
    let (engine, sges) = (&mut bench.pair.sides[0].engine, [from]);
    let posted = engine.post_send(now, qpn, &SendRequest::new(4, Op::Send, &sges));
    assert_eq!(posted, Err(PostError::Full(1)));
}

#[test]
fn the_timer_of_a_request_begins_with_its_post() {
    let mut bench = Bench::new(8);
    let timeout = bench.pair.sides[0].engine.config().ack_timeout;
    // The answer was there for nearly as long as a request may take.
    bench.pair.now += timeout - Duration::from_millis(1);
    let from = bench.from;
    assert!(bench.post(0, 3, from).unwrap());
    assert_eq!(bench.take(), [SENT, RECEIVED]);
    bench.pair.now += timeout - Duration::from_millis(1);
    let (now, engine) = (bench.pair.now, &mut bench.pair.sides[0].engine);
    engine.handle_timeout(now);
    assert_eq!(engine.counters().timeouts, 0);
    engine.handle_timeout(now + Duration::from_millis(2));
    assert_eq!(engine.counters().timeouts, 1);
}

/// Side 0 sends a message over the wire, and side 1 its answer. Returns what side 0 takes.
fn answer_over_wire(own: bool) -> Vec<CompletedOp> {
    let mut pair = Pair::new("answer_over_wire");
    pair.own = own;
    let qpns = pair.connected();
    for (side, qpn) in qpns.into_iter().enumerate() {
        let to = pair.sides[side].memory.register(vec![0; 64], ALL);
        pair.receive(side, qpn, 7, &[to]);
    }
    for (side, qpn) in qpns.into_iter().enumerate() {
        let from = pair.sides[side].memory.register(vec![1; 64], ALL);
        pair.post(side, qpn, &SendRequest::new(1, Op::Send, &[from]));
        pair.hand_over(side);
    }
    if !own {
        // After the acknowledgement.
        pair.hand_over(1);
    }
    let mut all = [Completion::default(); 4];
    let cq = pair.sides[0].cq;
    let count = pair.sides[0].engine.poll_cq(cq, &mut all);
    all[..count].iter().map(|done| done.op).collect()
}

#[test]
fn over_the_wire_the_request_completes_first_too() {
    for own in [true, false] {
        let expected = [CompletedOp::Send, CompletedOp::Receive];
        assert_eq!(answer_over_wire(own), expected, "{own}");
    }
}

/// A SEND Only of `payload` whose BTH has the bit that announces an acknowledgement.
fn announcing(destination: Qpn, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; Bth::LEN];
    Bth::new(0x04, destination, Psn::new(100)).emit(&mut bytes);
    bytes[8] |= 0x40;
    bytes.extend(payload);
    bytes
}

#[test]
fn only_an_engine_that_agreed_to_it_acknowledges_behind_the_headers() {
    for (own, payload, length) in [
        (true, &[][..], None),
        (true, &[0, 0, 0, 9], Some(0)),
        (true, &[0, 0, 0, 9, 1, 2, 3, 4], Some(4)),
        (false, &[0, 0, 0, 9], Some(4)),
    ] {
        let mut pair = Pair::new("announcing");
        pair.own = own;
        let [_, b] = pair.connected();
        let to = pair.sides[1].memory.register(vec![0; 64], ALL);
        pair.receive(1, b, 7, &[to]);
        pair.inject(announcing(b, payload));
        let mut all = [Completion::default(); 4];
        let cq = pair.sides[1].cq;
        let engine = &mut pair.sides[1].engine;
        let count = engine.poll_cq(cq, &mut all);
        let got = all[..count].first().map(|done| done.length);
        assert_eq!(got, length, "{own} {payload:?}");
        let malformed = u64::from(length.is_none());
        assert_eq!(engine.counters().malformed, malformed);
    }
}
