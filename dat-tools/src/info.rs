//! `dat list` and `dat info`.

use crate::Outcome;

/// Prints the IAs of dat.conf.
pub(crate) fn list() -> Outcome {
    for (name, what) in dat::configured()? {
        println!("{name:<20} {what}");
    }
    Ok(())
}

/// Opens an IA and prints its attributes.
pub(crate) fn info(name: &str) -> Outcome {
    let attributes = dat::Ia::open(name)?.attributes()?;
    println!("IA                 {name}");
    println!(
        "adapter            {} ({})",
        attributes.adapter, attributes.vendor
    );
    println!("address            {}", attributes.address);
    println!("endpoints          {}", attributes.max_eps);
    println!("message size       {} bytes", attributes.max_message_size);
    println!("RDMA size          {} bytes", attributes.max_rdma_size);
    println!("private data       {} bytes", attributes.max_private_data);
    for (name, value) in attributes.named {
        println!("{name:<30} {value}");
    }
    Ok(())
}
