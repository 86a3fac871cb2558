//! Positions of changes, and delivery ids that stay the same each time a change is read. Pure.

use std::fmt;
use std::str::FromStr;

use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::lsn::Lsn;

/// The position of a change in the stream. Positions sort by commit, then by the order within the
/// transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The commit of its transaction.
    pub commit: Lsn,
    /// Its record.
    pub record: Lsn,
    /// The number of the change within its record: COPY writes many rows with one record.
    pub row: u16,
}

/// The digits of a position as text.
const POSITION_DIGITS: usize = 36;

/// As in the header `position`, after the timeline. Texts sort as positions do.
impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (commit, record) = (self.commit.0, self.record.0);
        write!(f, "{commit:016x}{record:016x}{:04x}", self.row)
    }
}

impl FromStr for Position {
    type Err = String;

    /// Parses a position with or without its timeline.
    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
            let is_whole = text.len() == POSITION_DIGITS || text.len() == POSITION_DIGITS + 8;
            let digits = (is_hex && is_whole).then(|| &text[text.len() - POSITION_DIGITS..])?;
            let number = |digits: &str| u64::from_str_radix(digits, 16).ok();
            Some(Self {
                commit: Lsn(number(&digits[..16])?),
                record: Lsn(number(&digits[16..32])?),
                row: u16::from_str_radix(&digits[32..], 16).ok()?,
            })
        };
        read().ok_or_else(|| {
            format!(
                "{text:?} is not a position: write its {POSITION_DIGITS} hexadecimal digits, or \
                 {} with the timeline before them",
                POSITION_DIGITS + 8
            )
        })
    }
}

/// The kind of a record in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RecordKind {
    /// It changed rows. The server gives the place where the record begins.
    Change,
    /// A logical message. The server gives the place where the record ends, at which the next
    /// record begins.
    Message,
}

/// The id by which receivers drop repeats of a change. It does not depend on the reader, the time
/// of reading or the filters. Standbys that are promoted apart may give their timelines the same
/// number; their commits differ by time.
pub(crate) fn delivery_id(
    epoch: Uuid,
    (timeline, committed_at): (u32, i64),
    (kind, record): (RecordKind, Lsn),
    row: u16,
) -> Uuid {
    // Without the kind, a message and the change after it would share an id.
    let kind: &[u8] = match kind {
        RecordKind::Change => b"",
        RecordKind::Message => b"message",
    };
    let digest = Sha256::new()
        .chain_update(epoch.as_bytes())
        .chain_update(timeline.to_be_bytes())
        .chain_update(record.0.to_be_bytes())
        .chain_update(row.to_be_bytes())
        .chain_update(committed_at.to_be_bytes())
        .chain_update(kind)
        .finalize();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Numbers the changes of one record.
#[derive(Debug, Default)]
pub(crate) struct RowNumbers {
    last: Option<(Lsn, u16)>,
}

impl RowNumbers {
    /// The number of the next change, which is of this record.
    pub(crate) fn next_number(&mut self, record: Lsn) -> Result<u16, String> {
        let row = match self.last {
            Some((last, row)) if last == record => row
                .checked_add(1)
                .ok_or_else(|| format!("the record at {record} has more than 65536 changes"))?,
            _ => 0,
        };
        self.last = Some((record, row));
        Ok(row)
    }
}

/// The timelines of a server. They distinguish equal places of two timelines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Timelines {
    now: u32,
    /// The earlier timelines and their ends.
    ends: Vec<(u32, Lsn)>,
}

impl Timelines {
    /// Parses the server's history file, which timeline 1 does not have.
    pub(crate) fn parse(now: u32, history: &str) -> Result<Self, String> {
        let mut ends = Vec::new();
        for line in history.lines() {
            let line = line.trim();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let mut words = line.split_whitespace();
            let timeline = words.next().and_then(|word| word.parse().ok());
            let end = words.next().and_then(|word| word.parse().ok());
            match (timeline, end) {
                (Some(timeline), Some(end)) => ends.push((timeline, end)),
                _ => return Err("the history of timelines cannot be read".into()),
            }
        }
        Ok(Self { now, ends })
    }

    /// Whether a store may be of this server by the name of its timeline. A managed server may hide
    /// the number, and has another name instead.
    pub(crate) fn is_current(&self, name: &str) -> bool {
        let number = match name.len() {
            8 => u32::from_str_radix(name, 16).ok(),
            _ => None,
        };
        number.is_none_or(|number| number == self.now)
    }

    /// The timeline on which the record at this place was written.
    pub(crate) fn timeline_at(&self, record: Lsn) -> u32 {
        let ended = self.ends.iter().find(|(_, end)| record < *end);
        ended.map_or(self.now, |(timeline, _)| *timeline)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use uuid::Uuid;

    use super::{Position, RecordKind, RowNumbers, Timelines, delivery_id};
    use crate::lsn::Lsn;

    fn position(commit: u64, record: u64, row: u16) -> Position {
        Position {
            commit: Lsn(commit),
            record: Lsn(record),
            row,
        }
    }

    #[test]
    fn texts_sort_like_positions() {
        let mut all = vec![
            position(0, 0, 0),
            position(9, 8, 0xffff),
            position(0x10, 1, 0),
            position(0x10, 1, 0x10),
            position(0x10, 0xa, 9),
            position(u64::MAX, 0, 0),
        ];
        let texts: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert!(texts.is_sorted() && all.is_sorted());
        for (position, text) in all.drain(..).zip(texts) {
            assert_eq!(text.parse(), Ok(position));
            assert_eq!(format!("00000007{text}").parse(), Ok(position));
        }
        assert!("12".parse::<Position>().is_err());
    }

    #[test]
    fn numbers_the_changes_of_one_record() {
        let mut rows = RowNumbers::default();
        let numbers = [1, 1, 1, 2, 1].map(|record| rows.next_number(Lsn(record)));
        assert_eq!(numbers, [Ok(0), Ok(1), Ok(2), Ok(0), Ok(0)]);
        rows.last = Some((Lsn(3), u16::MAX));
        assert!(rows.next_number(Lsn(3)).is_err());
    }

    #[test]
    fn ids_differ_by_capture_timeline_commit_record_kind_and_row() {
        use RecordKind::{Change, Message};
        let at = |epoch, written_on, kind, record, row| {
            delivery_id(Uuid::from_u128(epoch), written_on, (kind, Lsn(record)), row)
        };
        let id = |epoch, timeline, kind, record, row| at(epoch, (timeline, 1), kind, record, row);
        let ids = [
            id(1, 1, Change, 1, 0),
            id(2, 1, Change, 1, 0),
            id(1, 2, Change, 1, 0),
            id(1, 1, Change, 2, 0),
            id(1, 1, Change, 1, 1),
            id(1, 1, Message, 1, 0),
            id(1, 1, Message, 1, 1),
            at(1, (1, 2), Change, 1, 0),
        ];
        assert_eq!(HashSet::from(ids).len(), ids.len());
        assert_eq!(ids[0], id(1, 1, Change, 1, 0));
        assert_eq!(ids[0].get_version_num(), 8);
    }

    #[test]
    fn equal_positions_belong_to_the_timeline_that_kept_them() {
        let history = "1\t0/5000\tno recovery target specified\n\n2\t0/7000\tbefore 2026\n";
        let timelines = Timelines::parse(3, history).unwrap();
        let at = [0x4fff, 0x5000, 0x6fff, 0x7000, 0x9000].map(|at| timelines.timeline_at(Lsn(at)));
        assert_eq!(at, [1, 2, 2, 3, 3]);
        assert_eq!(Timelines::parse(1, "").unwrap().timeline_at(Lsn(9)), 1);
        assert!(Timelines::parse(2, "one").is_err());
    }

    #[test]
    fn stores_of_another_known_timeline_are_of_another_server() {
        let timelines = Timelines::parse(0x12, "").unwrap();
        let names = ["00000012", "00000011", "life 7", "life 123"];
        let are_current = names.map(|name| timelines.is_current(name));
        assert_eq!(are_current, [true, false, true, true]);
    }
}
