//! The progress of the workers, read from their logs.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::task::JoinHandle;

use crate::history::{Acted, How};

/// Counts for tasks that wait for progress.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    committed: AtomicU64,
    ended: Mutex<HashSet<i64>>,
}

impl Progress {
    /// Follows the logs until the handle is aborted.
    pub(super) fn follow(self: Arc<Self>, folder: PathBuf) -> JoinHandle<anyhow::Result<()>> {
        tokio::spawn(async move {
            let mut read = BTreeMap::new();
            loop {
                self.look(&folder, &mut read)?;
                tokio::time::sleep(Duration::from_millis(25)).await;
            }
        })
    }

    /// Adds jobs that must end.
    pub(crate) fn committed(&self, jobs: u64) {
        self.committed.fetch_add(jobs, Ordering::Relaxed);
    }

    /// Records that this job has ended.
    pub(super) fn ended_with(&self, key: i64) {
        let mut ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.insert(key);
    }

    /// The number of jobs that have ended.
    pub(super) fn ended(&self) -> u64 {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        ended.len() as u64
    }

    /// The number of jobs that must still end.
    pub(crate) fn backlog(&self) -> u64 {
        let committed = self.committed.load(Ordering::Relaxed);
        committed.saturating_sub(self.ended())
    }

    fn look(&self, folder: &Path, read: &mut BTreeMap<PathBuf, u64>) -> anyhow::Result<()> {
        for entry in std::fs::read_dir(folder)? {
            let path = entry?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if !name.is_some_and(|name| name.starts_with('w')) {
                continue;
            }
            let from = read.entry(path.clone()).or_default();
            *from += self.take(&path, *from)?;
        }
        Ok(())
    }

    /// Parses the complete lines after this byte, and returns their length.
    fn take(&self, path: &Path, from: u64) -> anyhow::Result<u64> {
        let mut file = File::open(path).with_context(|| format!("{}", path.display()))?;
        file.seek(SeekFrom::Start(from))?;
        let mut text = Vec::new();
        file.read_to_end(&mut text)?;
        let Some(last) = text.iter().rposition(|byte| *byte == b'\n') else {
            return Ok(0);
        };
        for line in text[..last].split(|byte| *byte == b'\n') {
            let Acted::Ended { key, how, .. } = serde_json::from_slice(line)? else {
                continue;
            };
            if matches!(how, How::Done | How::Confirmed | How::Discarded) {
                self.ended_with(key);
            }
        }
        Ok(last as u64 + 1)
    }
}
