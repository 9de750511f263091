//! `dat serve-port`: holds UDP port 4791 of addresses for the processes of all users.

use std::io::Write;
use std::net::IpAddr;
use std::path::Path;

use softrxe_port::credentials::own_uid;
use softrxe_port::serve::Server;

use crate::Outcome;

/// Serves until it is ended.
pub(crate) fn run(state: Option<&Path>, addresses: &[IpAddr]) -> Outcome {
    let server = Server::new(addresses, state)?;
    let uid = own_uid();
    for local in server.locals() {
        println!(
            "holding UDP port {} of {} as user {uid}",
            local.port(),
            local.ip()
        );
    }
    if uid != 0 {
        println!("processes of other users join this one only with holder={uid} in ia_params");
    }
    std::io::stdout().flush()?;
    server.run()
}
