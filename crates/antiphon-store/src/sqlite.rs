//! The log of one server, in one SQLite file on a local disk. It opens, queues and answers; the SQL is in `database`.
//! Several servers need a log they can share, which this is not.

mod classify;
mod database;
mod open;

use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use async_trait::async_trait;
use tokio::sync::oneshot;
use tokio::task::spawn_blocking;

use self::database::Database;
use crate::log::assert_times_fit;
use crate::pack;
use crate::{Entry, Fence, Image, ImageHeader, Log, StoreError};

/// A log in `DIR/log.db`, held by one process through `DIR/lock`.
///
/// One connection lives on one thread of its own: SQLite blocks, an append for as long as the disk takes to sync, and
/// no thread of the async runtime should wait for that. Calls are served in the order in which they come. Groups of
/// events are the caller's to form, since one append is one sync.
///
/// The async methods need a Tokio runtime. Dropping the log waits for the call in progress and frees the lock.
pub struct SqliteLog {
    place: String,
    /// `None` only while it is being dropped.
    calls: Option<mpsc::Sender<Call>>,
    thread: Option<JoinHandle<()>>,
}

type Call = Box<dyn FnOnce(&mut Database) + Send>;

impl SqliteLog {
    /// Opens the log in `dir` for writing, and creates both where they do not exist.
    ///
    /// The work does not grow with the log: it checks the format and the ends of the log, not every page. For that there
    /// is [`SqliteLog::verify`].
    ///
    /// # Errors
    /// Fails with [`StoreError::Locked`] while another process has it open for writing, with [`StoreError::Newer`] when a
    /// newer antiphon wrote it, with [`StoreError::Corrupt`] when it is visibly damaged, and as the disk does.
    pub fn open(dir: &Path) -> Result<Self, StoreError> {
        Self::serve(open::for_writing(dir)?)
    }

    /// Opens an existing log for reading, also while a server writes to it. Nothing of the log is changed.
    ///
    /// # Errors
    /// Fails with [`StoreError::Missing`] when there is no log, and otherwise as [`SqliteLog::open`] without the lock.
    pub fn open_read_only(dir: &Path) -> Result<Self, StoreError> {
        Self::serve(open::for_reading(dir)?)
    }

    /// Reads the whole log and checks what can be checked: the structure of the file, that no event is missing, and the
    /// digest of every image.
    ///
    /// It takes time with the size of the log and holds up every other call meanwhile, so it is meant for a log opened by
    /// [`SqliteLog::open_read_only`]. Events carry no checksum: a bit that flipped inside a body is not seen here, but by
    /// a replay that compares state digests.
    ///
    /// # Errors
    /// Fails with [`StoreError::Corrupt`] at the first damage, or when the log cannot be read.
    pub async fn verify(&self) -> Result<(), StoreError> {
        self.call(|database| database.verify()).await
    }

    fn serve(mut database: Database) -> Result<Self, StoreError> {
        let place = database.place();
        let (calls, queue) = mpsc::channel::<Call>();
        let thread = thread::Builder::new()
            .name("antiphon-log".into())
            .spawn(move || queue.into_iter().for_each(|call| call(&mut database)))
            .map_err(|error| StoreError::Io {
                place: place.clone(),
                doing: "start the thread of the log",
                source: error.into(),
            })?;
        Ok(Self {
            place,
            calls: Some(calls),
            thread: Some(thread),
        })
    }

    /// Runs `work` on the thread of the log. The queue is unbounded because every caller waits for its answer.
    async fn call<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Database) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let thread_ended = || StoreError::Failed {
            place: self.place.clone(),
            cause: "the thread of the log has panicked".into(),
        };
        let (answer, answered) = oneshot::channel();
        // A caller that no longer waits gets no answer; the work is done all the same.
        let call: Call = Box::new(move |database| drop(answer.send(work(database))));

        let calls = self
            .calls
            .as_ref()
            .expect("the channel is closed by drop alone");
        calls.send(call).map_err(|_| thread_ended())?;
        answered.await.map_err(|_| thread_ended())?
    }

    /// Runs work that keeps a core busy beside the thread of the log, so that appends go on meanwhile.
    async fn beside<T: Send + 'static>(
        &self,
        work: impl FnOnce(&str) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let place = self.place.clone();
        match spawn_blocking(move || work(&place)).await {
            Ok(done) => done,
            Err(stopped) => Err(StoreError::Io {
                place: self.place.clone(),
                doing: "finish work on an image",
                source: stopped.into(),
            }),
        }
    }
}

#[async_trait]
impl Log for SqliteLog {
    async fn acquire(&self, owner: &str) -> Result<Fence, StoreError> {
        let owner = owner.to_owned();
        self.call(move |database| database.acquire(&owner)).await
    }

    async fn append(&self, fence: Fence, entries: Vec<Entry>) -> Result<(), StoreError> {
        assert_times_fit(&entries);
        self.call(move |database| database.append(fence, &entries))
            .await
    }

    async fn read(&self, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        self.call(move |database| database.read(after, limit)).await
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        self.call(|database| database.last_seq()).await
    }

    async fn put_image(&self, fence: Fence, image: Image) -> Result<(), StoreError> {
        let packed = self.beside(move |place| pack::pack(&image, place)).await?;
        self.call(move |database| database.put_image(fence, &packed))
            .await
    }

    async fn images(&self) -> Result<Vec<ImageHeader>, StoreError> {
        self.call(|database| database.images()).await
    }

    async fn image(&self, seq: u64) -> Result<Image, StoreError> {
        let packed = self.call(move |database| database.image(seq)).await?;
        self.beside(move |place| pack::unpack(&packed, place)).await
    }
}

impl Drop for SqliteLog {
    fn drop(&mut self) {
        drop(self.calls.take());
        if let Some(thread) = self.thread.take() {
            // A panic there was already told to its caller.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests;
