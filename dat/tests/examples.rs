//! The examples, as processes with addresses of their own.

#[path = "common/example.rs"]
mod example;

use example::Example;

#[test]
fn echo() {
    let (_server, at) = Example::server("echo", &["server", "softrxe-127.0.82.1"]);
    let client = || {
        Example::start(
            "echo",
            &["client", "softrxe-127.0.82.2", &at[0], &at[1], "200"],
        )
    };
    for client in [client(), client()] {
        let lines = client.finish();
        assert!(lines[0].starts_with("200 messages came back"), "{lines:?}");
    }
}

#[test]
fn a_counter_of_several_clients_loses_nothing() {
    let (server, at) = Example::server("counter", &["server", "softrxe-127.0.82.3", "3"]);
    let client = || {
        Example::start(
            "counter",
            &["client", "softrxe-127.0.82.4", &at[0], &at[1], "100"],
        )
    };
    for client in [client(), client(), client()] {
        assert_eq!(client.finish(), ["added 100"]);
    }
    assert_eq!(server.finish(), ["the sum is 300, the largest number 300"]);
}

#[test]
fn a_key_value_store_is_read_while_it_changes() {
    let (_server, at) = Example::server("key_value", &["server", "softrxe-127.0.82.5"]);
    let command = |words: &[&str]| {
        let client = ["client", "softrxe-127.0.82.6", &at[0], &at[1]];
        Example::start("key_value", &[&client, words].concat())
    };
    command(&["put", "colour", "green"]).finish();
    command(&["put", "shape", "round"]).finish();
    command(&["put", "colour", "blue"]).finish();
    assert_eq!(command(&["get", "colour"]).finish(), ["blue"]);
    assert_eq!(command(&["get", "shape"]).finish(), ["round"]);
    // Three clients change and read the same slot; none may see a mixture.
    let busy = || command(&["stress", "shared", "200"]);
    for client in [busy(), busy(), busy()] {
        let lines = client.finish();
        assert!(lines[0].starts_with("1000 reads"), "{lines:?}");
    }
    assert_eq!(command(&["get", "colour"]).finish(), ["blue"]);
}

#[test]
fn subscribers_get_the_messages_of_their_topic() {
    const NAME: &str = "publish_subscribe";
    let (_broker, at) = Example::server(NAME, &["broker", "softrxe-127.0.82.7"]);
    let subscribe = |adapter: &str, topic: &str| {
        let place = ["subscribe", adapter, &at[0], &at[1], topic, "10"];
        let mut subscriber = Example::start(NAME, &place);
        assert_eq!(subscriber.line(), "subscribed");
        subscriber
    };
    let news = subscribe("softrxe-127.0.82.8", "news");
    let also_news = subscribe("softrxe-127.0.82.9", "news");
    let weather = subscribe("softrxe-127.0.82.10", "weather");
    // Datagrams may be lost: they publish until each subscriber has ten.
    let publish = |adapter: &str, topic: &str, text: &str| {
        Example::start(
            NAME,
            &["publish", adapter, &at[0], &at[1], topic, text, "1000000"],
        )
    };
    let _publishers = [
        publish("softrxe-127.0.82.11", "news", "headline"),
        publish("softrxe-127.0.82.12", "weather", "rain"),
    ];
    for (subscriber, beginning) in [
        (news, "news: headline "),
        (also_news, "news: headline "),
        (weather, "weather: rain "),
    ] {
        let lines = subscriber.finish();
        assert_eq!(lines.len(), 10);
        assert!(lines.iter().all(|l| l.starts_with(beginning)), "{lines:?}");
    }
}
