//! Compares a slot with the mark. Pure.

use crate::lsn::Lsn;

/// A slot as the server shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Slot {
    /// It belongs to this database and uses pgoutput.
    pub(crate) is_ours: bool,
    pub(crate) is_active: bool,
    /// The server synchronizes it to its standbys.
    pub(crate) is_failover: bool,
    pub(crate) confirmed: Lsn,
    pub(crate) wal_status: String,
    pub(crate) reason: Option<String>,
}

/// Why changes between the mark and the slot are lost; `None` if none are.
pub(crate) fn gap_reason(slot: Option<&Slot>, done: Lsn) -> Option<String> {
    let Some(slot) = slot else {
        return Some("the slot is missing".into());
    };
    if !slot.is_ours {
        return Some("the slot is of another database or for another plugin".into());
    }
    if slot.wal_status == "lost" {
        let reason = slot.reason.as_deref().unwrap_or("wal_removed");
        return Some(format!("the server has invalidated the slot ({reason})"));
    }
    (slot.confirmed > done).then(|| {
        let confirmed = slot.confirmed;
        format!("the slot is at {confirmed}, ahead of the captured changes")
    })
}

#[cfg(test)]
mod tests {
    use super::{Slot, gap_reason};
    use crate::lsn::Lsn;

    fn slot(confirmed: u64) -> Slot {
        Slot {
            is_ours: true,
            is_active: false,
            is_failover: false,
            confirmed: Lsn(confirmed),
            wal_status: "reserved".into(),
            reason: None,
        }
    }

    #[test]
    fn slots_at_or_before_the_mark_have_no_gap() {
        assert_eq!(gap_reason(Some(&slot(5)), Lsn(5)), None);
        // A crash of the server reset the slot to an older place.
        assert_eq!(gap_reason(Some(&slot(3)), Lsn(5)), None);
    }

    #[test]
    fn misplaced_lost_and_missing_slots_are_gaps() {
        let lost = Slot {
            wal_status: "lost".into(),
            reason: Some("idle_timeout".into()),
            ..slot(3)
        };
        let other = Slot {
            is_ours: false,
            ..slot(3)
        };
        let reasons = [Some(&slot(6)), Some(&lost), Some(&other), None];
        let reasons = reasons.map(|slot| gap_reason(slot, Lsn(5)).unwrap());
        assert!(reasons[0].contains("0/6") && reasons[1].contains("idle_timeout"));
        assert!(reasons[2].contains("another database") && reasons[3].contains("missing"));
    }
}
