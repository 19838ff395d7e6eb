//! The log without a disk, for tests and the simulator. It keeps the whole contract but durability.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use async_trait::async_trait;

use crate::log::{assert_times_fit, check_continues};
use crate::pack::{self, Packed};
use crate::{Entry, Fence, IMAGES_KEPT, Image, ImageHeader, Log, StoreError};

const PLACE: &str = "memory";

/// A log in memory. Clones share one log, as processes share a disk: a clone kept aside plays the log that is reopened
/// after a crash.
#[derive(Clone, Default)]
pub struct MemoryLog {
    contents: Arc<Mutex<Contents>>,
}

#[derive(Default)]
struct Contents {
    fence: u64,
    owner: String,
    entries: Vec<Entry>,
    images: BTreeMap<u64, Packed>,
}

impl MemoryLog {
    /// Creates an empty log.
    pub fn new() -> Self {
        Self::default()
    }

    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents
            .lock()
            .expect("nothing panics while it holds the contents")
    }
}

impl Contents {
    fn last_seq(&self) -> u64 {
        self.entries.len() as u64
    }

    fn check_fence(&self, held: Fence) -> Result<(), StoreError> {
        let current = Fence::new(self.fence);
        if held == current {
            return Ok(());
        }
        Err(StoreError::Stale {
            held,
            current,
            owner: self.owner.clone(),
        })
    }
}

#[async_trait]
impl Log for MemoryLog {
    async fn acquire(&self, owner: &str) -> Result<Fence, StoreError> {
        let mut contents = self.contents();
        contents.fence += 1;
        contents.owner = owner.to_owned();
        Ok(Fence::new(contents.fence))
    }

    async fn append(&self, fence: Fence, entries: Vec<Entry>) -> Result<(), StoreError> {
        assert_times_fit(&entries);
        let mut contents = self.contents();
        contents.check_fence(fence)?;
        check_continues(contents.last_seq(), &entries)?;
        contents.entries.extend(entries);
        Ok(())
    }

    async fn read(&self, after: u64, limit: usize) -> Result<Vec<Entry>, StoreError> {
        let skipped = usize::try_from(after).unwrap_or(usize::MAX);
        Ok(self
            .contents()
            .entries
            .iter()
            .skip(skipped)
            .take(limit)
            .cloned()
            .collect())
    }

    async fn last_seq(&self) -> Result<u64, StoreError> {
        Ok(self.contents().last_seq())
    }

    async fn put_image(&self, fence: Fence, image: Image) -> Result<(), StoreError> {
        let packed = pack::pack(&image, PLACE)?;
        let mut contents = self.contents();
        contents.check_fence(fence)?;
        let last = contents.last_seq();
        if image.seq > last {
            return Err(StoreError::ImageAhead {
                image: image.seq,
                last,
            });
        }
        contents.images.insert(image.seq, packed);
        while contents.images.len() > IMAGES_KEPT {
            contents.images.pop_first();
        }
        Ok(())
    }

    async fn images(&self) -> Result<Vec<ImageHeader>, StoreError> {
        Ok(self
            .contents()
            .images
            .values()
            .rev()
            .map(|packed| packed.header.clone())
            .collect())
    }

    async fn image(&self, seq: u64) -> Result<Image, StoreError> {
        let contents = self.contents();
        let packed = contents
            .images
            .get(&seq)
            .ok_or(StoreError::NoImage { seq })?;
        pack::unpack(packed, PLACE)
    }
}
