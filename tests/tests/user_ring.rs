//! The receive ring of the user engine, between two IAs of this process: one has a ring where the kernel allows it, one has none.

use dat::{Access, DtoStatus, Ia, Region};
use dat_tests::engine::{Endpoint, Limits, TIMEOUT};

const MESSAGE: usize = 64;
/// Messages of different lengths, which go to the ring and to the socket.
const LENGTHS: [usize; 6] = [1, 64, 400, 500, 4096, 60_000];
const ROUNDS: u64 = 200;

struct Side {
    endpoint: Endpoint,
    from: Region,
    into: Region,
}

impl Side {
    fn open(name: &str) -> Self {
        let limits = Limits {
            receives: 4,
            requests: 4,
            reads: 1,
            memory: MESSAGE,
        };
        let endpoint = Endpoint::open(name, limits);
        let allocate = || endpoint.pz.allocate(1 << 16, Access::ALL);
        let [from, into] = [(); 2].map(|()| allocate().expect("memory"));
        Self {
            endpoint,
            from,
            into,
        }
    }

    /// The named attribute that says whether there is a ring, and the reads from the ring and beside it.
    fn ring(&self) -> (String, [u64; 2]) {
        let attributes = self.endpoint.ia.attributes().expect("attributes");
        let named = attributes.named.iter();
        let said = named.chain(&attributes.vendor_named);
        let said = said.clone().find(|(name, _)| name == "SOFTRXE_RING");
        (
            said.expect("the attribute").1.clone(),
            counters(&self.endpoint.ia),
        )
    }

    fn takes(&self) {
        let done = self.endpoint.completions.wait_completion(TIMEOUT);
        assert_eq!(done.expect("a completion").status, DtoStatus::Success);
    }
}

fn counters(ia: &Ia) -> [u64; 2] {
    let all = ia.provider_counters().expect("its counters");
    ["ring_reads", "ring_passed"].map(|wanted| {
        let found = all.iter().find(|(name, _)| name == wanted);
        found.expect("the counter").1
    })
}

#[test]
fn messages_arrive_with_and_without_a_ring_which_attribute_and_counters_show() {
    let name = "messages_arrive_with_and_without_a_ring_which_attribute_and_counters_show";
    let lines = || {
        let library = dat_tests::softrxe();
        let line = |ia, params: &str| dat_tests::line(ia, &library, params);
        line("a", "127.66.31.1 0 engine=user near=off ring=auto")
            + &line("b", "127.66.31.2 0 engine=user near=off ring=off")
    };
    dat_tests::inside(name, lines, || {
        let (a, b) = (Side::open("a"), Side::open("b"));
        a.endpoint.connect(&b.endpoint);
        for round in 0..ROUNDS {
            let length = LENGTHS[round as usize % LENGTHS.len()];
            for (sender, receiver) in [(&a, &b), (&b, &a)] {
                let bytes = vec![round as u8; length];
                sender.from.write(0, &bytes);
                let into = [receiver.into.slice(0..length)];
                receiver.endpoint.ep.post_recv(&into, 1).expect("posted");
                let from = [sender.from.slice(0..length)];
                sender.endpoint.ep.post_send(&from, 2).expect("posted");
                receiver.takes();
                sender.takes();
                let mut got = vec![0; length];
                receiver.into.read(0, &mut got);
                assert!(got == bytes, "{round}");
            }
        }
        let (with, without) = (a.ring(), b.ring());
        println!("with a ring: {with:?}, without: {without:?}");
        assert_eq!(without, ("off".to_owned(), [0, 0]));
        match with.0.as_str() {
            "auto" => assert!(with.1.iter().sum::<u64>() > ROUNDS),
            said => assert_eq!((said, with.1), ("off", [0, 0])),
        }
    });
}
