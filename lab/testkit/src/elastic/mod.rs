//! An OpenSearch in memory, which goes wrong when it is told to, and as often as it is told to.
//!
//! It speaks HTTP as far as the crates' own client does, and holds documents with versions,
//! sequence numbers, terms and tombstones, what searches see of them, aliases, pipelines and points
//! in time. What a stored script does is told in Rust. That it answers as the real server does is
//! shown call by call by `crates/posthaste-elastic/tests/conformance.rs`.
//!
//! ```
//! use posthaste_testkit::elastic::{FakeElastic, Fault};
//!
//! let fake = FakeElastic::new(7);
//! let put = "{\"index\":{\"_index\":\"notes\",\"_id\":\"1\"}}\n{\"body\":\"hello\"}\n";
//! fake.next([Fault::LostAfter]);
//! assert!(fake.call("POST", "/_bulk", put.as_bytes()).is_none());
//! assert_eq!(fake.document("notes", "1").unwrap().version, 1);
//! ```

mod execute;
mod faults;
mod http;
mod index;
mod mapping;
mod moments;
mod query;
mod reply;
mod state;
mod write;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;
use tokio::task::JoinHandle;

use execute::{Inner, Request};
pub use faults::{Fault, Faults};

/// The fake; gone when it is dropped. One that was started must live on the runtime that it was
/// started on.
pub struct FakeElastic {
    inner: Arc<Mutex<Inner>>,
    serving: Option<(SocketAddr, JoinHandle<()>)>,
}

/// A document as the fake holds it.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// What it holds; a tombstone holds nothing.
    pub source: Option<Value>,
    /// Its version.
    pub version: i64,
}

impl FakeElastic {
    /// One in which all that goes by chance is drawn from this seed, to be [called](Self::call) or
    /// [asked](Self::ask) without a connection.
    pub fn new(seed: u64) -> Self {
        Self {
            inner: Arc::new(Mutex::new(Inner::new(seed))),
            serving: None,
        }
    }

    /// As [`new`](Self::new), behind HTTP.
    pub async fn start(seed: u64) -> anyhow::Result<Self> {
        let mut fake = Self::new(seed);
        fake.serving = Some(http::serve(fake.inner.clone()).await?);
        Ok(fake)
    }

    /// Its URL.
    ///
    /// # Panics
    /// Unless it was [started](Self::start).
    pub fn url(&self) -> String {
        match &self.serving {
            Some((address, _)) => format!("http://{address}"),
            None => panic!("a fake that was not started has no address"),
        }
    }

    /// Asks it without a connection: the status and the body, or no answer.
    pub fn call(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let request = Request::new(method, path, body.to_vec());
        let reply = self.inner().handle(request)?;
        Some((reply.status, reply.body))
    }

    /// As [`call`](Self::call), on the way there and back overtaken by others as often as the seed
    /// says.
    ///
    /// On a runtime of one thread where nothing waits for anything else, tasks that ask go the same
    /// ways each time.
    pub async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        self.wait().await;
        let answer = self.call(method, path, body);
        self.wait().await;
        answer.map(|(status, body)| (status, body.to_string().into_bytes()))
    }

    async fn wait(&self) {
        let turns = self.inner().turns();
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// Says what a stored script does to `ctx`, which has `_source`, `op` and `_now`
    /// (milliseconds), given its parameters. An error is that of the script.
    pub fn script(
        &self,
        id: &str,
        run: impl Fn(&mut Value, &Value) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let scripts = &mut self.inner().state.scripts;
        scripts.insert(id.to_owned(), Arc::new(run));
    }

    /// From now on so much goes wrong.
    pub fn faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// What happens to the next requests, one each.
    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.inner().next = faults.into_iter().map(Some).collect();
    }

    /// What happens to the next requests, one each; to some nothing.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.inner().next = faults.into_iter().collect::<VecDeque<_>>();
    }

    /// Lets clients wait for an answer that does not come, until their patience ends; else their
    /// connections break at once.
    pub fn keeps_silent(&self, silent: bool) {
        self.inner().keeps_silent = silent;
    }

    /// Nothing goes wrong any more: late requests are done, in any order, and each index has a
    /// primary that takes writes.
    pub fn settle(&self) {
        self.inner().settle();
    }

    /// Another node becomes the primary of all, under a new term. Points in time are gone.
    pub fn fail_over(&self) {
        self.inner().fail_over();
    }

    /// Lets its clock go on, which scripts and pipelines read.
    pub fn pass(&self, time: std::time::Duration) {
        let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let state = &mut self.inner().state;
        state.now = state.now.saturating_add(ms);
    }

    /// From now on it is an Elasticsearch 8, as far as the two differ for the crates' own client.
    pub fn pose_as_elasticsearch(&self) {
        self.inner().state.is_elasticsearch = true;
    }

    /// How many points in time it holds.
    pub fn held_moments(&self) -> usize {
        self.inner().state.moments.count()
    }

    /// From now on answers only who sends this header `authorization`.
    pub fn demand_authorization(&self, header: &str) {
        self.inner().authorization = Some(header.to_owned());
    }

    /// From now on refuses longer requests.
    pub fn largest_request(&self, bytes: usize) {
        self.inner().largest = bytes;
    }

    /// A document, or its tombstone, by the name of its index or an alias.
    pub fn document(&self, index: &str, id: &str) -> Option<Held> {
        self.documents(index).remove(id)
    }

    /// All documents and tombstones of an index.
    pub fn documents(&self, index: &str) -> BTreeMap<String, Held> {
        let inner = self.inner();
        let Ok(index) = inner.state.index(index) else {
            return BTreeMap::new();
        };
        let docs = index.docs.iter().map(|(id, doc)| {
            let source = doc.source.as_deref().cloned();
            let version = doc.version;
            (id.clone(), Held { source, version })
        });
        docs.collect()
    }

    /// Takes a document away behind everybody's back, tombstone and all.
    pub fn take_away(&self, index: &str, id: &str) {
        let mut inner = self.inner();
        let name = inner.state.name(index).to_owned();
        if let Some(index) = inner.state.indexes.get_mut(&name) {
            index.docs.remove(id);
            index.refresh();
        }
    }

    /// From now on these documents, by index and id, cannot be read by their ids: their shard is
    /// away. No longer those that could not be read before.
    pub fn away<'a>(&self, documents: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let owned = |(index, id): (&str, &str)| (index.to_owned(), id.to_owned());
        self.inner().away = documents.into_iter().map(owned).collect();
    }

    /// How many requests it has had.
    pub fn requests(&self) -> u64 {
        self.inner().requests
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for FakeElastic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = self.serving.as_ref().map(|(address, _)| address);
        let mut shown = f.debug_struct("FakeElastic");
        shown.field("address", &address).finish_non_exhaustive()
    }
}

impl Drop for FakeElastic {
    fn drop(&mut self) {
        if let Some((_, serving)) = &self.serving {
            serving.abort();
        }
    }
}
