//! The suite's own helpers do what they say: identities are what they claim, victims work, figures grow.

use std::net::UdpSocket;
use std::time::Duration;

use dat_hostile::{Figures, Identity, NOBODY, Stage, Usage, echo, hear, play, say};

fn status(key: &str) -> String {
    let status = std::fs::read_to_string("/proc/self/status").expect("it is ours");
    let line = status.lines().find_map(|line| line.strip_prefix(key));
    line.expect("a line")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

fn network() -> String {
    let link = std::fs::read_link("/proc/self/ns/net").expect("it is ours");
    link.display().to_string()
}

#[test]
fn parts_have_the_rights_that_they_are_given() {
    let name = "parts_have_the_rights_that_they_are_given";
    let scenario = || {
        let stage = Stage::new(name, "127.60.0.1", "");
        let user = stage.start("part", Identity::User(NOBODY));
        assert_eq!(user.says("uid "), "65534 65534 65534 65534");
        assert_eq!(user.says("groups "), "");
        assert_eq!(user.says("capabilities "), "0000000000000000");
        assert_eq!(user.says("network "), network());
        let isolated = stage.start("part", Identity::Isolated(NOBODY));
        assert_eq!(isolated.says("uid "), "0 0 0 0");
        assert_ne!(isolated.says("network "), network());
        assert_eq!(isolated.says("loopback "), "works");
        assert!(isolated.ends().success());
    };
    play(name, scenario, |_| {
        say(format_args!("uid {}", status("Uid:")));
        say(format_args!("groups {}", status("Groups:")));
        say(format_args!("capabilities {}", status("CapEff:")));
        say(format_args!("network {}", network()));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("lo is up");
        let own = socket.local_addr().expect("bound");
        let arrives = socket.send_to(b"x", own).is_ok() && socket.recv(&mut [0; 4]).is_ok();
        say(format_args!(
            "loopback {}",
            if arrives { "works" } else { "fails" }
        ));
        while hear().is_some() {}
    });
}

#[test]
fn victims_of_a_user_serve_and_ask() {
    let name = "victims_of_a_user_serve_and_ask";
    let scenario = || {
        let stage = Stage::new(name, "127.60.0.2", "");
        let server = stage.start("server", Identity::User(NOBODY));
        server.says("ready");
        let mut client = stage.start("client", Identity::User(NOBODY));
        client.says("ready");
        let mut figures = Figures::new("no attack");
        let before = figures.note("before", &client);
        client.tell("connect 127.60.0.2 5001 hello");
        assert_eq!(server.says("request "), "hello");
        client.says("established");
        client.tell("ping 7");
        assert_eq!(client.says("pong "), "7");
        let after = figures.note("after", &client);
        assert!(after.processor > before.processor);
        assert!(after.descriptors > 0 && after.memory > 0);
        client.tell("connect 127.60.0.2 5009 hello");
        client.says("error ");
        figures.show();
    };
    play(name, scenario, |part| match part {
        "server" => echo::serve(5001),
        _ => echo::ask(),
    });
}

#[test]
fn usage_counts_memory_processor_and_descriptors() {
    let own = || Usage::of(std::process::id()).expect("it is ours");
    let before = own();
    let kept = vec![1_u8; 32 << 20];
    let file = std::fs::File::open("/dev/null").expect("it opens");
    while own().processor < before.processor + Duration::from_millis(5) {
        std::hint::spin_loop();
    }
    let after = own();
    assert!(after.memory > before.memory + (16 << 10));
    assert!(after.descriptors > before.descriptors);
    drop((file, kept));
}
