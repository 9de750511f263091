//! Another user has UDP port 4791 of an address, with or without the names under which processes meet, before a
//! victim opens an adapter there. It must not carry the victim's connections.

use std::net::{SocketAddr, UdpSocket};
use std::time::Duration;

use dat_hostile::{Actor, Figures, Identity, NOBODY, Stage, echo, play, say};

const ROCE_PORT: u16 = 4791;

/// Serves with the engine, so that the attacker has the port and all that comes with it.
fn attacker(stage: &Stage) -> Actor {
    let attacker = stage.start("attacker", Identity::User(NOBODY));
    attacker.says("ready");
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
        // Without trust between them the server cannot be reached, so it is told so, and why.
        let said = server.logs("UDP port 4791 of 127.60.2.1 belongs to ");
        assert!(
            said.starts_with("user 65534 and not to this one (uid 0)"),
            "{said}"
        );
        assert!(said.contains("dat serve-port 127.60.2.1"), "{said}");
        server.says("error ");
        figures.note("server, refused", &server);
        let mut client = stage.start("client", Identity::Root);
        client.says("error ");
        client.tell("connect 127.60.2.1 5001 secret");
        figures.show();
        let stolen = attacker.says_within("request ", Duration::from_secs(2));
        assert_eq!(stolen, None, "the attacker read what the client sent");
        // The address works for the user that has it, and for others when that one is gone.
        attacker.kill();
        let server = stage.start("server", Identity::Root);
        server.says("ready");
        let mut client = stage.start("client", Identity::Root);
        client.says("ready");
        client.tell("connect 127.60.2.1 5001 hello");
        assert_eq!(server.says("request "), "hello");
        client.says("established");
    };
    play(name, scenario, |part| match part {
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
        attacker.says("bound");
        for who in [Identity::Root, Identity::User(NOBODY)] {
            let server = stage.start("server", who);
            server.logs("belongs to user 1234 and not to this one");
            server.says("error ");
        }
    };
    play(name, scenario, |part| match part {
        "server" => echo::serve(5001),
        _ => {
            let at: SocketAddr =
                ("127.60.2.2".parse::<std::net::IpAddr>().unwrap(), ROCE_PORT).into();
            let socket = UdpSocket::bind(at).expect("the port is free");
            dat_hostile::tempt("bound", || socket);
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
        holder.says("ready");
        let server = stage.start("server", Identity::Root);
        server.says("ready");
        let mut client = stage.start("client", Identity::Root);
        client.says("ready");
        client.tell(&format!("connect {address} 5001 before"));
        assert_eq!(server.says("request "), "before");
        client.says("established");
        let attacker = stage.start("attacker", Identity::User(NOBODY));
        attacker.says("tries");
        holder.kill();
        client.tell("ping 1");
        client.says("pong 1");
        client.tell(&format!("connect {address} 5001 after"));
        assert_eq!(server.says("request "), "after");
        client.says("established");
        // The next one, too.
        server.kill();
        let server = stage.start("server", Identity::Root);
        server.says("ready");
        client.tell(&format!("connect {address} 5001 again"));
        assert_eq!(server.says("request "), "again");
        client.says("established");
        assert_eq!(attacker.says_within("bound", Duration::ZERO), None);
    };
    play(name, scenario, |part| match part {
        "holder" => echo::serve(5002),
        "server" => echo::serve(5001),
        "client" => echo::ask(),
        _ => {
            say("tries");
            let at: SocketAddr =
                ("127.60.2.3".parse::<std::net::IpAddr>().unwrap(), ROCE_PORT).into();
            loop {
                if let Ok(socket) = UdpSocket::bind(at) {
                    dat_hostile::tempt("bound", || socket);
                }
                std::thread::yield_now();
            }
        }
    });
}
