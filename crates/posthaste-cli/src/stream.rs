//! A stream that a separate thread writes: a reader that stops reading (a full pipe, a paused
//! terminal) blocks no other thread. Lines that do not fit in the bounded buffer are dropped,
//! counted and reported.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

/// The maximum size of buffered lines in bytes.
const MAX_BUFFERED_BYTES: usize = 1 << 20;

/// A handle that passes lines to the thread; clones share the stream.
#[derive(Clone)]
pub(crate) struct Stream(Arc<SharedBuffer>);

struct SharedBuffer {
    state: Mutex<State>,
    /// Notified when lines are added, and when lines are written.
    changed: Condvar,
    /// Formats the line that reports dropped lines.
    say_dropped: fn(u64) -> String,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Vec<u8>>,
    /// The size of buffered lines and of the line being written.
    bytes: usize,
    dropped: u64,
    /// The first error, until it is taken.
    error: Option<io::Error>,
}

impl SharedBuffer {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn push(&mut self, line: Vec<u8>) {
        self.bytes += line.len();
        self.waiting.push_back(line);
    }
}

impl Stream {
    /// Starts the thread; only the thread calls `write`.
    pub(crate) fn start(
        name: &str,
        say_dropped: fn(u64) -> String,
        write: impl FnMut(&[u8]) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Self> {
        let shared = Arc::new(SharedBuffer {
            state: Mutex::default(),
            changed: Condvar::new(),
            say_dropped,
        });
        let written = Arc::clone(&shared);
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || written.write_all(write))?;
        Ok(Self(shared))
    }

    /// Adds whole lines without waiting for the reader.
    pub(crate) fn write(&self, lines: &[u8]) {
        let mut state = self.0.state();
        if state.bytes > 0 && state.bytes + lines.len() > MAX_BUFFERED_BYTES {
            state.dropped += 1;
            return;
        }
        if state.dropped > 0 {
            let dropped = std::mem::take(&mut state.dropped);
            state.push((self.0.say_dropped)(dropped).into_bytes());
        }
        state.push(lines.to_vec());
        drop(state);
        self.0.changed.notify_all();
    }

    /// Waits at most this long until everything is written; returns whether it is.
    pub(crate) fn flush(&self, within: Duration) -> bool {
        let until = Instant::now() + within;
        let mut state = self.0.state();
        while state.bytes > 0 || state.dropped > 0 {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            self.0.changed.wait_for(&mut state, left);
        }
        true
    }

    /// Returns the first error since the last call.
    pub(crate) fn error(&self) -> Option<io::Error> {
        self.0.state().error.take()
    }
}

impl SharedBuffer {
    fn write_all(&self, mut write: impl FnMut(&[u8]) -> io::Result<()>) {
        loop {
            let line = self.next_lines();
            let written = write(&line);
            let mut state = self.state();
            state.bytes -= line.len();
            if let Err(error) = written {
                state.error.get_or_insert(error);
            }
            drop(state);
            self.changed.notify_all();
        }
    }

    fn next_lines(&self) -> Vec<u8> {
        let mut state = self.state();
        loop {
            if state.waiting.is_empty() && state.dropped > 0 {
                let dropped = std::mem::take(&mut state.dropped);
                state.push((self.say_dropped)(dropped).into_bytes());
            }
            if let Some(line) = state.waiting.pop_front() {
                return line;
            }
            self.changed.wait(&mut state);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    const SHORT: Duration = Duration::from_millis(20);
    const LONG: Duration = Duration::from_secs(60);

    /// Returns a stream, a sender that permits its reader to take one line each, and the lines
    /// taken.
    fn read_by_permission() -> (Stream, Sender<()>, Receiver<Vec<u8>>) {
        let (permit, permits) = channel();
        let (took, taken) = channel();
        let stream = Stream::start(
            "test",
            |lines| format!("{lines} dropped\n"),
            move |line| {
                let _ = permits.recv();
                let _ = took.send(line.to_vec());
                Ok(())
            },
        );
        (stream.unwrap(), permit, taken)
    }

    #[test]
    fn writes_never_block_and_dropped_lines_are_counted() {
        let (stream, permit, taken) = read_by_permission();
        let line = vec![b'x'; MAX_BUFFERED_BYTES / 4];
        // Four lines fit; the others are dropped.
        (0..10).for_each(|_| stream.write(&line));
        assert!(!stream.flush(SHORT), "nobody reads");
        (0..4).for_each(|_| permit.send(()).unwrap());
        (0..4).for_each(|_| assert_eq!(taken.recv_timeout(LONG).unwrap(), line));
        permit.send(()).unwrap();
        assert_eq!(taken.recv_timeout(LONG).unwrap(), b"6 dropped\n");
        stream.write(b"again\n");
        permit.send(()).unwrap();
        assert_eq!(taken.recv_timeout(LONG).unwrap(), b"again\n");
        assert!(stream.flush(LONG));
    }

    #[test]
    fn write_errors_are_reported_once() {
        let broken = |_: &[u8]| Err(io::ErrorKind::BrokenPipe.into());
        let stream = Stream::start("test", |_| String::new(), broken).unwrap();
        stream.write(b"a\n");
        assert!(stream.flush(LONG));
        let kind = stream.error().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::BrokenPipe));
        assert!(stream.error().is_none());
    }
}
