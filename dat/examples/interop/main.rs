//! Implements the protocols of `rping`, `ucmatose` and the perftest programs (`ib_write_bw -R` ...) over DAT, as client and as server, against
//! peers that use librdmacm. tests/lab/interop.sh runs it against the kernel's rdma_rxe.
//!
//! ```text
//! interop IA rping server                                 then, elsewhere: rping -c -a ADDRESS -C COUNT -S SIZE
//! interop IA rping client ADDRESS COUNT SIZE              rping -s there
//! interop IA ucmatose server                              ucmatose -s ADDRESS there
//! interop IA ucmatose client ADDRESS                      ucmatose there
//! interop IA perftest server                              ib_{write,read,send}_bw -R or ib_read_lat -R ADDRESS there
//! interop IA perftest client ADDRESS write|read|send COUNT SIZE
//! ```

mod cmatose;
mod link;
mod perftest;
mod rping;

use std::error::Error;
use std::net::IpAddr;

use link::Local;
use udapl::{Ia, Streams};

const USAGE: &str = "usage: interop IA rping server | rping client ADDRESS COUNT SIZE | ucmatose server | \
                     ucmatose client ADDRESS | perftest server | perftest client ADDRESS write|read|send COUNT SIZE";

fn run(arguments: &[&str]) -> Result<String, Box<dyn Error>> {
    let [name, rest @ ..] = arguments else {
        return Err(USAGE.into());
    };
    let local = || -> Result<Local, udapl::Error> {
        let ia = Ia::open(name)?;
        let pz = ia.create_pz()?;
        let connections = ia.create_evd(64, Streams::CR | Streams::CONNECTION)?;
        Ok(Local {
            ia,
            pz,
            connections,
        })
    };
    match rest {
        ["rping", "server"] => rping::serve(&local()?),
        ["rping", "client", address, count, size] => {
            let address: IpAddr = address.parse()?;
            rping::ping(&local()?, address, count.parse()?, size.parse()?)
        }
        ["ucmatose", "server"] => cmatose::serve(&local()?),
        ["ucmatose", "client", address] => cmatose::run(&local()?, address.parse()?),
        ["perftest", "server"] => perftest::serve(&local()?),
        ["perftest", "client", address, test, count, size] => {
            let address: IpAddr = address.parse()?;
            perftest::run(
                &local()?,
                address,
                test.parse()?,
                count.parse()?,
                size.parse()?,
            )
        }
        _ => Err(USAGE.into()),
    }
}

fn main() {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match run(&arguments) {
        Ok(done) => println!("interop: {done}"),
        Err(error) => {
            eprintln!("interop: {error}");
            std::process::exit(1);
        }
    }
}
