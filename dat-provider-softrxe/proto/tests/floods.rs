//! The connection manager under floods: none fills a table, piles up timers, or makes the engine send more than it received.

mod common;

use std::net::SocketAddr;
use std::time::Duration;

use common::attacked::{SERVICE, foreign_client, talk};
use common::memory::ALL;
use common::pair::Pair;
use common::stranger::{self, FOREIGN};
use softrxe_proto::wire::cm::CmMessage;
use softrxe_proto::{
    Accept, CmError, CmEvent, CmEventKind, CmId, Connect, Event, Meta, Op, Qpn, RejectReason,
    SendRequest, SidrReply, service_id,
};

const LONG: Duration = Duration::from_secs(200);

/// A flood of requests to the second side, whose consumer answers none.
struct Flood {
    pair: Pair,
    next: u32,
}

/// Requests that [`small`] engines accept in all, and from one address.
const MOST: usize = 128;
const SHARE: usize = 32;

/// Engines of 256 queue pairs.
fn small(name: &str) -> Pair {
    Pair::with(name, 1, |config| config.qp_bits = 8)
}

impl Flood {
    fn new(name: &str) -> Self {
        let mut pair = small(name);
        pair.sides[1].engine.listen(SERVICE).unwrap();
        pair.sides[1].engine.listen(service_id::udp(4000)).unwrap();
        Self { pair, next: 1 }
    }

    /// Sends another REQ from `source`, with an id and a queue pair of its own.
    fn ask(&mut self, source: SocketAddr) {
        self.next += 1;
        let to = self.pair.sides[1].address.ip();
        let ids = (FOREIGN, self.next, Qpn::new(self.next));
        let req = stranger::req(source.ip(), to, SERVICE, ids);
        self.send(source, &CmMessage::Req(req));
    }

    fn send(&mut self, source: SocketAddr, message: &CmMessage) {
        let engine = &mut self.pair.sides[1].engine;
        stranger::inject(engine, self.pair.now, source, 9, message);
    }

    /// Returns the number of datagrams that the second side sends, and the ids of its events.
    fn answers(&mut self) -> (usize, Vec<CmId>) {
        let now = self.pair.now;
        let engine = &mut self.pair.sides[1].engine;
        let sent = stranger::sent(engine, now).len();
        let mut raised = Vec::new();
        while let Some(event) = engine.poll_event() {
            if let Event::Cm(CmEvent { id, kind, .. }) = event
                && matches!(kind, CmEventKind::Request(_) | CmEventKind::SidrRequest(_))
            {
                raised.push(id);
            }
        }
        (sent, raised)
    }

    /// Answers the only request for a datagram service that arrived.
    #[track_caller]
    fn answers_one(&mut self, number: u32) {
        let (sent, raised) = self.answers();
        assert_eq!((sent, raised.len()), (0, 1), "request {number}");
        let answer = SidrReply {
            status: 0,
            qpn: Qpn::new(2),
            qkey: 3,
            private_data: &[],
        };
        let (engine, now) = (&mut self.pair.sides[1].engine, self.pair.now);
        engine.sidr_reply(now, raised[0], &answer).unwrap();
        assert_eq!(self.answers(), (1, Vec::new()));
    }

    /// Connects the first side while the flood goes on.
    #[track_caller]
    fn an_honest_client_connects(&mut self) {
        let pair = &mut self.pair;
        let qpns = [pair.sides[0].qp(), pair.sides[1].qp()];
        pair.call(qpns[0], SERVICE);
        let honest = pair.sides[0].address.ip();
        let mut asked = None;
        assert!(pair.run_until(LONG, |p| {
            asked = p.sides[1]
                .cm_events()
                .into_iter()
                .find_map(|event| match event.kind {
                    CmEventKind::Request(request) if request.remote.ip() == honest => {
                        Some(event.id)
                    }
                    _ => None,
                });
            asked.is_some()
        }));
        let (now, accept) = (pair.now, Accept::new(&[]));
        let engine = &mut pair.sides[1].engine;
        engine
            .accept(now, asked.unwrap(), qpns[1], &accept)
            .unwrap();
        assert!(pair.run_until(LONG, |p| !p.sides[0].events.is_empty()));
        let kind = pair.sides[0].cm_event().kind;
        assert!(matches!(kind, CmEventKind::Established(_)), "{kind:?}");
        talk(pair, qpns);
    }

    /// Returns the number of timer calls until the second side has no timer.
    fn timers(&mut self) -> usize {
        let engine = &mut self.pair.sides[1].engine;
        let mut count = 0;
        while let Some(at) = engine.poll_timeout() {
            engine.handle_timeout(at);
            count += 1;
        }
        count
    }
}

/// Returns address `n` of thousands.
fn address(n: u32) -> SocketAddr {
    let [_, a, b, c] = (0x0a20_0000 + n).to_be_bytes();
    SocketAddr::new([10, a, b, c].into(), 4791)
}

#[test]
fn requests_of_one_address_leave_room_for_others() {
    let mut flood = Flood::new("abuse_one_source");
    for _ in 0..10 * MOST {
        flood.ask(address(1));
    }
    let (sent, raised) = flood.answers();
    assert_eq!((sent, raised.len()), (0, SHARE));
    flood.an_honest_client_connects();
    let counters = flood.pair.sides[1].engine.counters();
    assert_eq!(counters.requests_ignored, (10 * MOST - SHARE) as u64);
}

#[test]
fn requests_of_many_addresses_leave_room_for_another_one() {
    let mut flood = Flood::new("abuse_many_sources");
    let mut raised = Vec::new();
    for n in 0..10 * MOST as u32 {
        flood.ask(address(n % 100));
        raised.extend(flood.answers().1);
        assert!(flood.pair.sides[1].engine.connections() <= MOST);
    }
    flood.an_honest_client_connects();
    // For a dropped request the consumer's answer is an error.
    let qpn = flood.pair.sides[1].qp();
    let now = flood.pair.now;
    let engine = &mut flood.pair.sides[1].engine;
    let accept = Accept::new(&[]);
    assert_eq!(
        engine.accept(now, raised[0], qpn, &accept),
        Err(CmError::UnknownId(raised[0]))
    );
    assert_eq!(
        engine.reject(now, raised[0], RejectReason::CONSUMER, &[]),
        Err(CmError::UnknownId(raised[0]))
    );
}

/// Every address of a network sends one: the oldest is dropped, so each has some time for an answer.
#[test]
fn requests_from_many_addresses_each_wait_for_some_time() {
    let mut flood = Flood::new("abuse_each_source");
    for n in 0..5 * MOST as u32 {
        flood.ask(address(n));
    }
    let raised = flood.answers().1;
    let honest = raised.last().copied().unwrap();
    for n in 0..MOST as u32 - 1 {
        flood.ask(address(10_000 + n));
    }
    assert!(flood.pair.sides[1].engine.connections() <= MOST);
    let qpn = flood.pair.sides[1].qp();
    let now = flood.pair.now;
    let engine = &mut flood.pair.sides[1].engine;
    engine.accept(now, honest, qpn, &Accept::new(&[])).unwrap();
}

/// Processes of one address share its places.
#[test]
fn requests_of_one_process_leave_room_for_another_one_of_its_address() {
    let mut flood = Flood::new("abuse_process");
    let mut source = flood.pair.sides[0].address;
    source.set_port(40_000);
    for _ in 0..10 * MOST {
        flood.ask(source);
    }
    flood.answers();
    flood.an_honest_client_connects();
}

#[test]
fn a_request_that_is_not_repeated_expires() {
    let mut flood = Flood::new("abuse_expiry");
    for n in 0..MOST as u32 / 2 {
        flood.ask(address(n % 10));
    }
    let raised = flood.answers().1;
    let sidr = stranger::sidr_req(
        address(1).ip(),
        flood.pair.sides[1].address.ip(),
        service_id::udp(4000),
        1,
    );
    flood.send(address(1), &CmMessage::SidrReq(sidr));
    assert_eq!(flood.answers().1.len(), 1);
    assert!(flood.timers() < 10, "one timer for all");
    let engine = &mut flood.pair.sides[1].engine;
    assert_eq!(engine.connections(), 0);
    assert_eq!(engine.counters().requests_expired, raised.len() as u64 + 1);
    let begin = flood.pair.now;
    flood.pair.now = begin + Duration::from_secs(40);
    flood.an_honest_client_connects();
}

/// The consumer refuses each request at once.
#[test]
fn requests_that_are_refused_leave_room_for_others() {
    let mut flood = Flood::new("abuse_refused");
    for n in 0..20 * MOST as u32 {
        flood.ask(address(n % 3));
        let raised = flood.answers().1;
        let now = flood.pair.now;
        let engine = &mut flood.pair.sides[1].engine;
        for id in raised {
            engine.reject(now, id, RejectReason::CONSUMER, &[]).unwrap();
        }
        assert!(engine.connections() <= MOST);
    }
    flood.answers();
    flood.an_honest_client_connects();
    assert!(flood.timers() < 100);
}

#[test]
fn resolutions_of_datagram_services_leave_room_for_others() {
    let mut flood = Flood::new("abuse_sidr");
    let to = flood.pair.sides[1].address.ip();
    let service = service_id::udp(4000);
    for id in 0..10 * MOST as u32 {
        let sidr = stranger::sidr_req(address(1).ip(), to, service, id);
        flood.send(address(1), &CmMessage::SidrReq(sidr));
    }
    assert_eq!(flood.answers().1.len(), SHARE);
    let sidr = stranger::sidr_req(address(2).ip(), to, service, 1);
    flood.send(address(2), &CmMessage::SidrReq(sidr));
    assert_eq!(flood.answers().1.len(), 1);
    flood.an_honest_client_connects();
}

/// A program that resolves services one after the other.
#[test]
fn answered_resolutions_make_room_for_the_next_ones_of_their_address() {
    let mut flood = Flood::new("abuse_answered");
    let to = flood.pair.sides[1].address.ip();
    let ask = |id| {
        let sidr = stranger::sidr_req(address(1).ip(), to, service_id::udp(4000), id);
        CmMessage::SidrReq(sidr)
    };
    for id in 0..10 * MOST as u32 {
        flood.send(address(1), &ask(id));
        flood.answers_one(id);
    }
    // The answer is kept for a repetition, and not for another request with the same id.
    let last = ask(10 * MOST as u32 - 1);
    flood.send(address(1), &last);
    assert_eq!(flood.answers(), (1, Vec::new()));
    let (engine, now) = (&mut flood.pair.sides[1].engine, flood.pair.now);
    stranger::inject(engine, now, address(1), 10, &last);
    flood.answers_one(0);
    flood.an_honest_client_connects();
}

/// Processes of one address choose their ids independently, and a peer may use the id of a request that it gave up.
#[test]
fn a_resolution_with_the_id_of_an_unanswered_one_is_a_request_of_its_own() {
    let mut flood = Flood::new("abuse_same_id");
    let to = flood.pair.sides[1].address.ip();
    let sidr = stranger::sidr_req(address(1).ip(), to, service_id::udp(4000), 1);
    let ask = CmMessage::SidrReq(sidr);
    let (mut raised, transactions) = (Vec::new(), [7, 8]);
    for transaction in transactions {
        let engine = &mut flood.pair.sides[1].engine;
        // The second one of each is a repetition.
        for _ in 0..2 {
            stranger::inject(engine, flood.pair.now, address(1), transaction, &ask);
        }
        raised.extend(flood.answers().1);
    }
    assert_eq!(raised.len(), 2);
    let (engine, now) = (&mut flood.pair.sides[1].engine, flood.pair.now);
    for (id, transaction) in raised.into_iter().zip(transactions) {
        let answer = SidrReply {
            status: 0,
            qpn: Qpn::new(2),
            qkey: 3,
            private_data: &[],
        };
        engine.sidr_reply(now, id, &answer).unwrap();
        let (_, answer) = stranger::sent(engine, now).remove(0);
        assert_eq!(answer[28..36], transaction.to_be_bytes());
    }
}

/// Messages that name an unknown id of ours, and a REQ and SIDR_REQ for a service without a listener, cause one answer each
/// at most.
#[test]
fn messages_with_unknown_ids_leave_no_state_and_cause_one_answer_at_most() {
    let mut flood = Flood::new("abuse_nothing");
    let to = flood.pair.sides[1].address.ip();
    for n in 0..200 {
        let source = address(n);
        let (id, qpn) = (n * 7919, Qpn::new(n));
        let req = stranger::req(source.ip(), to, SERVICE + 1, (FOREIGN, n, qpn));
        let sidr = stranger::sidr_req(source.ip(), to, SERVICE + 1, n);
        for (message, most) in [
            (CmMessage::Req(req), 1),
            (CmMessage::SidrReq(sidr), 1),
            (stranger::dreq(1, id, qpn), 1),
            (stranger::rep(1, id, qpn), 1),
            (stranger::rtu(1, id), 0),
            (stranger::drep(1, id), 0),
            (stranger::mra(1, id), 0),
            (stranger::rej(1, id, RejectReason::TIMEOUT, FOREIGN), 0),
            (stranger::sidr_rep(id), 0),
        ] {
            flood.send(source, &message);
            let (sent, raised) = flood.answers();
            assert!(sent <= most && raised.is_empty(), "{message:?}: {sent}");
        }
    }
    assert_eq!(flood.pair.sides[1].engine.connections(), 0);
    assert_eq!(flood.timers(), 0);
}

/// A peer that may read a large region asks for all of it in one small packet. Engines of this project ask for pieces.
#[test]
fn a_long_read_does_not_keep_the_engine_from_other_work() {
    const LENGTH: usize = 24 << 20;
    let mut pair = Pair::with("abuse_read", 1, |config| config.read_chunk = 1 << 20);
    let qpns = pair.connected();
    let from = pair.sides[1].memory.register(vec![7; LENGTH], ALL);
    let to = pair.sides[0].memory.register(vec![0; LENGTH], ALL);
    let read = Op::Read(common::memory::at(from));
    pair.post(0, qpns[0], &SendRequest::new(1, read, &[to]));
    let asked = pair.poll(0);
    assert_eq!(asked.len(), 1);
    let meta = Meta {
        source: pair.sides[0].address,
        ip_id: 0,
    };
    let engine = &mut pair.sides[1].engine;
    engine.handle_datagram(pair.now, &meta, &asked[0]);
    let (mut now, mut all, mut most) = (pair.now, 0, 0);
    loop {
        let sent = stranger::sent(engine, now);
        let bytes: usize = sent.iter().map(|(_, packet)| packet.len()).sum();
        all += bytes;
        most = most.max(bytes);
        // The driver looks at what has arrived, and goes on at once.
        match engine.poll_timeout() {
            Some(due) if due <= now + Duration::from_micros(1) => now = due,
            _ => break,
        }
        engine.handle_timeout(now);
    }
    assert!(all > LENGTH, "{all}");
    assert!(most < LENGTH / 4, "{most} bytes between two looks");
}

/// Each MRA extends the deadline; the peer may send any number of them.
#[test]
fn thousands_of_mras_do_not_pile_up_timers() {
    let mut flood = Flood::new("abuse_mra");
    let pair = &mut flood.pair;
    let qpn = pair.sides[1].qp();
    let now = pair.now;
    let remote = pair.sides[0].address;
    let connect = Connect::new(remote, SERVICE, &[]);
    let id = pair.sides[1].engine.connect(now, qpn, &connect).unwrap();
    let (_, req) = stranger::sent(&mut pair.sides[1].engine, now).remove(0);
    let transaction = u64::from_be_bytes(req[28..36].try_into().unwrap());
    let mra = stranger::mra(3, id.number());
    for _ in 0..5000 {
        pair.now += Duration::from_millis(1);
        let engine = &mut pair.sides[1].engine;
        stranger::inject(engine, pair.now, remote, transaction, &mra);
    }
    let timers = flood.timers();
    assert!(timers < 50, "{timers}");
}

/// The peers never confirm the ends of their connections.
#[test]
fn unconfirmed_disconnects_do_not_pile_up() {
    let mut pair = Pair::with("abuse_ends", 1, |config| config.qp_bits = 4);
    let most = 2 << 4;
    for id in 0..4 * most {
        let (qpns, _) = foreign_client(&mut pair, id as u32);
        let now = pair.now;
        pair.sides[1].engine.destroy_qp(now, qpns[1]);
        pair.sides[0].engine.destroy_qp(now, qpns[0]);
        let engine = &mut pair.sides[1].engine;
        stranger::sent(engine, now);
        while engine.poll_event().is_some() {}
        assert!(engine.connections() <= most + 1, "{}", engine.connections());
    }
}

/// Returns bytes and datagrams that the second side sends until it has no timer.
fn everything(pair: &mut Pair) -> (usize, usize) {
    let engine = &mut pair.sides[1].engine;
    let (mut bytes, mut count) = (0, 0);
    loop {
        for (_, datagram) in stranger::sent(engine, pair.now) {
            bytes += datagram.len();
            count += 1;
        }
        let Some(at) = engine.poll_timeout() else {
            return (bytes, count);
        };
        pair.now = at;
        engine.handle_timeout(at);
    }
}

/// The source address of a REQ can be forged.
#[test]
fn a_request_causes_answers_of_at_most_three_times_its_bytes() {
    for repetitions in 0..4 {
        let mut flood = Flood::new("abuse_amplified");
        let to = flood.pair.sides[1].address.ip();
        let ids = (FOREIGN, 1, Qpn::new(7));
        let req = stranger::req(address(1).ip(), to, SERVICE, ids);
        let mut asked = 0;
        for _ in 0..=repetitions {
            flood.send(address(1), &CmMessage::Req(req));
            asked += 280;
        }
        let (answers, raised) = {
            let engine = &mut flood.pair.sides[1].engine;
            let sent = stranger::sent(engine, flood.pair.now);
            let bytes: usize = sent.iter().map(|(_, bytes)| bytes.len()).sum();
            (bytes, flood.answers().1)
        };
        let pair = &mut flood.pair;
        let qpn = pair.sides[1].qp();
        let (now, accept) = (pair.now, Accept::new(b"yes"));
        let engine = &mut pair.sides[1].engine;
        engine.accept(now, raised[0], qpn, &accept).unwrap();
        let (bytes, count) = everything(pair);
        let drawn = answers + bytes;
        assert!(
            drawn <= 3 * asked,
            "{drawn} bytes for {asked}, {count} datagrams"
        );
        let mut end = Vec::new();
        while let Some(event) = pair.sides[1].engine.poll_event() {
            end.push(event);
        }
        assert!(
            matches!(
                &end[..],
                [Event::Cm(CmEvent {
                    kind: CmEventKind::TimedOut,
                    ..
                })]
            ),
            "{end:?}"
        );
        assert_eq!(pair.sides[1].engine.connections(), 0);
    }
}
