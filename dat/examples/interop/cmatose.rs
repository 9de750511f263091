//! The protocol of `ucmatose` with its default arguments. The server sends ten messages of 100 bytes, then receives as many; then it
//! disconnects. The contents of ucmatose's messages are not defined.

use std::error::Error;
use std::net::IpAddr;

use super::link::{Link, Local, request};

/// RDMA_PS_TCP port of ucmatose.
const PORT: u64 = 7471;
/// Messages that each side sends.
const COUNT: usize = 10;
/// Length of a message.
const MESSAGE: usize = 100;

fn send(link: &Link) -> Result<(), Box<dyn Error>> {
    for _ in 0..COUNT {
        link.send(&[7; MESSAGE])?;
    }
    Ok(())
}

fn receive(link: &Link) -> Result<(), Box<dyn Error>> {
    for _ in 0..COUNT {
        let length = link.receive()?.len();
        if length != MESSAGE {
            return Err(format!("a message of {length} bytes, not of {MESSAGE}").into());
        }
    }
    Ok(())
}

/// Runs `ucmatose` for one client.
pub(crate) fn serve(local: &Local) -> Result<String, Box<dyn Error>> {
    let _listener = local.ia.listen(Some(PORT), &local.connections)?;
    println!("interop: ready");
    let link = Link::new(local, COUNT, MESSAGE)?;
    link.accept(local, request(local)?)?;
    send(&link)?;
    receive(&link)?;
    link.close(local)?;
    Ok(format!("ucmatose server, {COUNT} messages each way"))
}

/// Runs `ucmatose -s ADDRESS`.
pub(crate) fn run(local: &Local, address: IpAddr) -> Result<String, Box<dyn Error>> {
    let link = Link::connect(local, COUNT, MESSAGE, address, PORT)?;
    receive(&link)?;
    send(&link)?;
    link.ended(local)?;
    Ok(format!("ucmatose client, {COUNT} messages each way"))
}
