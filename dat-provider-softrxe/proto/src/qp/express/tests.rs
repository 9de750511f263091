//! Both paths from the same state: what they send and leave must not differ.

use std::cell::RefCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use dat_handshake::Agreement;

use super::*;
use crate::config::Config;
use crate::memory::{AccessError, AtomicOp, MwBind, Pd};
use crate::near::{Link, NearId};
use crate::outputs::Outputs;
use crate::qp::incoming::{Arrived, Incoming};
use crate::qp::{Path, QpInit, QpKind};
use crate::secrets::SecretKey;
use crate::time::Time;
use crate::wire::icrc_cache::IcrcCache;
use crate::wire::packet::RecordHeaders;
use crate::wire::{Aeth, Nak, Syndrome};
use crate::work::{Remote, SendRequest};

const KEY: u32 = 7;
const MTU: u16 = 1024;
const FIRST: Psn = Psn::new(0xff_fffe);

/// Memory that grants what has [`KEY`], and lists the copies.
#[derive(Default)]
struct Copies(RefCell<Vec<Copy>>);

/// A copy into a record (or out of it), its address, length and position.
type Copy = (bool, u64, usize, usize);

impl Copies {
    fn copy(&self, access: &Access, copy: Copy) -> Result<(), AccessError> {
        if access.key != KEY {
            return Err(AccessError::Key(access.key));
        }
        self.0.borrow_mut().push(copy);
        Ok(())
    }
}

impl Memory for Copies {
    fn check(&self, access: &Access, _va: u64, _length: u64) -> Result<(), AccessError> {
        let granted = access.key == KEY;
        granted.then_some(()).ok_or(AccessError::Key(access.key))
    }
    fn read(&self, access: &Access, _va: u64, _into: &mut [u8]) -> Result<(), AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn write(&self, access: &Access, _va: u64, _from: &[u8]) -> Result<(), AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn fill(&self, access: &Access, va: u64, length: usize, at: usize) -> Result<(), AccessError> {
        self.copy(access, (true, va, length, at))
    }
    fn place(&self, access: &Access, va: u64, at: usize, length: usize) -> Result<(), AccessError> {
        self.copy(access, (false, va, length, at))
    }
    fn atomic(&self, access: &Access, _va: u64, _op: AtomicOp) -> Result<u64, AccessError> {
        Err(AccessError::Key(access.key))
    }
    fn invalidate(&self, key: u32, _: Pd, _: Qpn, _remote: bool) -> Result<(), AccessError> {
        Err(AccessError::Key(key))
    }
    fn bind(&self, bind: &MwBind, _: Pd, _: Qpn) -> Result<(), AccessError> {
        Err(AccessError::Key(bind.lkey))
    }
}

/// A connected queue pair with its engine's parts.
struct Bench {
    qp: Qp,
    out: Outputs,
    memory: Copies,
    config: Config,
    icrc_cache: IcrcCache,
}

impl Bench {
    fn new(access: Rights) -> Self {
        let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let config = Config::new(local, SecretKey::new([1; 32]), 1);
        let mut out = Outputs::default();
        let cq = out.create_cq().unwrap();
        let init = QpInit {
            kind: QpKind::Rc,
            pd: Pd(1),
            token: 5,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_depth: 8,
            recv_depth: 8,
            max_sge: 2,
            access,
            qkey: 0,
        };
        let mut qp = Qp::new(Qpn::new(0x10), init, 2).unwrap();
        qp.reserve(2, 2).unwrap();
        let path = Path {
            remote: SocketAddr::new(local, 1),
            qpn: Qpn::new(0x11),
            mtu: MTU,
            send_psn: FIRST,
            receive_psn: FIRST,
            initiator_depth: 2,
            responder_resources: 2,
            retry_count: 7,
            rnr_retry: 7,
            agreement: Agreement::FOREIGN,
            link: Link::Near(NearId(0)),
        };
        assert!(qp.connect(path, 64, 64));
        Self {
            qp,
            out,
            memory: Copies::default(),
            icrc_cache: IcrcCache::new(SocketAddr::new(local, 1)),
            config,
        }
    }

    fn run<R>(&mut self, act: impl FnOnce(&mut Qp, &mut Context<'_, Copies>) -> R) -> R {
        let mut cx = Context {
            now: Time::from_nanos(1_000),
            memory: &self.memory,
            config: &self.config,
            out: &mut self.out,
            icrc_cache: &mut self.icrc_cache,
        };
        act(&mut self.qp, &mut cx)
    }

    fn post(&mut self, op: Op, sges: &[Sge], solicited: bool, fence: bool) {
        let request = request(op, sges, solicited, fence);
        self.run(|qp, cx| qp.post_send(cx, &request)).unwrap();
    }

    fn post_express(&mut self, request: &SendRequest<'_>, room: usize) -> Option<NearOut> {
        self.run(|qp, cx| {
            let mut out = NearOut::EMPTY;
            let length = qp
                .post_express(cx, request, room, |packet| out = *packet)
                .unwrap()?;
            assert_eq!(length, out.record_length());
            Some(out)
        })
    }

    fn express(&mut self, room: usize) -> Option<NearOut> {
        self.run(|qp, cx| {
            let mut out = NearOut::EMPTY;
            let length = qp.send_express(cx, room, &mut out)?;
            assert_eq!(length, out.record_length());
            Some(out)
        })
    }

    fn general(&mut self) -> Option<NearOut> {
        self.run(|qp, cx| {
            let packet = qp.next(cx, true)?;
            let out = qp.write_near(cx, &packet).ok()?;
            qp.sent(cx, &packet);
            Some(out)
        })
    }

    /// Returns everything that the paths may change. The SGEs of the receive at hand are a copy that only the general path makes.
    fn state(&mut self) -> String {
        self.qp.responder.sges_mut().clear();
        format!("{:?} {:?}", self.qp, self.out)
    }

    /// Takes all completions.
    fn completions(&mut self) -> Vec<Completion> {
        let mut all = [Completion::default(); 16];
        let count = self.out.poll_cq(self.qp.init.send_cq, &mut all);
        all[..count].to_vec()
    }

    fn copies(&self) -> Vec<Copy> {
        self.memory.0.borrow().clone()
    }
}

const fn request(op: Op, sges: &[Sge], solicited: bool, fence: bool) -> SendRequest<'_> {
    let mut request = SendRequest::new(3, op, sges);
    (request.solicited, request.fence) = (solicited, fence);
    request
}

const fn sge(length: u32, key: u32) -> Sge {
    Sge {
        address: 0x1000,
        length,
        key,
    }
}

/// A state: its name, whether the express path may be taken in it, and what leads there.
type Case = (&'static str, bool, fn(&mut Bench));

/// States of a sender in which the general path may have something else to do.
const SENDERS: [Case; 9] = [
    ("quiet", true, |_| {}),
    ("owes an acknowledgement", true, |bench| {
        bench.run(|qp, cx| qp.responder.schedule_ack(cx.now, Duration::from_micros(9)));
    }),
    ("owes an urgent one", false, |bench| {
        let every = bench.config.ack_every;
        for _ in 0..every {
            bench.run(|qp, cx| qp.responder.schedule_ack(cx.now, Duration::ZERO));
        }
    }),
    ("owes a NAK", false, |bench| {
        bench.qp.responder.nak = Some((FIRST, Syndrome::Nak(Nak::SequenceError)));
    }),
    ("waits after RNR", false, |bench| {
        bench.qp.requester.rnr_until = Some(Time::from_nanos(5_000));
    }),
    ("has sent another one", true, |bench| {
        bench.post(Op::Send, &[sge(8, KEY)], false, false);
        assert!(bench.general().is_some());
    }),
    ("went back", false, |bench| {
        bench.post(Op::Send, &[sge(8, KEY)], false, false);
        assert!(bench.general().is_some());
        bench.qp.requester.go_back();
    }),
    ("waits for a READ", true, |bench| {
        bench.post(Op::Read(REMOTE), &[sge(8, KEY)], false, false);
        assert!(bench.general().is_some());
    }),
    ("has ended", false, |bench| {
        bench.run(|qp, cx| qp.fail(cx, None));
    }),
];

const REMOTE: Remote = Remote {
    address: 0x9000,
    key: 0x1234,
};

/// Lists of segments, and whether the express path may be taken with them.
const LISTS: [(&[Sge], bool); 8] = [
    (&[sge(64, KEY)], true),
    (&[sge(1, KEY)], true),
    (&[sge(MTU as u32, KEY)], true),
    (&[sge(MTU as u32 + 1, KEY)], false),
    (&[sge(0, KEY)], false),
    (&[], false),
    (&[sge(8, KEY), sge(8, KEY)], false),
    (&[sge(64, KEY + 1)], false),
];

/// Operations, and whether the express path may be taken with them.
const OPS: [(Op, bool); 7] = [
    (Op::Send, true),
    (Op::Write(REMOTE), true),
    (Op::SendImm([1, 2, 3, 4]), false),
    (Op::SendInvalidate(9), false),
    (Op::WriteImm(REMOTE, [1, 2, 3, 4]), false),
    (Op::Read(REMOTE), false),
    (Op::LocalInvalidate(9), false),
];

/// Calls `each` with each state of a sender and each request: what they are, what leads to the state, the request, and whether the express path
/// may be taken.
fn for_each_request(mut each: impl FnMut(&str, fn(&mut Bench), &SendRequest<'_>, bool)) {
    for (name, may_send, prepare) in SENDERS {
        for (sges, list_fits) in LISTS {
            for (op, op_fits) in OPS {
                for flags in 0..4 {
                    let (solicited, fence) = (flags & 1 != 0, flags & 2 != 0);
                    let request = request(op, sges, solicited, fence);
                    let fits = may_send && list_fits && op_fits && !fence;
                    each(&format!("{name}, {request:?}"), prepare, &request, fits);
                }
            }
        }
    }
}

#[test]
fn a_sender_leaves_what_the_general_path_leaves() {
    for_each_request(|what, prepare, request, fits| {
        let [mut express, mut general] = [(), ()].map(|()| {
            let mut bench = Bench::new(Rights::empty());
            prepare(&mut bench);
            bench.run(|qp, cx| qp.post_send(cx, request)).unwrap();
            bench
        });
        let before = general.state();
        let sent = express.express(4096);
        assert_eq!(sent.is_some(), fits, "{what}");
        if sent.is_none() {
            assert_eq!(express.state(), before, "{what}");
            return;
        }
        assert_eq!(sent, general.general(), "{what}");
        assert_eq!(express.state(), general.state(), "{what}");
        assert_eq!(express.copies(), general.copies(), "{what}");
    });
}

#[test]
fn a_poster_leaves_what_post_and_general_path_leave() {
    for_each_request(|what, prepare, request, fits| {
        let [mut express, mut general] = [(), ()].map(|()| {
            let mut bench = Bench::new(Rights::empty());
            prepare(&mut bench);
            bench
        });
        let before = general.state();
        let sent = express.post_express(request, 4096);
        assert_eq!(sent.is_some(), fits, "{what}");
        if sent.is_none() {
            assert_eq!(express.state(), before, "{what}");
            return;
        }
        general.run(|qp, cx| qp.post_send(cx, request)).unwrap();
        assert_eq!(sent, general.general(), "{what}");
        assert_eq!(express.state(), general.state(), "{what}");
        assert_eq!(express.copies(), general.copies(), "{what}");
    });
}

#[test]
fn a_poster_leaves_requests_that_wait_or_find_no_slot_to_the_general_path() {
    let sges = [sge(64, KEY)];
    let request = request(Op::Send, &sges, false, false);
    let mut bench = Bench::new(Rights::empty());
    bench.post(Op::Send, &sges, false, false);
    let before = bench.state();
    assert_eq!(bench.post_express(&request, 4096), None);
    assert_eq!(bench.state(), before);
    assert!(bench.general().is_some());
    for _ in 1..8 {
        assert!(bench.post_express(&request, 4096).is_some());
    }
    let before = bench.state();
    assert_eq!(
        bench.post_express(&request, 4096),
        None,
        "the queue is full"
    );
    assert_eq!(bench.state(), before);
}

#[test]
fn a_record_without_room_is_not_sent() {
    let mut bench = Bench::new(Rights::empty());
    let sges = [sge(64, KEY)];
    let request = request(Op::Send, &sges, false, false);
    let before = bench.state();
    assert_eq!(bench.post_express(&request, 64), None);
    assert_eq!(bench.state(), before);
    assert!(bench.post_express(&request, 128).is_some());
    bench.post(Op::Send, &sges, false, false);
    let before = bench.state();
    assert_eq!(bench.express(64), None);
    assert_eq!(bench.state(), before);
    assert!(bench.express(128).is_some());
}

/// States of a receiver of a packet with the expected PSN.
const RECEIVERS: [Case; 7] = [
    ("quiet", true, |_| {}),
    ("owes an acknowledgement", true, |bench| {
        bench.run(|qp, cx| qp.responder.schedule_ack(cx.now, Duration::from_micros(9)));
    }),
    ("owes a NAK", false, |bench| {
        bench.qp.responder.nak = Some((FIRST, Syndrome::Nak(Nak::SequenceError)));
    }),
    ("is in a message", false, |bench| {
        bench.qp.responder.current = Current::Send(0);
    }),
    ("has sent a request", true, |bench| {
        bench.post(Op::Send, &[sge(8, KEY)], false, false);
        assert!(bench.general().is_some());
    }),
    ("has a request that failed", true, |bench| {
        bench.post(Op::Send, &[sge(8, KEY)], false, false);
        assert!(bench.general().is_some());
        bench.post(Op::LocalInvalidate(9), &[], false, false);
        assert!(bench.general().is_none());
    }),
    ("has ended", false, |bench| {
        bench.run(|qp, cx| qp.fail(cx, None));
    }),
];

/// Returns the headers of a request: `reth` for a WRITE, `acknowledged` at the end.
fn headers(opcode: u8, psn: Psn, flags: u8, reth: Option<Reth>, ack: Option<Psn>) -> Vec<u8> {
    let bth = Bth {
        solicited: flags & 1 != 0,
        ack_request: flags & 2 != 0,
        ..Bth::new(opcode, Qpn::new(0x10), psn)
    };
    let mut bytes = vec![0; Bth::LEN];
    bth.emit(&mut bytes);
    if let Some(reth) = reth {
        bytes.resize(Bth::LEN + Reth::LEN, 0);
        reth.emit(&mut bytes[Bth::LEN..]);
    }
    if let Some(ack) = ack {
        bytes[ACK_FLAG.0] |= ACK_FLAG.1;
        bytes.extend(ack.value().to_be_bytes());
    }
    bytes
}

#[test]
fn a_receiver_leaves_what_the_general_path_leaves() {
    let reth = |length, rkey| {
        Some(Reth {
            va: 0x9000,
            rkey,
            length,
        })
    };
    let requests = [
        (None, 64, true),
        (None, 100, true),
        // Longer than the receive.
        (None, 101, false),
        (None, 0, false),
        (reth(64, KEY), 64, true),
        (reth(64, KEY + 1), 64, false),
        (reth(65, KEY), 64, false),
        (reth(0, KEY), 0, false),
        (reth(2000, KEY), 2000, false),
    ];
    // Receives that are posted, and whether a SEND can be placed there.
    let receives: [(&[Sge], bool); 4] = [
        (&[], false),
        (&[sge(100, KEY)], true),
        (&[sge(60, KEY), sge(40, KEY)], true),
        (&[sge(100, KEY + 1)], false),
    ];
    for (name, may_handle, prepare) in RECEIVERS {
        for (reth, length, fits) in requests {
            for (sges, can_place) in receives {
                for case in 0..24 {
                    let (flags, granted) = (case & 3, case & 4 == 0);
                    let ack = [None, Some(FIRST), Some(FIRST.plus(5))][case as usize / 8];
                    for psn in [FIRST, FIRST.plus(1), FIRST.minus(1)] {
                        let opcode = match reth {
                            Some(_) => Opcode::WriteOnly,
                            None => Opcode::SendOnly,
                        };
                        let bytes = headers(opcode as u8, psn, flags, reth, ack);
                        let what = format!("{name}, {bytes:?}, {length}, {sges:?}, {granted}");
                        let rights = if granted {
                            Rights::REMOTE_WRITE
                        } else {
                            Rights::empty()
                        };
                        let [mut express, mut general] = [(), ()].map(|()| {
                            let mut bench = Bench::new(rights);
                            if !sges.is_empty() {
                                bench.run(|qp, cx| qp.post_recv(cx.out, 4, sges)).unwrap();
                            }
                            prepare(&mut bench);
                            bench
                        });
                        let before = general.state();
                        let payload = RecordPart {
                            at: 16,
                            length,
                            lent: false,
                        };
                        let arrival = parse(&bytes).unwrap();
                        let handled =
                            express.run(|qp, cx| qp.receive_express(cx, &arrival, &payload));
                        let target = if reth.is_some() { granted } else { can_place };
                        let expected = may_handle && fits && target && psn == FIRST;
                        assert_eq!(handled, expected, "{what}");
                        if !handled {
                            assert_eq!(express.state(), before, "{what}");
                            continue;
                        }
                        let parsed = RecordHeaders::parse(&bytes).unwrap();
                        let packet = Incoming {
                            bth: &parsed.bth,
                            opcode: parsed.opcode,
                            headers: &parsed.headers,
                            payload: Arrived::Record(payload),
                            acknowledged: parsed.acknowledged,
                        };
                        general.run(|qp, cx| qp.handle(cx, &packet));
                        assert_same_end(&mut express, &mut general, &what);
                    }
                }
            }
        }
    }
}

/// Compares what a record has led to. The express path places the payload first: where an acknowledgement ends the queue pair, the general
/// path does not place it.
fn assert_same_end(express: &mut Bench, general: &mut Bench, what: &str) {
    assert_eq!(express.completions(), general.completions(), "{what}");
    assert_eq!(express.state(), general.state(), "{what}");
    if general.qp.state().receives() {
        assert_eq!(express.copies(), general.copies(), "{what}");
    }
}

#[test]
fn headers_mean_what_the_general_path_reads() {
    let reth = Some(Reth {
        va: 0x1122_3344_5566_7788,
        rkey: 0x99aa_bbcc,
        length: 64,
    });
    let mut read = 0;
    for opcode in 0..=u8::MAX {
        for (reth, ack) in [
            (None, None),
            (reth, None),
            (None, Some(FIRST)),
            (reth, Some(FIRST)),
        ] {
            for flags in 0..4 {
                let whole = headers(opcode, FIRST, flags, reth, ack);
                // Byte 1 has version and padding.
                for byte in 0..=u8::MAX {
                    let mut bytes = whole.clone();
                    bytes[1] = byte;
                    read += u32::from(means_the_same(&bytes));
                }
                for length in 0..whole.len() {
                    means_the_same(&whole[..length]);
                }
            }
        }
    }
    // Two opcodes, with and without an acknowledgement, four flags of this test, four values of byte 1.
    assert_eq!(read, 2 * 2 * 4 * 4);
}

#[test]
fn the_last_of_two_to_the_24_messages_is_acknowledged_again() {
    let mut bench = Bench::new(Rights::empty());
    bench.qp.responder.messages = (1 << 24) - 1;
    let sges = [sge(64, KEY)];
    bench.run(|qp, cx| qp.post_recv(cx.out, 4, &sges)).unwrap();
    let arrival = parse(&headers(4, FIRST, 0, None, None)).unwrap();
    let payload = RecordPart {
        at: 16,
        length: 8,
        lent: false,
    };
    assert!(bench.run(|qp, cx| qp.receive_express(cx, &arrival, &payload)));
    assert!(!bench.qp.owes_ack());
    bench.run(|qp, cx| qp.acknowledge_again(cx.now));
    assert!(bench.qp.owes_ack(), "the MSN is 0 again");
    let packet = bench.run(|qp, cx| qp.next_ack(cx, false).unwrap());
    let sent = bench.run(|qp, cx| qp.write_near(cx, &packet).ok()).unwrap();
    let aeth = Aeth::parse(&sent.header[Bth::LEN..]).unwrap();
    assert_eq!(aeth.msn, 0);
}

fn parse(header: &[u8]) -> Option<Arrival> {
    // What follows the headers has no meaning.
    let mut whole = [0xee; MAX_HEADER];
    whole[..header.len()].copy_from_slice(header);
    Arrival::parse(&whole, header.len())
}

/// Returns true if the express path reads `header`. It must then mean the same to the general path.
fn means_the_same(header: &[u8]) -> bool {
    let Some(arrival) = parse(header) else {
        return false;
    };
    let general = RecordHeaders::parse(header).unwrap();
    let expected = Arrival {
        destination: general.bth.destination,
        psn: general.bth.psn,
        solicited: general.bth.solicited,
        ack_request: general.bth.ack_request,
        reth: general.headers.reth,
        acknowledged: general.acknowledged,
    };
    assert_eq!(arrival, expected, "{header:?}");
    true
}
