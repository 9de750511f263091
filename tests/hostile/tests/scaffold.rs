//! Tests of the suite's own helpers: identities, victims, figures.

use std::net::UdpSocket;
use std::time::Duration;

use dat_hostile::{
    Figures, Identity, Stage, UNPRIVILEGED, Usage, echo, print_line, read_line, run_test,
};

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
        let user = stage.start("part", Identity::User(UNPRIVILEGED));
        assert_eq!(user.expect_line("uid "), "65534 65534 65534 65534");
        assert_eq!(user.expect_line("groups "), "");
        assert_eq!(user.expect_line("capabilities "), "0000000000000000");
        assert_eq!(user.expect_line("network "), network());
        let isolated = stage.start("part", Identity::Isolated(UNPRIVILEGED));
        assert_eq!(isolated.expect_line("uid "), "0 0 0 0");
        assert_ne!(isolated.expect_line("network "), network());
        assert_eq!(isolated.expect_line("loopback "), "works");
        assert!(isolated.close_input_and_wait().success());
    };
    run_test(name, scenario, |_| {
        print_line(format_args!("uid {}", status("Uid:")));
        print_line(format_args!("groups {}", status("Groups:")));
        print_line(format_args!("capabilities {}", status("CapEff:")));
        print_line(format_args!("network {}", network()));
        let socket = UdpSocket::bind("127.0.0.1:0").expect("lo is up");
        let own = socket.local_addr().expect("bound");
        let arrives = socket.send_to(b"x", own).is_ok() && socket.recv(&mut [0; 4]).is_ok();
        print_line(format_args!(
            "loopback {}",
            if arrives { "works" } else { "fails" }
        ));
        while read_line().is_some() {}
    });
}

#[test]
fn victims_of_a_user_serve_and_ask() {
    let name = "victims_of_a_user_serve_and_ask";
    let scenario = || {
        let stage = Stage::new(name, "127.60.0.2", "");
        let server = stage.start("server", Identity::User(UNPRIVILEGED));
        server.expect_line("ready");
        let mut client = stage.start("client", Identity::User(UNPRIVILEGED));
        client.expect_line("ready");
        let mut figures = Figures::new("no attack");
        let before = figures.note("before", &client);
        client.send_line("connect 127.60.0.2 5001 hello");
        assert_eq!(server.expect_line("request "), "hello");
        client.expect_line("established");
        client.send_line("ping 7");
        assert_eq!(client.expect_line("pong "), "7");
        let after = figures.note("after", &client);
        assert!(after.processor > before.processor);
        assert!(after.descriptors > 0 && after.memory > 0);
        client.send_line("connect 127.60.0.2 5009 hello");
        client.expect_line("error ");
        figures.show();
    };
    run_test(name, scenario, |part| match part {
        "server" => echo::serve(5001),
        _ => echo::ask(),
    });
}

#[test]
fn usage_counts_memory_processor_and_descriptors() {
    let _alone = dat_tests::alone();
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
