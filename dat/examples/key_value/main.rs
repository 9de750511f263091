//! A one-sided key-value store: clients read the server's memory without its processor. Each slot of the table is a seqlock.
//!
//! ```sh
//! cargo run --example key_value -- server softrxe-lo             # prints its address and qualifier
//! cargo run --example key_value -- client softrxe-lo ADDRESS QUALIFIER put KEY VALUE
//! cargo run --example key_value -- client softrxe-lo ADDRESS QUALIFIER get KEY
//! cargo run --example key_value -- client softrxe-lo ADDRESS QUALIFIER stress KEY COUNT
//! ```

#![forbid(unsafe_code)]

mod client;
mod server;
mod slot;

use udapl::aio::block_on;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["server", adapter] => block_on(server::run(adapter)),
        ["client", adapter, address, qualifier, ref command @ ..] => {
            block_on(client::run(adapter, address, qualifier, command))
        }
        _ => Err("usage: key_value server ADAPTER | client ADAPTER ADDRESS QUALIFIER put KEY VALUE | get KEY | stress KEY COUNT".into()),
    }
}
