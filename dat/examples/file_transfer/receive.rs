//! The receiver: it maps the file, opens it to the sender, and notes after each chunk how far it is.

use std::fs;
use std::path::{Path, PathBuf};

use udapl::aio::{Connection, Context, Options};
use udapl::{Access, Memory, Region};

use crate::Result;
use crate::offer::{Answer, CHUNK, OFFER_MOST, Offer};

/// The files of a transfer: the contents so far, and the note of how many chunks are there.
struct Partial {
    contents: PathBuf,
    note: PathBuf,
}

impl Partial {
    fn of(folder: &Path, offer: &Offer) -> Self {
        Self {
            contents: folder.join(format!("{}.part", offer.name)),
            note: folder.join(format!("{}.note", offer.name)),
        }
    }

    /// Returns the number of chunks that an earlier transfer of the same contents left.
    fn chunks(&self, offer: &Offer) -> u32 {
        let note = fs::read_to_string(&self.note).unwrap_or_default();
        let count = note.strip_prefix(&format!("{} {} ", offer.size, offer.checksum));
        let has_size = fs::metadata(&self.contents).is_ok_and(|m| m.len() == offer.size);
        match count.and_then(|count| count.trim().parse().ok()) {
            Some(count) if has_size => count,
            _ => 0,
        }
    }

    /// Notes how many chunks are there. A rename is whole, so that a kill leaves the old note or the new one.
    fn set_chunks(&self, offer: &Offer, count: u32) -> std::io::Result<()> {
        let new = self.note.with_extension("note-new");
        fs::write(&new, format!("{} {} {count}\n", offer.size, offer.checksum))?;
        fs::rename(new, &self.note)
    }

    fn map(&self, offer: &Offer, context: &Context) -> Result<Region> {
        let options = fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&self.contents);
        let file = options?;
        file.set_len(offer.size)?;
        let memory = Memory::file(&file, usize::try_from(offer.size)?)?;
        let rights = Access::LOCAL_READ | Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        Ok(context.pz().register(memory, rights)?)
    }
}

fn checksum(region: &Region) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for at in (0..region.len()).step_by(CHUNK) {
        hasher.update(&region.to_vec(at..region.len().min(at + CHUNK)));
    }
    hasher.finalize()
}

async fn receive(connection: &Connection, folder: &Path) -> Result<()> {
    let context = connection.context();
    let message = connection.recv().await?;
    let offer = Offer::decode(&message).ok_or("the peer made no offer")?;
    drop(message);
    let partial = Partial::of(folder, &offer);
    let mut count = partial.chunks(&offer);
    let region = partial.map(&offer, &context)?;
    let answer = Answer {
        // The length is given with each chunk; a segment has at most 4 GiB.
        memory: region.remote(0..region.len().min(CHUNK)),
        first: count,
    };
    let pool = context.pool(1, 64)?;
    let message = pool.take().await.filled(&answer.encode());
    connection.send(message).await.1?;
    while count < offer.chunks() {
        let told = connection.recv().await?;
        if told.immediate() != Some(count) {
            return Err(format!("chunk {count} is next, not {:?}", told.immediate()).into());
        }
        count += 1;
        partial.set_chunks(&offer, count)?;
    }
    let is_equal = checksum(&region) == offer.checksum;
    if is_equal {
        fs::rename(&partial.contents, folder.join(&offer.name))?;
        println!("received {} with {} bytes", offer.name, offer.size);
    } else {
        println!("{} has a wrong checksum, and is sent anew", offer.name);
    }
    fs::remove_file(&partial.note)?;
    let verdict = pool.take().await.filled(&[is_equal.into()]);
    connection.send(verdict).await.1?;
    connection.closed().await;
    Ok(())
}

pub(crate) async fn run(adapter: &str, folder: &Path, qualifier: u64) -> Result<()> {
    let context = Context::open_tokio(adapter)?;
    let options = Options {
        message_size: OFFER_MOST,
        ..Options::default()
    };
    let mut listener = context.listen(Some(qualifier), options)?;
    println!("listens {} {}", context.address(), listener.conn_qual());
    loop {
        match listener.accept().await {
            Ok(connection) => {
                if let Err(error) = receive(&connection, folder).await {
                    println!("a transfer stopped: {error}");
                }
            }
            Err(error) => println!("a sender was not accepted: {error}"),
        }
    }
}
