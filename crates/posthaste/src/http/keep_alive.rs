//! Limits the connections to many hosts that stay open for a next request. No IO and no clock.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};

use super::IDLE_TIMEOUT;

/// Time after which a client has closed an idle connection: it checks once in [`IDLE_TIMEOUT`].
const CLOSED_AFTER: Duration = IDLE_TIMEOUT.saturating_mul(2);
/// The least time between two checks of the hosts.
const MIN_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Limits the connections that a client keeps open to all hosts together: idle ones use file
/// descriptors that other parts of the process need.
#[derive(Debug)]
pub struct KeepAlive {
    most: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// The most connections that can be open now, to all hosts.
    open: usize,
    hosts: HashMap<String, Host>,
    checked: Option<Instant>,
}

#[derive(Debug)]
struct Host {
    open: usize,
    under_way: usize,
    used: Instant,
}

impl KeepAlive {
    /// Allows at most this many connections to stay open.
    pub fn new(most: usize) -> Self {
        let state = Mutex::default();
        Self { most, state }
    }

    /// Begins a request to this host; `None`: its connection is to be closed after it.
    pub fn ask(&self, host: &str, now: Instant) -> Option<OpenRequest<'_>> {
        let mut state = self.state();
        let is_new = match state.hosts.get(host) {
            Some(known) => known.under_way >= known.open,
            None => true,
        };
        if is_new {
            if state.open >= self.most {
                state.remove_idle_hosts(now);
            }
            if state.open >= self.most {
                return None;
            }
            state.open += 1;
        }
        let of = state.hosts.entry(host.to_owned()).or_insert(Host {
            open: 0,
            under_way: 0,
            used: now,
        });
        of.open += usize::from(is_new);
        of.under_way += 1;
        of.used = now;
        let (keep_alive, host) = (self, host.to_owned());
        Some(OpenRequest { keep_alive, host })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl State {
    fn remove_idle_hosts(&mut self, now: Instant) {
        if self
            .checked
            .is_some_and(|then| now.duration_since(then) < MIN_CHECK_INTERVAL)
        {
            return;
        }
        self.checked = Some(now);
        let is_open =
            |host: &Host| host.under_way > 0 || now.duration_since(host.used) < CLOSED_AFTER;
        self.hosts.retain(|_, host| is_open(host));
        self.open = self.hosts.values().map(|host| host.open).sum();
    }
}

/// A request whose connection stays open.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    keep_alive: &'a KeepAlive,
    host: String,
}

impl Drop for OpenRequest<'_> {
    fn drop(&mut self) {
        let now = Instant::now();
        if let Some(host) = self.keep_alive.state().hosts.get_mut(&self.host) {
            host.under_way -= 1;
            host.used = host.used.max(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_connections_are_bounded_across_hosts() {
        let bound = KeepAlive::new(3);
        let now = Instant::now();
        let of_a = [bound.ask("a", now), bound.ask("a", now)];
        assert!(of_a.iter().all(Option::is_some));
        assert!(bound.ask("b", now).is_some());
        assert!(bound.ask("c", now).is_none(), "there are three");
        assert!(bound.ask("b", now).is_some(), "its connection is idle");
        let [of_a, other] = of_a;
        drop(other);
        assert!(bound.ask("a", now).is_some(), "one is idle");
        let later = Instant::now() + CLOSED_AFTER;
        let of_c = bound.ask("c", later);
        assert!(of_c.is_some(), "that to b is gone");
        assert!(bound.ask("d", later).is_none());
        assert!(
            bound.ask("d", later + MIN_CHECK_INTERVAL).is_none(),
            "a is asked"
        );
        drop((of_a, of_c));
        assert!(
            bound
                .ask("d", later + CLOSED_AFTER + MIN_CHECK_INTERVAL)
                .is_some()
        );
    }
}
