//! An OpenSearch in memory, with faults that a test plans or draws with given probabilities.
//!
//! It serves the part of HTTP that the crates' own client uses, and holds documents with versions,
//! sequence numbers, terms and tombstones, the state that searches see, aliases, pipelines and
//! points in time. The effect of a stored script is defined in Rust.
//! `crates/posthaste-elastic/tests/conformance.rs` shows, call by call, that the fake answers as
//! the real server does.
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

use execute::{FakeServer, Request};
pub use faults::{Fault, Faults};

/// The fake, which ends when it is dropped. If it was started, it must live on the runtime that
/// started it.
pub struct FakeElastic {
    inner: Arc<Mutex<FakeServer>>,
    serving: Option<(SocketAddr, JoinHandle<()>)>,
}

/// A document of the fake.
#[derive(Clone, Debug, PartialEq)]
pub struct Held {
    /// Its source; `None` for a tombstone.
    pub source: Option<Value>,
    /// Its version.
    pub version: i64,
}

impl FakeElastic {
    /// Creates a fake without a connection, for [`call`](Self::call) or [`ask`](Self::ask). Its
    /// random decisions are drawn from this seed.
    pub fn new(seed: u64) -> Self {
        Self {
            inner: Arc::new(Mutex::new(FakeServer::new(seed))),
            serving: None,
        }
    }

    /// As [`new`](Self::new), and serves HTTP.
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

    /// Sends a request without a connection. Returns the status and the body, or `None` for no
    /// answer.
    pub fn call(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Value)> {
        let request = Request::new(method, path, body.to_vec());
        let reply = self.inner().handle(request)?;
        Some((reply.status, reply.body))
    }

    /// As [`call`](Self::call), but other requests overtake this one and its answer as often as the
    /// seed decides.
    ///
    /// On a single-threaded runtime where nothing else waits, tasks interleave in the same order
    /// each time.
    pub async fn ask(&self, method: &str, path: &str, body: &[u8]) -> Option<(u16, Vec<u8>)> {
        self.wait().await;
        let answer = self.call(method, path, body);
        self.wait().await;
        answer.map(|(status, body)| (status, body.to_string().into_bytes()))
    }

    async fn wait(&self) {
        let turns = self.inner().draw_overtaking_requests();
        for _ in 0..turns {
            tokio::task::yield_now().await;
        }
    }

    /// Defines the effect of a stored script on `ctx`, which has `_source`, `op` and `_now`
    /// (milliseconds), given its parameters. An error is the script's error.
    pub fn script(
        &self,
        id: &str,
        run: impl Fn(&mut Value, &Value) -> Result<(), String> + Send + Sync + 'static,
    ) {
        let scripts = &mut self.inner().state.scripts;
        scripts.insert(id.to_owned(), Arc::new(run));
    }

    /// Sets the probabilities of faults from now on.
    pub fn faults(&self, faults: Faults) {
        self.inner().faults = faults;
    }

    /// Sets the faults of the next requests, one each.
    pub fn next(&self, faults: impl IntoIterator<Item = Fault>) {
        self.inner().next = faults.into_iter().map(Some).collect();
    }

    /// Sets the faults of the next requests, one each; `None` for no fault.
    pub fn plan(&self, faults: impl IntoIterator<Item = Option<Fault>>) {
        self.inner().next = faults.into_iter().collect::<VecDeque<_>>();
    }

    /// Whether clients wait for a lost answer until their timeout; if not, their connections break
    /// at once.
    pub fn keeps_silent(&self, silent: bool) {
        self.inner().keeps_silent = silent;
    }

    /// Ends all faults: late requests are executed, in any order, and each index has a primary that
    /// accepts writes.
    pub fn settle(&self) {
        self.inner().settle();
    }

    /// Makes another node the primary of all indexes, under a new term. Points in time are lost.
    pub fn fail_over(&self) {
        self.inner().fail_over();
    }

    /// Advances its clock, which scripts and pipelines read.
    pub fn advance_clock(&self, time: std::time::Duration) {
        let ms = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        let state = &mut self.inner().state;
        state.now = state.now.saturating_add(ms);
    }

    /// Behaves as an Elasticsearch 8 from now on, as far as the two differ for the crates' own
    /// client.
    pub fn pose_as_elasticsearch(&self) {
        self.inner().state.is_elasticsearch = true;
    }

    /// The number of open points in time.
    pub fn held_moments(&self) -> usize {
        self.inner().state.moments.count()
    }

    /// Answers only requests with this `authorization` header from now on.
    pub fn demand_authorization(&self, header: &str) {
        self.inner().authorization = Some(header.to_owned());
    }

    /// Refuses longer requests from now on.
    pub fn largest_request(&self, bytes: usize) {
        self.inner().largest = bytes;
    }

    /// Returns a document or its tombstone, by the name of its index or of an alias.
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

    /// Removes a document without a trace: no tombstone, no new version.
    pub fn remove_without_trace(&self, index: &str, id: &str) {
        let mut inner = self.inner();
        let name = inner.state.resolve_name(index).to_owned();
        if let Some(index) = inner.state.indexes.get_mut(&name) {
            index.docs.remove(id);
            index.refresh();
        }
    }

    /// Makes these documents, by index and ID, unreadable by their IDs from now on: their shard is
    /// unavailable. Documents that were unreadable before become readable.
    pub fn make_unreadable<'a>(&self, documents: impl IntoIterator<Item = (&'a str, &'a str)>) {
        let owned = |(index, id): (&str, &str)| (index.to_owned(), id.to_owned());
        self.inner().away = documents.into_iter().map(owned).collect();
    }

    /// The number of requests until now.
    pub fn requests(&self) -> u64 {
        self.inner().requests
    }

    fn inner(&self) -> MutexGuard<'_, FakeServer> {
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
