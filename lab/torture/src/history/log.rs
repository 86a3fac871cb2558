//! A file of lines. Each is synced to disk before `append` returns.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use anyhow::Context;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// A log that is open for appending.
#[derive(Debug)]
pub struct Log(Mutex<File>);

impl Log {
    /// Opens a file for appending, or creates it.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(path)
            .with_context(|| format!("opening {}", path.display()))?;
        Ok(Self(Mutex::new(file)))
    }

    /// Writes a line and syncs it to disk.
    pub fn append(&self, line: &impl Serialize) -> anyhow::Result<()> {
        let mut text = serde_json::to_vec(line)?;
        text.push(b'\n');
        // One write per line: a process that is killed leaves at most one incomplete line, at the
        // end.
        let mut file = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        file.write_all(&text)?;
        Ok(file.sync_data()?)
    }
}

/// Reads all complete lines; an incomplete one at the end was never confirmed. A missing file has
/// no lines.
pub fn read<T: DeserializeOwned>(path: &Path) -> anyhow::Result<Vec<T>> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error).with_context(|| format!("reading {}", path.display())),
    };
    let whole = text.iter().rposition(|byte| *byte == b'\n').unwrap_or(0);
    text[..whole]
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            serde_json::from_slice(line).with_context(|| format!("a line of {}", path.display()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Log, read};

    #[test]
    fn truncated_last_lines_are_ignored() -> anyhow::Result<()> {
        let path = std::env::temp_dir().join(format!("torture-log-{}", std::process::id()));
        let log = Log::open(&path)?;
        log.append(&1)?;
        log.append(&2)?;
        std::fs::write(&path, [std::fs::read(&path)?, b"3".to_vec()].concat())?;
        assert_eq!(read::<i64>(&path)?, [1, 2]);
        std::fs::remove_file(&path)?;
        assert!(read::<i64>(&path)?.is_empty());
        Ok(())
    }
}
