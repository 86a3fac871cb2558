//! The duration of claims, by the server's clock.
//!
//! The worker under test is the real one, so the bench does not time its calls from inside: its
//! sessions log every statement with its duration, and this module reads the claims from the
//! server's log. The transaction ID in the log shows which of them found jobs: a claim that writes
//! no row has none.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The name of the sessions whose statements are logged.
pub(crate) const LOGGED_SESSION: &str = "posthaste-bench-logged";

/// Session settings with which the server logs each statement's duration.
pub(crate) const LOGGING_OPTIONS: &str = "-c log_min_duration_statement=0";

/// A part of the text of every claim.
const CLAIM: &str = "posthaste.claim(";

/// One call of the claim function.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Claim {
    /// Seconds since the epoch.
    pub(crate) at: f64,
    pub(crate) milliseconds: f64,
    /// Whether it wrote a claim, and therefore its transaction had an ID.
    pub(crate) found: bool,
}

/// A position in the server's log.
#[derive(Debug)]
pub(crate) struct LogMark {
    path: PathBuf,
    offset: u64,
}

impl LogMark {
    /// The current end of the log.
    pub(crate) fn here(path: &Path) -> Result<Self> {
        let offset = std::fs::metadata(path)
            .with_context(|| format!("no log at {}", path.display()))?
            .len();
        Ok(Self {
            path: path.to_owned(),
            offset,
        })
    }

    /// All claims that were logged since.
    pub(crate) fn claims_since(&self) -> Result<Vec<Claim>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset))?;
        claims(BufReader::new(file))
    }
}

/// Reads the claims of a growing log.
#[derive(Debug)]
pub(crate) struct LogReader {
    file: File,
    rest: Vec<u8>,
}

impl LogReader {
    /// Begins at the current end of the log.
    pub(crate) fn at_end(path: &Path) -> Result<Self> {
        let mut file = File::open(path).with_context(|| format!("no log at {}", path.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            file,
            rest: Vec::new(),
        })
    }

    /// Returns the claims that were logged since the last call. The log's last entry is left for
    /// the next call, because more lines of it may follow.
    pub(crate) fn read(&mut self) -> Result<Vec<Claim>> {
        self.file.read_to_end(&mut self.rest)?;
        let end = last_entry(&self.rest);
        let whole: Vec<u8> = self.rest.drain(..end).collect();
        claims(whole.as_slice())
    }
}

/// The position of the last entry of a log.
fn last_entry(log: &[u8]) -> usize {
    let mut starts = log.windows(2).enumerate().rev();
    let found = starts.find(|(_, pair)| pair[0] == b'\n' && pair[1] != b'\t');
    found.map_or(0, |(at, _)| at + 1)
}

/// The duration of each claim in milliseconds.
pub(crate) fn milliseconds(claims: &[Claim]) -> Vec<f64> {
    claims.iter().map(|claim| claim.milliseconds).collect()
}

/// This many of the slowest claims, in the order of their time.
pub(crate) fn slowest(mut claims: Vec<Claim>, count: usize) -> Vec<Claim> {
    claims.sort_by(|one, other| other.milliseconds.total_cmp(&one.milliseconds));
    claims.truncate(count);
    claims.sort_by(|one, other| one.at.total_cmp(&other.at));
    claims
}

/// The durations of claims in each of `parts` equal periods.
pub(crate) fn by_time(claims: &[Claim], parts: usize) -> Vec<Vec<f64>> {
    let (Some(first), Some(last)) = (claims.first(), claims.last()) else {
        return vec![Vec::new(); parts];
    };
    let span = (last.at - first.at).max(f64::EPSILON);
    let mut spans = vec![Vec::new(); parts];
    for claim in claims {
        let part = ((claim.at - first.at) / span * parts as f64) as usize;
        if let Some(span) = spans.get_mut(part.min(parts - 1)) {
            span.push(claim.milliseconds);
        }
    }
    spans
}

fn claims(log: impl BufRead) -> Result<Vec<Claim>> {
    let mut found = Vec::new();
    let mut pending: Option<Claim> = None;
    for line in log.split(b'\n') {
        let line = line?;
        let text = String::from_utf8_lossy(&line);
        // Further lines of a statement begin with a tab.
        if !text.starts_with('\t') {
            pending = execution(&text);
        }
        if text.contains(CLAIM) {
            found.extend(pending.take());
        }
    }
    Ok(found)
}

/// Parses the claim of a line such as `1700000000.123 name 765 LOG:  duration: 0.345 ms  execute
/// s1: SELECT`. Parsing and binding are logged too and are ignored.
fn execution(line: &str) -> Option<Claim> {
    let (at, rest) = line.split_once(' ')?;
    let rest = rest.strip_prefix(LOGGED_SESSION)?.strip_prefix(' ')?;
    let (xid, rest) = rest.split_once(' ')?;
    let (milliseconds, statement) = rest.split_once("duration: ")?.1.split_once(" ms  ")?;
    if !statement.starts_with("execute ") && !statement.starts_with("statement: ") {
        return None;
    }
    Some(Claim {
        at: at.parse().ok()?,
        milliseconds: milliseconds.parse().ok()?,
        found: xid.parse::<u32>().ok()? != 0,
    })
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::{Claim, LogReader, by_time, claims, slowest};

    const LOG: &str = "\
1700000000.100 posthaste-bench 0 LOG:  duration: 9.000 ms  execute s1: SELECT * FROM \
posthaste.claim($1)
1700000000.200 posthaste-bench-logged 0 LOG:  duration: 8.000 ms  parse s1: SELECT * FROM \
posthaste.claim($1)
1700000000.300 posthaste-bench-logged 745 LOG:  duration: 0.345 ms  execute s1: SELECT *
\tFROM posthaste.claim($1)
1700000000.400 posthaste-bench-logged 0 LOG:  duration: 7.000 ms  execute s2: SELECT 1
1700000000.500 posthaste-bench-logged 0 LOG:  duration: 0.500 ms  execute s1: SELECT * FROM \
posthaste.claim($1)
";

    #[test]
    fn only_executed_claims_of_the_logged_sessions_count() -> anyhow::Result<()> {
        let found = claims(LOG.as_bytes())?;
        let expected = [
            Claim {
                at: 1_700_000_000.3,
                milliseconds: 0.345,
                found: true,
            },
            Claim {
                at: 1_700_000_000.5,
                milliseconds: 0.5,
                found: false,
            },
        ];
        assert_eq!(found, expected);
        Ok(())
    }

    #[test]
    fn a_growing_log_is_read_once_and_entries_are_not_torn() -> anyhow::Result<()> {
        let mut file = tempfile::NamedTempFile::new()?;
        let mut reader = LogReader::at_end(file.path())?;
        let torn = LOG
            .find("FROM posthaste.claim($1)\n1700000000.400")
            .unwrap_or(0);
        let (first, second) = LOG.split_at(torn);
        file.write_all(first.as_bytes())?;
        assert_eq!(reader.read()?, []);
        file.write_all(second.as_bytes())?;
        file.write_all(b"1700000000.600 other 0 LOG:  end\n")?;
        let at: Vec<f64> = reader.read()?.iter().map(|claim| claim.at).collect();
        assert_eq!(at, [1_700_000_000.3, 1_700_000_000.5]);
        assert_eq!(reader.read()?, []);
        Ok(())
    }

    #[test]
    fn claims_are_divided_by_time_and_not_by_count() {
        let at = |at: f64| Claim {
            at,
            milliseconds: at,
            found: true,
        };
        let spans = by_time(&[at(0.0), at(1.0), at(2.0), at(9.0), at(10.0)], 2);
        assert_eq!(spans, [vec![0.0, 1.0, 2.0], vec![9.0, 10.0]]);
    }

    #[test]
    fn the_slowest_claims_are_reported_in_order_of_time() {
        let claims = [(1.0, 9.0), (2.0, 0.5), (3.0, 12.0), (4.0, 0.4), (5.0, 8.0)];
        let claims = claims.map(|(at, milliseconds)| Claim {
            at,
            milliseconds,
            found: true,
        });
        let times: Vec<f64> = slowest(claims.to_vec(), 3)
            .iter()
            .map(|claim| claim.at)
            .collect();
        assert_eq!(times, [1.0, 3.0, 5.0]);
    }

    #[test]
    fn empty_logs_have_no_time_spans() {
        assert_eq!(by_time(&[], 2), [Vec::<f64>::new(), Vec::new()]);
    }
}
