//! Checks the ICRC of every RoCEv2 packet in captures: `check_captures FILE.pcap...`; fails if one is wrong.

#[allow(dead_code, unreachable_pub)]
#[path = "../tests/common/pcap.rs"]
mod pcap;

use std::path::Path;
use std::process::ExitCode;

use softrxe_proto::wire::Packet;
use softrxe_proto::wire::icrc;

fn main() -> ExitCode {
    let (mut total, mut wrong) = (0, 0);
    for file in std::env::args().skip(1) {
        for datagram in pcap::read_file(Path::new(&file)) {
            total += 1;
            let right =
                datagram
                    .payload
                    .split_last_chunk::<4>()
                    .is_some_and(|(transport, stored)| {
                        icrc::compute_raw(&datagram.ip, &datagram.udp, transport).to_le_bytes()
                            == *stored
                    });
            if !right || Packet::parse(&datagram.payload).is_err() {
                wrong += 1;
                println!("{file}: frame {} is wrong", datagram.frame);
            }
        }
    }
    println!("{total} packets, {wrong} wrong");
    if wrong == 0 && total > 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
