//! The connections of one server: their number is limited, and a new one replaces the one that has
//! been idle for the longest.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

/// Minimum time between two warnings about closed connections.
const WARN_EVERY: Duration = Duration::from_secs(60);
/// A bit of the sequence number: connections with a request stay longer than those without one.
const REQUEST_BIT: u64 = 1 << 63;

/// The open connections of a server.
pub(super) struct Connections {
    /// The address of the server.
    server: String,
    most: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Connections by the sequence number of their last request, the idlest first.
    open: BTreeMap<u64, CancellationToken>,
    next: u64,
    warned_at: Option<Instant>,
}

impl Connections {
    pub(super) fn new(server: String, most: usize) -> Self {
        let state = Mutex::default();
        Self {
            server,
            most,
            state,
        }
    }

    /// Adds a connection. If the limit is reached, closes the idlest one.
    pub(super) fn open(self: &Arc<Self>) -> Connection {
        let mut state = self.state();
        if state.open.len() >= self.most {
            self.make_room(&mut state);
        }
        let (place, closing) = (state.next, CancellationToken::new());
        state.next += 1;
        state.open.insert(place, closing.clone());
        let place = Slot {
            connections: Arc::clone(self),
            place: Arc::new(place.into()),
        };
        Connection { place, closing }
    }

    pub(super) fn close_idlest(&self) {
        self.make_room(&mut self.state());
    }

    pub(super) fn close_all(&self) {
        let open = std::mem::take(&mut self.state().open);
        open.into_values().for_each(|closing| closing.cancel());
    }

    fn make_room(&self, state: &mut State) {
        let Some((_, closing)) = state.open.pop_first() else {
            return;
        };
        closing.cancel();
        let now = Instant::now();
        let is_recent = |then| now.duration_since(then) < WARN_EVERY;
        if !state.warned_at.is_some_and(is_recent) {
            state.warned_at = Some(now);
            tracing::warn!(
                server = self.server,
                most = self.most,
                "too many connections: those idle for the longest are closed"
            );
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

/// A connection; dropping it removes it from the server.
pub(super) struct Connection {
    place: Slot,
    closing: CancellationToken,
}

/// The position of a connection among the others.
#[derive(Clone)]
pub(super) struct Slot {
    connections: Arc<Connections>,
    place: Arc<AtomicU64>,
}

impl Connection {
    /// Completes when the connection must be closed.
    pub(super) async fn wait_until_closed(&self) {
        self.closing.cancelled().await;
    }

    /// Returns a handle that records requests.
    pub(super) fn request_recorder(&self) -> Slot {
        self.place.clone()
    }
}

impl Slot {
    /// Records a request.
    pub(super) fn record_request(&self) {
        let mut state = self.connections.state();
        let now = state.next | REQUEST_BIT;
        state.next += 1;
        // A connection that is being closed is no longer in the map.
        if let Some(closing) = state.open.remove(&self.place.load(Ordering::Relaxed)) {
            state.open.insert(now, closing);
            self.place.store(now, Ordering::Relaxed);
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        let place = self.place.place.load(Ordering::Relaxed);
        self.place.connections.state().open.remove(&place);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_idle_connection_is_closed_first() {
        let all = Arc::new(Connections::new(String::new(), 3));
        let open: Vec<_> = (0..3).map(|_| all.open()).collect();
        let closed = |open: &[Connection]| -> Vec<bool> {
            let closed = open.iter().map(|one| one.closing.is_cancelled());
            closed.collect()
        };
        open[0].request_recorder().record_request();
        open[1].request_recorder().record_request();
        open[0].request_recorder().record_request();
        let mut more = vec![all.open()];
        assert_eq!(
            closed(&open),
            [false, false, true],
            "it has asked for nothing"
        );
        more.push(all.open());
        assert_eq!(closed(&more), [true, false], "nor has it");
        more[1].request_recorder().record_request();
        more.push(all.open());
        more[2].request_recorder().record_request();
        assert_eq!(closed(&open), [false, true, true], "the others asked later");
        assert_eq!(all.state().open.len(), 3);
        drop((open, more));
        assert_eq!(all.state().open.len(), 0);
    }
}
