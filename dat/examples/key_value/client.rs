//! A client: it reads slots by RDMA Read, and sends new values to the server.

use udapl::Remote;
use udapl::aio::{Connection, Context, Options, Pool, join};

use crate::Result;
use crate::slot::{SIZE, SLOTS, VERSION, decode, encode, first};

struct Store {
    server: Connection,
    table: Remote,
    pool: Pool,
    /// Reads that met a change of their slot.
    repeated: u64,
}

impl Store {
    async fn connect(adapter: &str, address: &str, qualifier: &str) -> Result<Self> {
        let context = Context::open(adapter)?;
        let options = Options::default();
        let server = context.connect(address.parse()?, qualifier.parse()?, &options);
        let server = server.await?;
        let key = server.private_data();
        Ok(Self {
            table: Remote::from_prefix(&key).ok_or("the server sent no key")?,
            pool: context.pool(4, SIZE)?,
            server,
            repeated: 0,
        })
    }

    /// Reads a slot: its version, its content, and its version again, in one round trip. Reads of a connection are executed in the
    /// order in which they were posted. Equal even versions prove that the content is of that version.
    async fn read(&mut self, slot: usize) -> Result<Vec<u8>> {
        let at = (slot * SIZE) as u32;
        let version = self.table.slice(at..at + VERSION as u32);
        let content = self.table.slice(at + VERSION as u32..at + SIZE as u32);
        loop {
            let mut reads = Vec::new();
            for part in [version, content, version] {
                let mut buffer = self.pool.take().await;
                buffer.set_len(part.length as usize);
                reads.push(self.server.read(part, buffer).posted().await);
            }
            let mut parts = Vec::new();
            for read in reads {
                let (buffer, done) = read.await;
                done?;
                parts.push(buffer);
            }
            // The server is of this machine's byte order.
            if parts[0][..] == parts[2][..] && parts[0][0] & 1 == 0 {
                return Ok(parts[1].to_vec());
            }
            self.repeated += 1;
        }
    }

    async fn get(&mut self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let begin = first(key);
        for slot in (begin..SLOTS).chain(0..begin) {
            let content = self.read(slot).await?;
            let (found, value) = decode(&content).ok_or("a slot has an impossible content")?;
            if found == key {
                return Ok(Some(value.to_vec()));
            }
            if found.is_empty() {
                return Ok(None);
            }
        }
        Ok(None)
    }

    async fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let content = encode(key, value).ok_or("key or value are too long")?;
        let message = self.pool.take().await.filled(&content);
        let (sent, answer) = join(self.server.send(message), self.server.recv()).await;
        sent.1?;
        match answer?[..] {
            [1] => Ok(()),
            _ => Err("the table is full".into()),
        }
    }

    /// Writes and reads a key that other clients write too. A value has one letter only, so that a mixture shows.
    async fn stress(&mut self, key: &[u8], count: u32) -> Result<()> {
        for round in 0..count {
            let letter = b'a' + (round % 26) as u8;
            let length = 20 + round as usize % 60;
            self.put(key, &vec![letter; length]).await?;
            for _ in 0..5 {
                let value = self.get(key).await?.ok_or("the key is gone")?;
                if value.iter().any(|byte| *byte != value[0]) {
                    return Err(format!("a mixture of values was read: {value:?}").into());
                }
            }
        }
        let reads = count * 5;
        println!("{reads} reads, {} repeated", self.repeated);
        Ok(())
    }
}

pub(crate) async fn run(
    adapter: &str,
    address: &str,
    qualifier: &str,
    command: &[&str],
) -> Result<()> {
    let mut store = Store::connect(adapter, address, qualifier).await?;
    match *command {
        ["put", key, value] => store.put(key.as_bytes(), value.as_bytes()).await?,
        ["get", key] => match store.get(key.as_bytes()).await? {
            Some(value) => println!("{}", String::from_utf8_lossy(&value)),
            None => return Err(format!("there is no key {key:?}").into()),
        },
        ["stress", key, count] => store.stress(key.as_bytes(), count.parse()?).await?,
        _ => return Err("the commands are put KEY VALUE, get KEY, stress KEY COUNT".into()),
    }
    store.server.disconnect().await?;
    Ok(())
}
