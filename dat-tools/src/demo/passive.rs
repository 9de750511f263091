//! The process that is connected to: it answers messages, and compares what the other one has written to its memory.

use dat::Event;

use super::side::{ROUNDS, Side, TIMEOUT, WINDOW, pattern, unexpected, verify};
use crate::{Outcome, open};

/// Runs the passive process: prints its address, listens, and answers.
pub(crate) fn peer(name: &str) -> Outcome {
    let side = Side::new(open::in_own_process(name)?)?;
    let listener = side.ia.listen(None, &side.connections)?;
    println!("{} {}", side.ia.attributes()?.address, listener.conn_qual());
    side.post_recv()?;
    accept(&side)?;
    side.exchange_windows()?;
    let mut message = side.exchange(0)?;
    for _ in 0..ROUNDS {
        side.send(&message)?;
        // Our completion and the next message arrive in either order. The last message has the seed of the bytes in our window.
        message = side.exchange(1)?;
    }
    let seed = message[0];
    verify(
        "RDMA written memory",
        &side.window.to_vec(0..WINDOW),
        &pattern(seed),
    )?;
    // The peer reads the window next.
    side.window.write(0, &pattern(!seed));
    side.send(b"verified")?;
    side.exchange(1)?;
    match side.connections.wait(TIMEOUT)? {
        Event::Ended { .. } => Ok(()),
        other => Err(unexpected("disconnect", &other)),
    }
}

fn accept(side: &Side) -> Outcome {
    let request = match side.connections.wait(TIMEOUT)? {
        Event::Request(request) => request,
        other => {
            return Err(unexpected("connection request", &other));
        }
    };
    verify(
        "private data of the request",
        &request.private_data(),
        b"dat demo",
    )?;
    request.accept(&side.ep, b"welcome")?;
    match side.connections.wait(TIMEOUT)? {
        Event::Established { .. } => Ok(()),
        other => Err(unexpected("connection", &other)),
    }
}
