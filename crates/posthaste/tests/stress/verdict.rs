//! Checks after the run, when nothing is active.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use tokio::time::sleep;
use tokio_postgres::Client;

use super::ledger::{Delivery, End};
use super::session::describe;
use super::{PATIENCE, Stress};

/// Waits until everything that was committed is closed, or until nothing has happened for so long
/// that it never will be.
pub async fn wait_until_closed(stress: &Stress, client: &Client) {
    let since = Instant::now();
    while !stress.ledger.failed() && since.elapsed() < PATIENCE {
        let (done, last) = stress.ledger.progress();
        match open(client, done).await {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => return stress.ledger.fail(error),
        }
        let quiet_since = last.map_or(since, |last| last.max(since));
        if quiet_since.elapsed() > stress.settings.stalled {
            return;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the number of jobs that are not closed.
async fn open(client: &Client, done: usize) -> Result<i64, String> {
    let row = client
        .query_one(
            "SELECT count(*) - (SELECT count(*) FROM posthaste.dead) FROM expected",
            &[],
        )
        .await
        .map_err(|error| describe("counting", &error))?;
    Ok(row.get::<_, i64>(0) - i64::try_from(done).unwrap_or(i64::MAX))
}

/// Compares the expected with the recorded deliveries.
pub async fn check(stress: &Stress, client: &Client) -> Result<(), String> {
    let expected: HashMap<i64, bool> = rows(client, "SELECT key, expired FROM expected").await?;
    let dead: HashMap<i64, String> = rows(
        client,
        "SELECT (kwargs->>'key')::bigint, state FROM posthaste.dead",
    )
    .await?;
    let jobs = stress.ledger.jobs();
    let mut wrong = Wrong::default();
    for (key, times) in &jobs {
        let steps = stress.settings.clock_steps;
        match expected.get(key) {
            // It was promoted early: before it expired.
            Some(true) if steps => weigh(*key, times, steps, &mut wrong),
            None => wrong.add(
                "were handed out although their transaction rolled back",
                *key,
            ),
            Some(true) => wrong.add("were handed out although they had expired", *key),
            Some(false) => weigh(*key, times, steps, &mut wrong),
        }
    }
    let mut lost = HashSet::new();
    for (key, expired) in &expected {
        let is_dead = dead.get(key).map(String::as_str);
        match (expired, jobs.contains_key(key), is_dead) {
            (true, _, Some("expired")) | (false, true, None) => {}
            (true, true, None) if stress.settings.clock_steps => {}
            (true, ..) => wrong.add("expired and were not kept as expired", *key),
            (false, _, Some(_)) => wrong.add("are dead although they never failed for good", *key),
            (false, false, None) => {
                lost.insert(*key);
                wrong.add("were committed and never handed out", *key);
            }
        }
    }
    for key in dead.keys().filter(|key| !expected.contains_key(key)) {
        wrong.add("are dead although their transaction rolled back", *key);
    }
    if let Err(finding) = wrong.describe() {
        let some: Vec<i64> = lost
            .into_iter()
            .chain(never_closed(&jobs))
            .take(3)
            .collect();
        return Err(format!("{finding}{}", traces(client, &some).await?));
    }
    no_job_remains_unfinished(client).await
}

fn never_closed(jobs: &HashMap<i64, Vec<Delivery>>) -> impl Iterator<Item = i64> {
    let open = |times: &[Delivery]| times.iter().all(|one| one.end != Some(End::Done));
    jobs.iter()
        .filter(move |(_, times)| open(times))
        .map(|(key, _)| *key)
}

/// Returns where unexpected jobs are stored, to find the cause.
async fn traces(client: &Client, keys: &[i64]) -> Result<String, String> {
    let rows = client
        .query(include_str!("traces.sql"), &[&keys])
        .await
        .map_err(|error| describe("tracing", &error))?;
    Ok(rows
        .iter()
        .map(|row| format!("\n  {}", row.get::<_, &str>(0)))
        .collect())
}

/// Checks that a job that is closed for good came once, and again for each time it was to come
/// again.
fn weigh(key: i64, times: &[Delivery], steps: bool, wrong: &mut Wrong) {
    let count = |what: fn(&Delivery) -> bool| times.iter().filter(|one| what(one)).count();
    let done = count(|one| one.end == Some(End::Done));
    let again = count(|one| matches!(one.end, Some(End::Again { .. } | End::TakenAway)));
    if done != 1 {
        wrong.add(
            if done == 0 {
                "were never closed for good"
            } else {
                "were closed for good more than once"
            },
            key,
        );
    } else if times.len() != 1 + again {
        wrong.add("were handed out more often than anything asked for", key);
    }
    let mut counted = 0;
    for one in times {
        // A job that cannot back off, because the clock stepped back, counts no attempt.
        if one.attempt != counted && !(steps && one.attempt + 1 == counted) {
            return wrong.add("came with a wrong number of attempts", key);
        }
        counted = one.attempt + i32::from(one.end == Some(End::Again { counted: true }));
    }
}

/// Checks that nothing is open or in flight and no key is taken: the view and the side tables agree
/// with the ledger.
async fn no_job_remains_unfinished(client: &Client) -> Result<(), String> {
    for (what, sql) in [
        (
            "jobs in the view that nobody will work",
            "SELECT count(*) - (SELECT count(*) FROM posthaste.dead) FROM posthaste.job",
        ),
        ("jobs in flight", "SELECT count(*) FROM posthaste.in_flight"),
        ("unique keys", "SELECT count(*) FROM posthaste.unique_key"),
    ] {
        let row = client
            .query_one(sql, &[])
            .await
            .map_err(|error| describe(what, &error))?;
        let left: i64 = row.get(0);
        if left != 0 {
            return Err(format!("{left} {what} are left"));
        }
    }
    Ok(())
}

/// Findings by kind, each with a few keys.
#[derive(Default)]
struct Wrong(HashMap<&'static str, Vec<i64>>);

impl Wrong {
    fn add(&mut self, what: &'static str, key: i64) {
        self.0.entry(what).or_default().push(key);
    }

    fn describe(self) -> Result<(), String> {
        if self.0.is_empty() {
            return Ok(());
        }
        let mut findings: Vec<String> = self
            .0
            .into_iter()
            .map(|(what, mut keys)| {
                keys.sort_unstable();
                let some: Vec<String> = keys.iter().take(5).map(i64::to_string).collect();
                format!("{} jobs {what} ({}, …)", keys.len(), some.join(", "))
            })
            .collect();
        findings.sort();
        Err(findings.join("; "))
    }
}

async fn rows<K, V>(client: &Client, sql: &str) -> Result<HashMap<K, V>, String>
where
    K: tokio_postgres::types::FromSqlOwned + Eq + std::hash::Hash,
    V: tokio_postgres::types::FromSqlOwned,
{
    let rows = client
        .query(sql, &[])
        .await
        .map_err(|error| describe(sql, &error))?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
