//! File transfer: the sender writes chunks into the receiver's mapped file by RDMA, several at a time, and goes on where it was when
//! one of the two was killed in between. The end is a checksum of the whole file.
//!
//! ```sh
//! cargo run --features tokio --example file_transfer -- receive softrxe-lo FOLDER QUALIFIER      # prints its address
//! cargo run --features tokio --example file_transfer -- send softrxe-lo ADDRESS QUALIFIER FILE [MEGABYTES_PER_SECOND]
//! ```

#![forbid(unsafe_code)]

mod offer;
mod receive;
mod send;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    udapl::log::install();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["receive", adapter, folder, qualifier] => {
            receive::run(adapter, folder.as_ref(), qualifier.parse()?).await
        }
        ["send", adapter, address, qualifier, file, ref limit @ ..] => {
            let limit = limit.first().map(|limit| limit.parse()).transpose()?;
            send::run(adapter, (address.parse()?, qualifier.parse()?), file.as_ref(), limit).await
        }
        _ => Err("usage: file_transfer receive ADAPTER FOLDER QUALIFIER | send ADAPTER ADDRESS QUALIFIER FILE [MEGABYTES_PER_SECOND]".into()),
    }
}
