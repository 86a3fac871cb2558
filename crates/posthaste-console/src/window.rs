//! The position of a list in the places that hold jobs, which are read in bounded windows. No IO.

use std::str::FromStr;

use jiff::Timestamp;
use posthaste::State;

use crate::format;

/// Pages of a table in the first read, and at most. Each read that follows one without a match has
/// twice as many.
pub(crate) const FIRST_WINDOW_PAGES: i64 = 128;
pub(crate) const MAX_WINDOW_PAGES: i64 = 2_048;

/// A place that holds jobs, and the position from which it is read.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Cursor {
    /// Jobs that workers run, with ids below this one.
    Running(i64),
    /// Jobs of the in-flight table, with ids below this one: long-running jobs, and those that
    /// await a confirmation or are quarantined.
    InFlight(i64),
    /// Jobs in a slot, at positions of its table before this one.
    Slot(i32, Tid),
    /// Jobs that were given up in this state before this time, or at this time with ids below this
    /// one.
    GivenUp(State, Timestamp, i64),
    /// Completed jobs that are kept, with ids below this one.
    Completed(i64),
    /// Jobs that are due after this time, or at this time with ids above this one, the next first.
    Due(Timestamp, i64),
}

impl Cursor {
    /// The position before all jobs that are due later.
    pub(crate) const FIRST_DUE: Self = Self::Due(Timestamp::UNIX_EPOCH, 0);
}

/// A position in a table: a page, and a line of that page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tid {
    pub(crate) page: i64,
    pub(crate) line: i32,
}

impl Tid {
    /// Formats it as PostgreSQL reads it.
    pub(crate) fn to_sql(self) -> String {
        format!("({},{})", self.page, self.line)
    }

    /// Returns where a read of this many pages ends that begins before this position.
    pub(crate) fn window_start(self, pages: i64) -> Self {
        Self {
            page: (self.page - pages).max(0),
            line: 0,
        }
    }

    /// Parses it as PostgreSQL prints it.
    pub(crate) fn from_sql(text: &str) -> Option<Self> {
        let (page, line) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(',')?;
        Some(Self {
            page: page.parse().ok()?,
            line: line.parse().ok()?,
        })
    }
}

impl Cursor {
    /// Returns whether both are positions in the same table.
    pub(crate) fn is_in_same_table(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Slot(one, _), Self::Slot(other, _)) => one == other,
            (Self::GivenUp(one, ..), Self::GivenUp(other, ..)) => one == other,
            _ => std::mem::discriminant(self) == std::mem::discriminant(other),
        }
    }

    /// Returns whether the place can hold jobs in this state.
    pub(crate) fn may_hold(&self, state: State) -> bool {
        match self {
            Self::Running(_) => state == State::Running,
            Self::InFlight(_) => {
                matches!(state, State::Running | State::Awaiting | State::Quarantined)
            }
            Self::Slot(6.., _) => matches!(
                state,
                State::Scheduled | State::Retrying | State::Blocked | State::Expired
            ),
            Self::Slot(..) => matches!(state, State::Available | State::Blocked | State::Expired),
            Self::GivenUp(given_up, ..) => state == *given_up,
            Self::Completed(_) => state == State::Completed,
            Self::Due(..) => matches!(state, State::Scheduled | State::Retrying),
        }
    }
}

/// States of jobs that were given up.
pub(crate) const GIVEN_UP_STATES: [State; 4] = [
    State::Dead,
    State::Discarded,
    State::Expired,
    State::Cancelled,
];

/// Formats it for an address.
impl std::fmt::Display for Cursor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Running(id) => write!(f, "running-{id}"),
            Self::InFlight(id) => write!(f, "flight-{id}"),
            Self::Completed(id) => write!(f, "completed-{id}"),
            Self::Slot(slot, at) => write!(f, "slot{slot}-{}.{}", at.page, at.line),
            Self::GivenUp(state, at, id) => write!(f, "{state}-{}.{id}", at.as_microsecond()),
            Self::Due(at, id) => write!(f, "due-{}.{id}", at.as_microsecond()),
        }
    }
}

/// The error for a text that is not a position.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct NotACursor;

impl FromStr for Cursor {
    type Err = NotACursor;

    fn from_str(text: &str) -> Result<Self, NotACursor> {
        let (kind, at) = text.split_once('-').ok_or(NotACursor)?;
        match kind {
            "running" => Ok(Self::Running(parse_number(at)?)),
            "flight" => Ok(Self::InFlight(parse_number(at)?)),
            "completed" => Ok(Self::Completed(parse_number(at)?)),
            _ => {
                let (first, second) = at.split_once('.').ok_or(NotACursor)?;
                match (kind, kind.strip_prefix("slot")) {
                    ("due", _) => Ok(Self::Due(parse_timestamp(first)?, parse_number(second)?)),
                    (_, Some(slot)) => parse_slot_cursor(slot, first, second),
                    (_, None) => parse_given_up_cursor(kind, first, second),
                }
            }
        }
    }
}

fn parse_slot_cursor(slot: &str, page: &str, line: &str) -> Result<Cursor, NotACursor> {
    let (slot, page, line) = (
        parse_number::<i32>(slot)?,
        parse_number(page)?,
        parse_number(line)?,
    );
    let is_place = (0..8).contains(&slot)
        && (0..=i64::from(u32::MAX)).contains(&page)
        && (0..=i32::from(i16::MAX)).contains(&line);
    match is_place {
        true => Ok(Cursor::Slot(slot, Tid { page, line })),
        false => Err(NotACursor),
    }
}

fn parse_given_up_cursor(state: &str, at: &str, id: &str) -> Result<Cursor, NotACursor> {
    let state = GIVEN_UP_STATES
        .into_iter()
        .find(|one| format::state_name(*one) == state);
    Ok(Cursor::GivenUp(
        state.ok_or(NotACursor)?,
        parse_timestamp(at)?,
        parse_number(id)?,
    ))
}

fn parse_timestamp(at: &str) -> Result<Timestamp, NotACursor> {
    Timestamp::from_microsecond(parse_number(at)?).map_err(|_| NotACursor)
}

fn parse_number<T: FromStr>(text: &str) -> Result<T, NotACursor> {
    text.parse().map_err(|_| NotACursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_round_trip_through_urls() {
        let at = Timestamp::from_microsecond(1_795_000_000_123_456).unwrap();
        for place in [
            Cursor::Running(7),
            Cursor::InFlight(i64::MAX),
            Cursor::Completed(8),
            Cursor::Slot(6, Tid { page: 3, line: 12 }),
            Cursor::GivenUp(State::Dead, at, 4),
            Cursor::Due(at, 9),
        ] {
            assert_eq!(place.to_string().parse(), Ok(place));
        }
    }

    #[test]
    fn rejects_malformed_cursors() {
        for text in [
            "",
            "running",
            "slot9-1.1",
            "slot1-1.-1",
            "slot1-99999999999.1",
            "available-1.1",
            "dead-x.1",
            "due-x.1",
            "dead-99999999999999999999.1",
            "dead-9223372036854775807.1",
        ] {
            assert_eq!(text.parse::<Cursor>(), Err(NotACursor), "{text}");
        }
    }

    #[test]
    fn windows_start_a_fixed_number_of_pages_earlier() {
        let at = |page, line| Tid { page, line };
        assert_eq!(
            at(1_000, 3).window_start(FIRST_WINDOW_PAGES),
            at(1_000 - FIRST_WINDOW_PAGES, 0)
        );
        assert_eq!(at(3, 3).window_start(FIRST_WINDOW_PAGES), at(0, 0));
        assert_eq!(Tid::from_sql("(12,7)"), Some(at(12, 7)));
        assert_eq!(Tid::from_sql("(12;7)"), None);
    }
}
