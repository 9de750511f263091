//! Which connections use a channel, and what a channel changes.

mod common;

use common::channel;
use common::memory::ALL;
use common::pair::Pair;
use softrxe_proto::{Op, SendRequest, Status};

#[test]
fn messages_pass_through_a_channel() {
    channel::run_over_channel(|| {
        let mut pair = Pair::new("near");
        let ([a, b], [client, _]) = pair.connect_by_cm(7);
        assert_eq!(pair.sides[0].engine.near_of(client), Some(channel::ID));
        let from = pair.sides[0].memory.register((0..200).collect(), ALL);
        let to = pair.sides[1].memory.register(vec![0; 400], ALL);
        pair.receive(1, b, 5, &[to]);
        pair.post(0, a, &SendRequest::new(1, Op::Send, &[from]));
        pair.run_until(std::time::Duration::from_secs(1), |p| {
            !p.sides[0].completions.is_empty()
        });
        assert_eq!(pair.sides[0].completions[0].status, Status::Success);
        assert_eq!(pair.sides[1].completions[0].length, 200);
        assert_eq!(
            pair.sides[1].memory.bytes(&to)[..200],
            (0..200).collect::<Vec<u8>>()
        );
    });
}
