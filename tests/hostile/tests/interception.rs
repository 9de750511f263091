//! Another user has UDP port 4791 of an address, with or without the names under which processes find each other,
//! before a victim opens an adapter there. It must not get the victim's connections.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use dat_hostile::{Actor, Figures, Identity, Stage, UNPRIVILEGED, echo, print_line, run_test};

const ROCE_PORT: u16 = 4791;

/// Starts an echo server as the attacker, which so gets the port and all that belongs to it.
fn attacker(stage: &Stage) -> Actor {
    let attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
    attacker.expect_line("ready");
    attacker
}

#[test]
fn an_engine_of_another_user_does_not_get_the_victims_connections() {
    let name = "an_engine_of_another_user_does_not_get_the_victims_connections";
    let scenario = || {
        let stage = Stage::new(name, "127.60.2.1", "");
        let attacker = attacker(&stage);
        let server = stage.start("server", Identity::Root);
        let mut figures = Figures::new("foreign holder of the port");
        // Without trust between them clients could not reach the server, so its adapter does not open, and the log says
        // why.
        let said = server.expect_log("UDP port 4791 of 127.60.2.1 belongs to ");
        assert!(
            said.starts_with("user 65534 and not to this one (uid 0)"),
            "{said}"
        );
        assert!(said.contains("dat serve-port 127.60.2.1"), "{said}");
        server.expect_line("error ");
        figures.note("server, refused", &server);
        let mut client = stage.start("client", Identity::Root);
        client.expect_line("error ");
        client.send_line("connect 127.60.2.1 5001 secret");
        figures.show();
        let stolen = attacker.line_within("request ", Duration::from_secs(2));
        assert_eq!(stolen, None, "the attacker read what the client sent");
        // The address works for the user that has it, and for others when that process has ended.
        attacker.kill();
        let server = stage.start("server", Identity::Root);
        server.expect_line("ready");
        let mut client = stage.start("client", Identity::Root);
        client.expect_line("ready");
        client.send_line("connect 127.60.2.1 5001 hello");
        assert_eq!(server.expect_line("request "), "hello");
        client.expect_line("established");
    };
    run_test(name, scenario, |part| match part {
        "client" => echo::ask(),
        _ => echo::serve(5001),
    });
}

#[test]
fn a_bare_socket_of_another_user_is_refused_with_its_user() {
    let name = "a_bare_socket_of_another_user_is_refused_with_its_user";
    let scenario = || {
        let stage = Stage::new(name, "127.60.2.2", "");
        let attacker = stage.start("attacker", Identity::User(1234));
        attacker.expect_line("bound");
        for who in [Identity::Root, Identity::User(UNPRIVILEGED)] {
            let server = stage.start("server", who);
            server.expect_log("belongs to user 1234 and not to this one");
            server.expect_line("error ");
        }
    };
    run_test(name, scenario, |part| match part {
        "server" => echo::serve(5001),
        _ => {
            let at: SocketAddr =
                ("127.60.2.2".parse::<std::net::IpAddr>().unwrap(), ROCE_PORT).into();
            let socket = UdpSocket::bind(at).expect("the port is free");
            dat_hostile::attack_then_wait("bound", || socket);
        }
    });
}

#[test]
fn the_port_is_not_free_for_others_when_its_holder_is_killed() {
    let name = "the_port_is_not_free_for_others_when_its_holder_is_killed";
    let scenario = || {
        let address = "127.60.2.3";
        let stage = Stage::new(name, address, "");
        let holder = stage.start("holder", Identity::Root);
        holder.expect_line("ready");
        let server = stage.start("server", Identity::Root);
        server.expect_line("ready");
        let mut client = stage.start("client", Identity::Root);
        client.expect_line("ready");
        client.send_line(&format!("connect {address} 5001 before"));
        assert_eq!(server.expect_line("request "), "before");
        client.expect_line("established");
        let attacker = stage.start("attacker", Identity::User(UNPRIVILEGED));
        attacker.expect_line("tries");
        holder.kill();
        client.send_line("ping 1");
        client.expect_line("pong 1");
        client.send_line(&format!("connect {address} 5001 after"));
        assert_eq!(server.expect_line("request "), "after");
        client.expect_line("established");
        // The same for the next holder.
        server.kill();
        let server = stage.start("server", Identity::Root);
        server.expect_line("ready");
        client.send_line(&format!("connect {address} 5001 again"));
        assert_eq!(server.expect_line("request "), "again");
        client.expect_line("established");
        assert_eq!(attacker.line_within("bound", Duration::ZERO), None);
    };
    run_test(name, scenario, |part| match part {
        "holder" => echo::serve(5002),
        "server" => echo::serve(5001),
        "client" => echo::ask(),
        _ => {
            print_line("tries");
            let at: SocketAddr =
                ("127.60.2.3".parse::<std::net::IpAddr>().unwrap(), ROCE_PORT).into();
            loop {
                if let Ok(socket) = UdpSocket::bind(at) {
                    dat_hostile::attack_then_wait("bound", || socket);
                }
                std::thread::yield_now();
            }
        }
    });
}
