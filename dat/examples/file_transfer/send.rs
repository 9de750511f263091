//! The sender: it keeps a window of chunks under way, and connects again when the connection is lost.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};
use udapl::Error;
use udapl::aio::{Buffer, Connection, Context, Operation, Options};

use crate::Result;
use crate::offer::{Answer, CHUNK, Offer};

/// Chunks that are under way at a time.
const WINDOW: usize = 8;
/// Pause before another attempt to connect, and number of attempts in a row.
const PAUSE: Duration = Duration::from_millis(200);
const ATTEMPTS: u32 = 600;

/// What is sent, and how.
struct Transfer {
    offer: Offer,
    file: File,
    bar: ProgressBar,
    /// Pause for each chunk.
    pause: Duration,
}

impl Transfer {
    fn new(path: &Path, limit: Option<f64>) -> Result<Self> {
        let mut file = File::open(path)?;
        let name = path.file_name().and_then(|name| name.to_str());
        let mut hasher = crc32fast::Hasher::new();
        let mut chunk = vec![0; CHUNK];
        let mut size = 0;
        loop {
            match file.read(&mut chunk)? {
                0 => break,
                count => {
                    hasher.update(&chunk[..count]);
                    size += count as u64;
                }
            }
        }
        if size == 0 {
            return Err("the file is empty".into());
        }
        let style = "{bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}";
        let bar = ProgressBar::new(size).with_style(ProgressStyle::with_template(style)?);
        let seconds = limit.map_or(0.0, |limit| CHUNK as f64 / (limit * 1e6));
        Ok(Self {
            offer: Offer {
                size,
                checksum: hasher.finalize(),
                name: name.ok_or("the file's name is no text")?.to_owned(),
            },
            file,
            bar,
            pause: Duration::from_secs_f64(seconds),
        })
    }

    /// Writes the chunks that the receiver lacks. Returns whether the receiver found the right checksum.
    async fn run(&self, receiver: &Connection) -> Result<bool> {
        let context = receiver.context();
        let pool = context.pool(WINDOW, CHUNK)?;
        let offer = pool.take().await.filled(&self.offer.encode());
        receiver.send(offer).await.1?;
        let answer = receiver.recv().await?;
        let answer = Answer::decode(&answer).ok_or("the receiver sent no answer")?;
        if answer.first > 0 {
            println!(
                "resumes at chunk {} of {}",
                answer.first,
                self.offer.chunks()
            );
        }
        self.bar.set_position(
            self.offer
                .chunk(answer.first.min(self.offer.chunks() - 1))
                .0,
        );
        let mut window: VecDeque<Operation<Buffer>> = VecDeque::new();
        for number in answer.first..self.offer.chunks() {
            let mut buffer = match pool.try_take() {
                Some(free) => free,
                None => self.oldest(&mut window).await?,
            };
            let part = self.offer.chunk(number);
            buffer.set_len(part.1);
            self.file.read_exact_at(&mut buffer, part.0)?;
            let write = receiver.write_immediate(buffer, answer.at(part), number);
            window.push_back(write.posted().await);
            if !self.pause.is_zero() {
                tokio::time::sleep(self.pause).await;
            }
        }
        while !window.is_empty() {
            self.oldest(&mut window).await?;
        }
        let verdict = receiver.recv().await?;
        Ok(verdict[..] == [1])
    }

    /// Waits for the oldest chunk of the window, and returns its buffer.
    async fn oldest(&self, window: &mut VecDeque<Operation<Buffer>>) -> Result<Buffer> {
        let write = window.pop_front().ok_or("each buffer is under way")?;
        let (buffer, written) = write.await;
        self.bar.inc(written?.into());
        Ok(buffer)
    }
}

/// Returns whether the receiver may be back soon.
fn is_worth_a_retry(error: &(dyn std::error::Error + 'static)) -> bool {
    let error = error.downcast_ref::<Error>();
    error.is_some_and(|error| error.is_connection_gone() || matches!(error, Error::Failed { .. }))
}

pub(crate) async fn run(
    adapter: &str,
    (address, qualifier): (IpAddr, u64),
    path: &Path,
    limit: Option<f64>,
) -> Result<()> {
    let transfer = Transfer::new(path, limit)?;
    let context = Context::open_tokio(adapter)?;
    let options = Options {
        timeout: Duration::from_secs(5),
        ..Options::default()
    };
    let mut attempts = 0;
    loop {
        let done = match context.connect(address, qualifier, &options).await {
            Ok(receiver) => {
                attempts = 0;
                let done = transfer.run(&receiver).await;
                // A connection that is lost needs no goodbye.
                let _ = receiver.disconnect().await;
                done
            }
            Err(error) => Err(error.into()),
        };
        match done {
            Ok(true) => break,
            Ok(false) => println!("the checksum is wrong; the file is sent anew"),
            Err(error) if attempts < ATTEMPTS && is_worth_a_retry(&*error) => {
                if attempts == 0 {
                    println!("lost the receiver: {error}");
                }
                attempts += 1;
                tokio::time::sleep(PAUSE).await;
            }
            Err(error) => return Err(error),
        }
    }
    transfer.bar.finish();
    println!(
        "sent {} with {} bytes",
        transfer.offer.name, transfer.offer.size
    );
    Ok(())
}
