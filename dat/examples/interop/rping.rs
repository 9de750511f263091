//! The protocol of rping. Both sides send messages of 16 bytes; the client's contain address and key of its memory.
//!
//! A round: the client sends the address of its source buffer; the server reads it and sends "go on"; the client sends the address of
//! its sink; the server writes the bytes there and sends "go on"; the client compares them.

use std::error::Error;
use std::net::IpAddr;

use udapl::{Access, Event, Remote};

use super::link::{Link, Local, request};

/// RDMA_PS_TCP port of rping.
const PORT: u64 = 7174;
/// Length of a message: address, key and size in network order.
const MESSAGE: usize = 16;
/// Largest buffer of rping.
const LARGEST: usize = 64 * 1024;

fn encode(remote: Remote) -> [u8; MESSAGE] {
    let mut bytes = [0; MESSAGE];
    bytes[..8].copy_from_slice(&remote.address.to_be_bytes());
    bytes[8..12].copy_from_slice(&remote.key.to_be_bytes());
    bytes[12..].copy_from_slice(&remote.length.to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Result<Remote, Box<dyn Error>> {
    let bytes: [u8; MESSAGE] = bytes
        .try_into()
        .map_err(|_| "a message of 16 bytes was due")?;
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Ok(Remote {
        address: u64::from(word(0)) << 32 | u64::from(word(4)),
        key: word(8),
        length: word(12),
    })
}

/// Runs `rping -s` for one client.
pub(crate) fn serve(local: &Local) -> Result<String, Box<dyn Error>> {
    let _listener = local.ia.listen(Some(PORT), &local.connections)?;
    println!("interop: ready");
    let link = Link::new(local, 4, MESSAGE)?;
    let region = local.pz.allocate(LARGEST, Access::ALL)?;
    link.accept(local, request(local)?)?;
    let mut rounds = 0_u32;
    loop {
        let Some(source) = next(local, &link)? else {
            return Ok(format!("rping server, {rounds} rounds"));
        };
        let source = decode(&source)?;
        let length = source.length as usize;
        if length > LARGEST {
            return Err(format!("a buffer of {length} bytes").into());
        }
        link.read(&region, length, source)?;
        link.send(&[0; MESSAGE])?;
        let sink = decode(&link.receive()?)?;
        link.write(&region, length, sink)?;
        link.send(&[0; MESSAGE])?;
        rounds += 1;
    }
}

/// Waits for the next message; returns `None` after the connection's end.
fn next(local: &Local, link: &Link) -> Result<Option<Vec<u8>>, Box<dyn Error>> {
    loop {
        if let Some(message) = link.poll()? {
            return Ok(Some(message));
        }
        if let Some(Event::Ended { .. }) = local.connections.poll()? {
            return Ok(None);
        }
        std::thread::yield_now();
    }
}

/// Runs `rping -c -C count -S size -V`.
pub(crate) fn ping(
    local: &Local,
    address: IpAddr,
    count: u32,
    size: usize,
) -> Result<String, Box<dyn Error>> {
    if size == 0 || size > LARGEST {
        return Err(format!("rping's buffers have 1 to {LARGEST} bytes, not {size}").into());
    }
    let link = Link::connect(local, 4, MESSAGE, address, PORT)?;
    let source = local.pz.allocate(size, Access::ALL)?;
    let sink = local.pz.allocate(size, Access::ALL)?;
    for round in 0..count {
        // The server writes a C string back.
        let mut text: Vec<u8> = (0..size)
            .map(|i| b'A' + ((i as u32 * 7 + round) % 58) as u8)
            .collect();
        text[size - 1] = 0;
        source.write(0, &text);
        sink.write(0, &vec![0; size]);
        link.send(&encode(source.remote(0..size)))?;
        link.receive()?;
        link.send(&encode(sink.remote(0..size)))?;
        link.receive()?;
        if sink.to_vec(0..size) != text {
            return Err(format!("round {round}: what came back is not what was there").into());
        }
    }
    link.close(local)?;
    Ok(format!(
        "rping client, {count} rounds of {size} bytes compared"
    ))
}
