use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use softrxe_proto::{
    Completion, CqId, DatagramPeer, Op, Pd, QpInit, QpKind, Qpn, Rights, SendRequest, Sge, Status,
};

use crate::adapter::hub::Hub;
use crate::clock;
use crate::memory::range::Range;
use crate::transport::open::test_hub;

const PATIENCE: Duration = Duration::from_secs(60);
const PD: Pd = Pd(1);
const QKEY: u32 = 7;
/// A receive: the global route header, and a datagram of one byte.
const SLOT: usize = 41;
const RECEIVES: usize = 8;

/// An engine with a datagram queue pair, whose receives are posted.
struct Side {
    hub: Arc<Hub>,
    cq: CqId,
    qpn: Qpn,
    key: u32,
    /// The receives, and the byte that is sent.
    memory: Box<[u8]>,
}

impl Side {
    fn new(address: &str) -> Self {
        let hub = test_hub(address);
        let mut memory = vec![0; RECEIVES * SLOT + 1].into_boxed_slice();
        let (at, length) = (memory.as_mut_ptr() as usize, memory.len() as u64);
        let range = Range::probe(at, length, true).unwrap();
        let mut state = hub.state.lock();
        let rights = Rights::LOCAL_READ | Rights::LOCAL_WRITE;
        let table = state.engine.memory();
        let key = table.register(range, at as u64, rights, PD).unwrap();
        let cq = state.engine.create_cq().unwrap();
        let init = QpInit {
            kind: QpKind::Ud,
            pd: PD,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            token: 0,
            send_depth: RECEIVES,
            recv_depth: RECEIVES,
            max_sge: 1,
            access: Rights::empty(),
            qkey: QKEY,
        };
        let qpn = state.engine.create_qp(&init).unwrap();
        drop(state);
        let side = Self {
            hub,
            cq,
            qpn,
            key,
            memory,
        };
        for slot in 0..RECEIVES {
            let room = [side.part(slot * SLOT, SLOT)];
            let mut state = side.hub.state.lock();
            state.engine.post_recv(qpn, slot as u64, &room).unwrap();
        }
        side
    }

    fn part(&self, at: usize, length: usize) -> Sge {
        Sge {
            address: (self.memory.as_ptr() as usize + at) as u64,
            length: length as u32,
            key: self.key,
        }
    }

    fn name(&self) -> (IpAddr, u16) {
        (self.hub.address(), self.hub.state.lock().ports.slot())
    }
}

impl Side {
    /// Sends a datagram whose byte is `number`.
    fn send(&mut self, to: &Self, number: u8) {
        let at = RECEIVES * SLOT;
        self.memory[at] = number;
        let to = DatagramPeer {
            address: to.hub.address(),
            qpn: to.qpn,
            qkey: QKEY,
        };
        let request = SendRequest {
            wr_id: RECEIVES as u64,
            op: Op::Datagram {
                to,
                immediate: None,
            },
            sges: &[self.part(at, 1)],
            signaled: false,
            solicited: false,
            fence: false,
        };
        match self.hub.post_datagram(self.qpn, &to, &request) {
            Some(posted) => posted.unwrap(),
            None => self.hub.post(self.qpn, &request, 1).unwrap(),
        }
        self.hub.with(|_, _| ());
    }

    /// Receives `count` datagrams. Returns their bytes in the order of their completions.
    fn receive(&self, count: usize) -> Vec<u8> {
        let (mut received, end) = (Vec::new(), Instant::now() + PATIENCE);
        while received.len() < count {
            assert!(Instant::now() < end, "received {received:?}");
            let mut state = self.hub.state.lock();
            state.receive(clock::now(), true);
            let mut done = [Completion::default(); RECEIVES];
            let found = state.engine.poll_cq(self.cq, &mut done);
            for done in &done[..found] {
                assert_eq!(done.status, Status::Success);
                let slot = done.wr_id as usize;
                received.push(self.memory[slot * SLOT + SLOT - 1]);
            }
        }
        received
    }
}

/// Makes a channel between the engines of `caller` and `called`.
fn connect(caller: &Side, called: &Side) {
    let name = called.name();
    {
        let mut state = caller.hub.state.lock();
        let (near_dial, mut context) = state.near_parts(clock::now());
        near_dial.dial_for_datagrams(&mut context, name);
    }
    let end = Instant::now() + PATIENCE;
    while !caller.hub.state.lock().near.is_up(name) {
        assert!(Instant::now() < end, "no channel");
        for side in [called, caller] {
            let mut state = side.hub.state.lock();
            let (near_dial, mut context) = state.near_parts(clock::now());
            near_dial.serve(&mut context);
        }
    }
}

/// The first call was answered too late, so datagrams take UDP. A later request leads to a channel.
#[test]
fn datagrams_do_not_overtake_those_that_were_sent_before_the_channel_came() {
    let [mut sender, receiver] = ["127.77.5.20", "127.77.5.21"].map(Side::new);
    sender.send(&receiver, 1);
    connect(&receiver, &sender);
    sender.send(&receiver, 2);
    assert_eq!(receiver.receive(2), [1, 2]);
}

/// A program that counts on the peer's word frees the memory of its receives before it polls for them.
#[test]
fn a_message_that_has_arrived_is_received_before_its_memory_is_deregistered() {
    let [mut sender, receiver] = ["127.77.5.60", "127.77.5.61"].map(Side::new);
    sender.send(&receiver, 1);
    receiver.hub.deregister(receiver.key);
    assert_eq!(receiver.receive(1), [1]);

    let [mut sender, receiver] = ["127.77.5.62", "127.77.5.63"].map(Side::new);
    connect(&receiver, &sender);
    sender.send(&receiver, 2);
    receiver.hub.deregister(receiver.key);
    assert_eq!(receiver.receive(1), [2]);

    // In a rest between two looks, in a stream of long records.
    let [mut sender, receiver] = ["127.77.5.64", "127.77.5.65"].map(Side::new);
    connect(&receiver, &sender);
    let end = clock::now() + PATIENCE;
    receiver.hub.state.lock().near.rest_until(end);
    sender.send(&receiver, 3);
    assert!(!receiver.hub.state.lock().receive(clock::now(), true));
    receiver.hub.deregister(receiver.key);
    assert_eq!(receiver.receive(1), [3]);
}
