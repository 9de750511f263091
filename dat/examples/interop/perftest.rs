//! The protocol of the perftest programs with `-R`: one connection for handshakes, and a second one to the same port for the test. On
//! the first the client sends, and the server answers with a message of the same length.

use std::error::Error;
use std::net::IpAddr;
use std::str::FromStr;

use udapl::{Access, Event, Region, Remote};

use super::link::{Link, Local, request, unexpected};

/// RDMA_PS_TCP port of perftest.
const PORT: u64 = 18_515;
/// Length of the message that describes the memory: the key is at 16, the address at 24.
const PLACE: usize = 56;
const KEY: usize = 16;
const ADDRESS: usize = 24;
/// Length of the tests' buffers, which use twice the message size and at least two pages.
const MEMORY: usize = 4 << 20;
/// Number of receives for `ib_send_bw`.
const DEPTH: usize = 256;
/// Largest message for `ib_send_bw`.
const LONGEST: usize = 64 * 1024;

/// Operation of the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Test {
    Write,
    Read,
    Send,
}

impl FromStr for Test {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "write" => Ok(Self::Write),
            "read" => Ok(Self::Read),
            "send" => Ok(Self::Send),
            _ => Err(format!("{text:?} is none of write, read, send")),
        }
    }
}

/// Returns the message that describes `remote`.
fn place(remote: Remote) -> [u8; PLACE] {
    let mut bytes = [0; PLACE];
    bytes[KEY..KEY + 4].copy_from_slice(&remote.key.to_be_bytes());
    bytes[ADDRESS..ADDRESS + 8].copy_from_slice(&remote.address.to_be_bytes());
    bytes
}

fn places(bytes: &[u8]) -> Remote {
    let word =
        |at: usize| u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    Remote {
        address: u64::from(word(ADDRESS)) << 32 | u64::from(word(ADDRESS + 4)),
        key: word(KEY),
        length: 0,
    }
}

/// Runs the server of `ib_{write,read,send}_bw -R` and `ib_read_lat -R`.
pub(crate) fn serve(local: &Local) -> Result<String, Box<dyn Error>> {
    let _listener = local.ia.listen(Some(PORT), &local.connections)?;
    println!("interop: ready");
    let memory = local.pz.allocate(MEMORY, Access::all())?;
    let control = Link::new(local, 8, 64)?;
    control.accept(local, request(local)?)?;
    let data = Link::new(local, DEPTH, LONGEST)?;
    let (mut asked, mut messages, mut received, mut ended) = (false, 0_u32, 0_u32, 0);
    loop {
        if let Some(mut message) = control.poll()? {
            if message.len() == PLACE && message.iter().any(|b| *b != 0) {
                message = place(memory.remote(0..MEMORY)).to_vec();
            }
            control.send(&message)?;
            messages += 1;
        }
        while data.poll()?.is_some() {
            received += 1;
        }
        match local.connections.poll()? {
            Some(Event::Request(request)) if !asked => {
                request.accept(&data.ep, &[])?;
                asked = true;
            }
            Some(Event::Ended { .. }) => ended += 1,
            Some(Event::Established { .. }) | None => {}
            Some(other) => return Err(unexpected("the second connection", &other).into()),
        }
        if ended == 2 {
            let touched = memory.to_vec(0..MEMORY).iter().any(|b| *b != 0);
            return Ok(format!(
                "perftest server, {messages} hand-shakes, {received} messages received, memory {}",
                if touched { "written" } else { "untouched" }
            ));
        }
        std::thread::yield_now();
    }
}

/// Runs the client.
pub(crate) fn run(
    local: &Local,
    address: IpAddr,
    test: Test,
    count: u32,
    size: usize,
) -> Result<String, Box<dyn Error>> {
    let memory = local.pz.allocate(size, Access::ALL)?;
    memory.write(0, &vec![0x5a; size]);
    let control = Link::connect(local, 8, 64, address, PORT)?;
    let say = |message: &[u8]| -> Result<Vec<u8>, udapl::Error> {
        control.send(message)?;
        control.receive()
    };
    // Version, page and cache line size, path MTU (a digit, 3 is 1024); the rest is unused.
    say(b"6.06\0\0\0\0\0\0\0\0\0\0\0\0")?;
    say(&4096_u32.to_be_bytes())?;
    say(&64_u32.to_be_bytes())?;
    say(b"3\0")?;
    say(&[0; PLACE])?;
    let data = Link::connect(local, 1, 64, address, PORT)?;
    say(&[0; PLACE])?;
    let mine = place(memory.remote(0..size));
    let mut peer = places(&say(&mine)?);
    peer.length = u32::try_from(size)?;
    say(&mine)?;
    say(&mine)?;
    transfer(&data, test, &memory, peer, count)?;
    say(&mine)?;
    // Size, iterations and three results, which a server that measures itself ignores.
    if test != Test::Send {
        for number in [size as u64, u64::from(count), 0, 0, 0] {
            say(&number.to_be_bytes())?;
        }
    }
    say(&mine)?;
    data.close(local)?;
    control.close(local)?;
    Ok(format!(
        "perftest client, {count} times {test:?} of {size} bytes"
    ))
}

fn transfer(
    data: &Link,
    test: Test,
    memory: &Region,
    peer: Remote,
    count: u32,
) -> Result<(), udapl::Error> {
    for _ in 0..count {
        match test {
            Test::Write => data.write(memory, memory.len(), peer)?,
            Test::Read => data.read(memory, memory.len(), peer)?,
            Test::Send => data.send_region(memory)?,
        }
    }
    Ok(())
}
