//! Lists a folder: every regular file below it, names as bytes, without following links.

use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use tokio::sync::mpsc;
use tokio::task::JoinHandle;

use crate::failure;

const CHUNK_PATHS: usize = 1_000;

/// Counts of the walk other than files.
#[derive(Clone, Copy, Default)]
pub(crate) struct WalkTotals {
    pub(crate) unreadable_folders: u64,
}

/// Walks on a separate thread. Paths arrive in chunks, those of each folder ordered by name.
pub(crate) fn walk(
    folder: PathBuf,
    besides: Option<PathBuf>,
) -> (
    mpsc::Receiver<Vec<PathBuf>>,
    JoinHandle<anyhow::Result<WalkTotals>>,
) {
    let (sender, receiver) = mpsc::channel(4);
    let walking = tokio::task::spawn_blocking(move || {
        let mut walk = Walk {
            besides,
            sender,
            chunk: Vec::with_capacity(CHUNK_PATHS),
            walked: WalkTotals::default(),
        };
        let entries = read_folder(&folder).map_err(|error| cannot_list(&folder, &error))?;
        walk.below(entries);
        walk.send();
        Ok(walk.walked)
    });
    (receiver, walking)
}

pub(crate) fn cannot_list(folder: &Path, error: &io::Error) -> anyhow::Error {
    let (folder, reason) = (folder.display(), failure::io_error_text(error));
    anyhow::anyhow!("cannot list {folder}: {reason}. Give a folder that can be read.")
}

struct Walk {
    besides: Option<PathBuf>,
    sender: mpsc::Sender<Vec<PathBuf>>,
    chunk: Vec<PathBuf>,
    walked: WalkTotals,
}

impl Walk {
    fn below(&mut self, top: Vec<Entry>) {
        // A stack instead of recursion: the depth of a user's folder is not limited.
        let mut stack = vec![top];
        while let Some(entries) = stack.last_mut() {
            let Some(entry) = entries.pop() else {
                stack.pop();
                continue;
            };
            match entry.kind {
                EntryKind::File => self.push(entry.path),
                EntryKind::Folder if self.besides.as_deref() == Some(&entry.path) => {}
                EntryKind::Folder => match self::read_folder(&entry.path) {
                    Ok(entries) => stack.push(entries),
                    // Deleted since it was listed.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(_) => self.walked.unreadable_folders += 1,
                },
            }
        }
    }

    fn push(&mut self, path: PathBuf) {
        self.chunk.push(path);
        if self.chunk.len() == CHUNK_PATHS {
            self.send();
        }
    }

    fn send(&mut self) {
        let chunk = std::mem::replace(&mut self.chunk, Vec::with_capacity(CHUNK_PATHS));
        // A closed receiver reports its own failure.
        let _ = self.sender.blocking_send(chunk);
    }
}

struct Entry {
    path: PathBuf,
    kind: EntryKind,
}

enum EntryKind {
    File,
    Folder,
}

/// Returns files and folders directly in `folder`, last name first, so that popping yields them in
/// order.
fn read_folder(folder: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let kind = match entry.file_type() {
            Ok(kind) if kind.is_file() => EntryKind::File,
            Ok(kind) if kind.is_dir() => EntryKind::Folder,
            _ => continue,
        };
        entries.push(Entry {
            path: entry.path(),
            kind,
        });
    }
    entries.sort_by(|one, other| {
        let (one, other) = (one.path.as_os_str(), other.path.as_os_str());
        other.as_bytes().cmp(one.as_bytes())
    });
    Ok(entries)
}
