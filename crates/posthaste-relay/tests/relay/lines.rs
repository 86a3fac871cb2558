//! Lines: the claims of the suite that need no network, on a disk that can be slow and full, and
//! interrupted lines.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use posthaste_relay::{Destination, Lines, Relay};
use posthaste_testkit::{Proxy, Sql as _, eventually};
use serde_json::Value;
use tokio::io::AsyncWrite;
use tokio::time::Sleep;

use super::conformance::{Received, Subject, conformance};
use super::{enqueue, setup};
use crate::support::{SOON, all_done};

/// The content and the state of a disk.
#[derive(Default)]
struct Disk {
    bytes: Vec<u8>,
    delay: Duration,
    is_full: bool,
    failures: u32,
}

/// A file on a disk. Like tokio's standard output, it forgets what it could not write: flushing
/// succeeds.
#[derive(Default)]
struct File {
    disk: Arc<Mutex<Disk>>,
    rest: Option<Pin<Box<Sleep>>>,
}

impl AsyncWrite for File {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if let Some(rest) = &mut self.rest {
            std::task::ready!(rest.as_mut().poll(context));
        }
        let mut disk = self.disk.lock().unwrap();
        if disk.is_full {
            disk.failures += 1;
            if disk.failures == 1 {
                // It becomes full in the middle of a line.
                disk.bytes.extend(&bytes[..bytes.len() / 5]);
            }
            return Poll::Ready(Err(io::ErrorKind::StorageFull.into()));
        }
        // A relay may also be stopped in the middle of a line.
        let half = bytes.len().div_ceil(2);
        disk.bytes.extend(&bytes[..half]);
        let delay = disk.delay;
        drop(disk);
        self.rest = (!delay.is_zero()).then(|| Box::pin(tokio::time::sleep(delay)));
        Poll::Ready(Ok(half))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

struct FileOnDisk {
    disk: Arc<Mutex<Disk>>,
    // All relays of a process write to the same standard output.
    lines: Arc<Lines<File>>,
}

impl FileOnDisk {
    fn new() -> Self {
        let file = File::default();
        Self {
            disk: Arc::clone(&file.disk),
            lines: Arc::new(Lines::new(file)),
        }
    }

    /// Returns the whole lines. Others are empty or interrupted; their messages were written again.
    fn lines(&self) -> Vec<Value> {
        let disk = self.disk.lock().unwrap();
        let lines = disk.bytes.split(|byte| *byte == b'\n');
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }
}

impl Subject for FileOnDisk {
    const DEDUPLICATES: bool = false;

    async fn start() -> Option<Self> {
        Some(Self::new())
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        Arc::clone(&self.lines) as Arc<dyn Destination>
    }

    fn proxy(&self) -> &Proxy {
        unreachable!("lines go over no network")
    }

    fn delay(&self, by: Duration) {
        self.disk.lock().unwrap().delay = by;
    }

    async fn received(&self) -> Vec<Received> {
        let lines = self.lines().into_iter();
        lines
            .map(|mut line| Received {
                id: line["id"].as_str().unwrap().to_owned(),
                payload: line["payload"].take(),
            })
            .collect()
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        self.disk.lock().unwrap().is_full = refuse;
        true
    }
}

// A written line is stored without an answer; the other claims are about a network.
conformance!(FileOnDisk:
    messages_arrive_as_they_were_enqueued,
    duplicates_have_the_same_id_and_are_accepted,
    temporary_rejections_lose_nothing,
    stopping_amid_a_batch_loses_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_writes_count_no_attempt_and_corrupt_no_line() {
    let setup = setup().await;
    let file = FileOnDisk::new();
    let relay = Relay::to_any(file.destination().await);
    let relay = relay.start().await.unwrap();
    file.disk.lock().unwrap().is_full = true;
    enqueue(&setup.client, &["a", "b", "c"]).await;
    let worker = setup.consumer(relay.clone()).await;
    let tried = async || Ok(file.disk.lock().unwrap().failures > 5);
    eventually(SOON, "it is tried again and again", tried)
        .await
        .unwrap();
    let status = relay.status();
    assert!(status.down_since.is_some(), "{status:?}");
    assert_eq!((status.accepted, status.retried), (0, 0));
    let counted = "SELECT count(*) FROM posthaste.job WHERE attempt > 0";
    let counted: i64 = setup.client.one(counted).await.unwrap();
    assert_eq!((counted, file.lines().len()), (0, 0));
    file.disk.lock().unwrap().is_full = false;
    all_done(&setup.client).await;
    let lines = file.lines();
    let mut names: Vec<&str> = lines
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["a", "b", "c"]);
    worker.stop().await.unwrap();
}
