//! Snapshots of the database and the transactions that they see. Pure.

use std::collections::HashSet;
use std::str::FromStr;

/// A snapshot that `pg_current_snapshot()` printed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Transactions from this one on are not seen.
    xmax: u64,
    running: HashSet<u64>,
}

impl FromStr for Snapshot {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let mut parts = text.split(':');
            let _xmin: u64 = parts.next()?.parse().ok()?;
            let xmax = parts.next()?.parse().ok()?;
            let running = parts.next()?.split(',').filter(|one| !one.is_empty());
            let running: Option<_> = running.map(|one| one.parse().ok()).collect();
            let running = running?;
            Some(Self { xmax, running })
        };
        read().ok_or_else(|| format!("{text:?} is not a snapshot"))
    }
}

impl Snapshot {
    /// Whether it sees the transaction. The stream has only the lower half of its number.
    pub(crate) fn sees(&self, xid: u32) -> bool {
        let xid = widen_xid(xid, self.xmax);
        xid < self.xmax && !self.running.contains(&xid)
    }
}

/// The number with this lower half that is nearest to the other number.
fn widen_xid(xid: u32, near: u64) -> u64 {
    let epoch = near & !0xffff_ffff;
    let here = epoch | u64::from(xid);
    let half = 1 << 31;
    if here > near + half {
        here.saturating_sub(1 << 32)
    } else if here + half < near {
        here + (1 << 32)
    } else {
        here
    }
}

#[cfg(test)]
mod tests {
    use super::Snapshot;

    #[test]
    fn snapshots_see_transactions_that_ended_earlier() {
        let snapshot: Snapshot = "10:20:12,15".parse().unwrap();
        let seen = [3, 11, 12, 15, 19, 20, 21].map(|xid| snapshot.sees(xid));
        assert_eq!(seen, [true, true, false, false, true, false, false]);
    }

    #[test]
    fn transaction_ids_are_compared_across_a_wraparound() {
        let snapshot: Snapshot = "4294967290:4294967300:4294967297".parse().unwrap();
        let seen = [4_294_967_290, u32::MAX, 1, 3, 4, 5].map(|xid| snapshot.sees(xid));
        assert_eq!(seen, [true, true, false, true, false, false]);
        // Begun just before the wraparound, and not yet counted by this snapshot.
        let before: Snapshot = "4294967290:4294967290:".parse().unwrap();
        assert!(!before.sees(5) && !before.sees(4_294_967_295) && before.sees(4_294_967_289));
    }

    #[test]
    fn rejects_malformed_snapshots() {
        for text in ["", "1", "1:2", "1:x:", "1:2:y"] {
            assert!(text.parse::<Snapshot>().is_err(), "{text}");
        }
    }
}
