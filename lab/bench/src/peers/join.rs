//! Joins the jobs that an adapter committed with those that it started.

use std::collections::BTreeMap;

use anyhow::{Context, Result};

/// A transaction that committed a job, with times in microseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Commit {
    pub(crate) began: u64,
    pub(crate) committed: u64,
}

/// The jobs of one run.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct Joined {
    /// From the answer to COMMIT to the handler's first line in milliseconds, in the order of the
    /// commits. A handler that began before the answer has not waited.
    pub(crate) waited_ms: Vec<f64>,
    /// Jobs that were committed and never started.
    pub(crate) lost: u64,
    /// Starts of a job after its first.
    pub(crate) surplus: u64,
    /// Starts of jobs that were never committed.
    pub(crate) unknown: u64,
}

/// Joins the lines `number begin commit` to the lines `number start`. Starts before the first
/// transaction are those of the warm-up, whose jobs have the same numbers.
pub(crate) fn join(offered: &str, worked: &str) -> Result<Joined> {
    let mut commits: BTreeMap<u64, Commit> = BTreeMap::new();
    for line in offered.lines() {
        let [number, began, committed] = numbers(line)?;
        commits.insert(number, Commit { began, committed });
    }
    let first_began = commits.values().map(|commit| commit.began).min();
    let mut starts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut joined = Joined::default();
    for line in worked.lines() {
        let [number, at] = numbers(line)?;
        if first_began.is_some_and(|began| at < began) {
            continue;
        }
        if !commits.contains_key(&number) {
            joined.unknown += 1;
        } else if let Some(first) = starts.get_mut(&number) {
            joined.surplus += 1;
            *first = at.min(*first);
        } else {
            starts.insert(number, at);
        }
    }
    joined.lost = (commits.len() - starts.len()) as u64;
    let mut in_order: Vec<(Commit, u64)> = starts
        .iter()
        .filter_map(|(number, at)| Some((*commits.get(number)?, *at)))
        .collect();
    in_order.sort_by_key(|(commit, _)| (commit.committed, commit.began));
    let waited = |(commit, at): &(Commit, u64)| at.saturating_sub(commit.committed) as f64 / 1e3;
    joined.waited_ms = in_order.iter().map(waited).collect();
    Ok(joined)
}

fn numbers<const COUNT: usize>(line: &str) -> Result<[u64; COUNT]> {
    let found: Vec<u64> = line
        .split(' ')
        .map(|word| {
            word.parse()
                .with_context(|| format!("not a number: {line}"))
        })
        .collect::<Result<_>>()?;
    found
        .try_into()
        .map_err(|_| anyhow::anyhow!("not {COUNT} numbers: {line}"))
}

#[cfg(test)]
mod tests {
    use super::{Joined, join};

    #[test]
    fn joins_starts_to_commits_in_the_order_of_the_commits() -> anyhow::Result<()> {
        let joined = join("7 100 5000\n3 50 2000\n", "3 2500\n7 9000\n")?;
        assert_eq!(
            joined,
            Joined {
                waited_ms: vec![0.5, 4.0],
                ..Joined::default()
            }
        );
        Ok(())
    }

    #[test]
    fn starts_before_the_answer_to_commit_have_no_wait() -> anyhow::Result<()> {
        assert_eq!(join("1 100 5000\n", "1 4000\n")?.waited_ms, [0.0]);
        Ok(())
    }

    #[test]
    fn ignores_starts_of_the_warm_up() -> anyhow::Result<()> {
        let joined = join("1 100 200\n2 300 400\n", "1 50\n2 60\n1 1200\n2 2400\n")?;
        assert_eq!((joined.lost, joined.surplus), (0, 0));
        assert_eq!(joined.waited_ms, [1.0, 2.0]);
        Ok(())
    }

    #[test]
    fn counts_lost_repeated_and_unknown_jobs() -> anyhow::Result<()> {
        let joined = join("1 0 10\n2 0 10\n", "1 3010\n1 2010\n9 20\n")?;
        assert_eq!((joined.lost, joined.surplus, joined.unknown), (1, 1, 1));
        assert_eq!(joined.waited_ms, [2.0], "the first start counts");
        Ok(())
    }

    #[test]
    fn rejects_lines_that_are_not_numbers() {
        assert!(join("1 0\n", "").is_err());
        assert!(join("", "1 soon\n").is_err());
        assert!(join("", "1 2 3\n").is_err());
    }
}
