//! Logs which sessions prevent space from being reused, once a duty has waited for a while. Locks
//! that are held for a moment are not logged.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// A duty that waited for this long is logged.
const MIN_LOGGED_WAIT: Duration = Duration::from_secs(10);

/// The duties that are held up now.
#[derive(Default)]
pub(super) struct BlockedDuties(HashMap<&'static str, BlockedDuty>);

struct BlockedDuty {
    since: Instant,
    /// The blocker that was logged last.
    logged: Option<String>,
}

impl BlockedDuties {
    /// Records the session whose lock blocks this duty; `None` if there is none.
    pub(super) fn note_lock_holder(&mut self, duty: &'static str, holder: Option<String>) {
        if let Some(holder) = self.newly_held(duty, holder, Instant::now()) {
            tracing::warn!(
                duty,
                holder,
                "a session holds a lock on a drained segment: its space is not freed; claims are \
                 not affected"
            );
        }
    }

    /// Records the open transaction that has enqueued into the segment to be sealed; `None` if
    /// there is none.
    pub(super) fn note_segment_writer(&mut self, writer: Option<String>) {
        if let Some(holder) = self.newly_held("seal", writer, Instant::now()) {
            tracing::warn!(
                holder,
                "the ready log is full while a transaction that has enqueued is open: space is \
                 not freed"
            );
        }
    }

    /// Returns the blocker to log. An empty name means that its transaction is younger than a
    /// second, or has ended.
    fn newly_held(
        &mut self,
        duty: &'static str,
        holder: Option<String>,
        now: Instant,
    ) -> Option<String> {
        let Some(holder) = holder else {
            self.0.remove(duty);
            return None;
        };
        let held_up = self.0.entry(duty).or_insert(BlockedDuty {
            since: now,
            logged: None,
        });
        let is_news = held_up.logged.as_ref() != Some(&holder) && !holder.is_empty();
        if !is_news || now.duration_since(held_up.since) < MIN_LOGGED_WAIT {
            return None;
        }
        held_up.logged = Some(holder.clone());
        Some(holder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blockers_of_a_duty_are_named_after_a_wait() {
        let (mut holders, start) = (BlockedDuties::default(), Instant::now());
        let mut news = |holder: Option<&str>, seconds| {
            let now = start + Duration::from_secs(seconds);
            holders.newly_held("reclaim", holder.map(str::to_owned), now)
        };
        assert_eq!(news(Some("session 1"), 0), None);
        assert_eq!(news(None, 5), None);
        // The wait begins again: the duty continued in between.
        assert_eq!(news(Some("session 1"), 9), None);
        assert_eq!(news(Some("session 2"), 18), None);
        // Each blocks for a moment, and the duty still waits.
        assert_eq!(news(Some("session 3"), 19).as_deref(), Some("session 3"));
        assert_eq!(news(Some("session 3"), 60), None);
        assert_eq!(news(Some(""), 61), None);
        assert_eq!(news(Some("session 4"), 62).as_deref(), Some("session 4"));
    }

    #[test]
    fn wait_times_are_tracked_per_duty() {
        let (mut holders, start) = (BlockedDuties::default(), Instant::now());
        let late = start + MIN_LOGGED_WAIT;
        let one = || Some("session 1".to_owned());
        assert_eq!(holders.newly_held("reclaim", one(), start), None);
        assert_eq!(holders.newly_held("tidy_history", one(), late), None);
        assert_eq!(holders.newly_held("reclaim", one(), late), one());
    }
}
