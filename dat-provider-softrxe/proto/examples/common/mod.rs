//! What the measurements of the engine alone share: a side with one queue pair, and a stream of requests between two of them.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;
use std::time::Instant;

use softrxe_proto::{
    AccessError, Agreement, Completion, Config, CqId, Engine, Link, Memory, Op, Path, Pd, Psn,
    QpInit, QpKind, Qpn, Remote, Rights, SecretKey, SendRequest, Sge, Time,
};

/// Bytes of a side's one region, which begins at address 0.
pub(crate) const SIZE: usize = 4 << 20;
/// Requests under way.
pub(crate) const OUTSTANDING: usize = 64;

/// Returns the bytes of the region from address `va`.
pub(crate) fn range(va: u64, length: usize) -> Result<Range<usize>, AccessError> {
    let at = va as usize;
    if at <= SIZE && length <= SIZE - at {
        return Ok(at..at + length);
    }
    Err(AccessError::Bounds {
        key: 1,
        va,
        length: length as u64,
    })
}

/// Returns a segment at the beginning of the region.
pub(crate) fn segment(length: usize) -> Sge {
    Sge {
        address: 0,
        length: length as u32,
        key: 1,
    }
}

/// An engine with a queue pair.
pub(crate) struct Side<M: Memory> {
    pub(crate) engine: Engine<M>,
    pub(crate) address: SocketAddr,
    pub(crate) cq: CqId,
    pub(crate) qpn: Qpn,
}

impl<M: Memory> Side<M> {
    /// Makes the engine of 127.0.0.`number`.
    pub(crate) fn new(number: u8, memory: M) -> Self {
        let ip: IpAddr = [127, 0, 0, number].into();
        let secret = SecretKey::new([number; 32]);
        let mut engine = Engine::new(Config::new(ip, secret, number.into()), memory);
        let cq = engine.create_cq().expect("memory");
        let init = QpInit {
            kind: QpKind::Rc,
            pd: Pd(0),
            token: 0,
            send_cq: cq,
            recv_cq: cq,
            srq: None,
            send_depth: OUTSTANDING,
            recv_depth: OUTSTANDING,
            max_sge: 1,
            access: Rights::all(),
            qkey: 0,
        };
        let qpn = engine.create_qp(&init).expect("a queue pair");
        let address = SocketAddr::new(ip, 4791);
        Self {
            engine,
            address,
            cq,
            qpn,
        }
    }

    /// Connects the queue pair to the one of `remote`.
    pub(crate) fn connect(&mut self, remote: SocketAddr, qpn: Qpn, mtu: u16, link: Link) {
        let path = Path {
            remote,
            qpn,
            mtu,
            send_psn: Psn::new(0),
            receive_psn: Psn::new(0),
            initiator_depth: 16,
            responder_resources: 16,
            retry_count: 7,
            rnr_retry: 7,
            agreement: Agreement::CURRENT,
            link,
        };
        self.engine.connect_qp(self.qpn, &path).expect("connected");
    }

    /// Posts a request of `length` bytes.
    pub(crate) fn post(&mut self, now: Time, op: Op, length: usize) {
        let segments = [segment(length)];
        let request = SendRequest::new(0, op, &segments);
        self.engine
            .post_send(now, self.qpn, &request)
            .expect("posted");
    }
}

/// Returns the seconds for `count` requests of `length` bytes from `a` to `b`. `carry` passes all that its second argument sends to the
/// third.
pub(crate) fn stream<M: Memory>(
    [mut a, mut b]: [Side<M>; 2],
    op: fn(Remote) -> Op,
    length: usize,
    count: usize,
    mut carry: impl FnMut(Time, &mut Side<M>, &mut Side<M>),
) -> f64 {
    let remote = Remote { address: 0, key: 1 };
    let mut done = [Completion::default(); OUTSTANDING];
    let (mut posted, mut completed) = (0, 0);
    let begin = Instant::now();
    while completed < count {
        let now = Time::from_nanos(begin.elapsed().as_nanos() as u64);
        while posted < count && posted - completed < OUTSTANDING {
            a.post(now, op(remote), length);
            posted += 1;
        }
        carry(now, &mut a, &mut b);
        carry(now, &mut b, &mut a);
        completed += a.engine.poll_cq(a.cq, &mut done);
    }
    begin.elapsed().as_secs_f64()
}
