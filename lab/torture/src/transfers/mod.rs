//! Transfers between accounts in OpenSearch, by processes that are killed, paused and disconnected
//! while they make them; then every account and every transaction is checked.
//!
//! Each process has a separate lane of transfers and recovers those of other processes. The
//! successor of a process that was killed continues after the last transfer that it had begun: the
//! transfers in flight are left to recovery.

mod executor;
mod judge;
mod lane;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use futures_util::future::try_join_all;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use posthaste_elastic::Client;
use posthaste_elastic::two_phase::{Coordinator, Transaction};
use posthaste_testkit::eventually;

pub use executor::{ExecutorOptions, execute};
use judge::{Ending, judge};
pub use judge::{Finding, Load};
pub use lane::Fault;
use lane::Lane;

/// The index of the accounts.
pub const ACCOUNTS: &str = "accounts";
/// The index of the transactions.
pub const TRANSACTIONS: &str = "transactions";
/// The initial balance of an account: transfers of up to [`LARGEST`] soon lack funds.
const BALANCE: i64 = 100;
const LARGEST: i64 = 40;
/// The limit for recovery to end everything without further faults: the delay grows after each
/// failed attempt.
const QUIET: Duration = Duration::from_secs(300);
const AT_ONCE: usize = 16;
/// The age at which an unchanged transaction is recovered, although its executor may only be
/// paused.
const GRACE: Duration = Duration::from_secs(1);
const BETWEEN: Duration = Duration::from_millis(300);
/// The timeout of a client that only reads.
const PATIENCE: Duration = Duration::from_secs(60);

/// The plan of a run. The same seed gives the same transfers, and the same faults in the same order
/// on each lane.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The seed.
    pub seed: u64,
    /// The number of transfers.
    pub transfers: usize,
    /// The number of accounts.
    pub accounts: usize,
    /// The number of concurrent processes.
    pub executors: usize,
    /// The number of transfers that each process has in flight.
    pub at_once: usize,
    /// The number of faults of each kind.
    pub faults: BTreeMap<Fault, usize>,
}

/// A rule that is removed on the server.
#[derive(Clone, Copy, Debug)]
pub struct Broken {
    /// The script that enforces it.
    script: (&'static str, &'static str),
    /// A passage of the script, and its replacement.
    edit: (&'static str, &'static str),
}

/// A hold is accepted with any mark.
pub const MARKS_IGNORED: Broken = Broken {
    script: (
        "posthaste-two-phase-hold-1",
        include_str!("../../../../crates/posthaste-elastic/scripts/hold.painless"),
    ),
    edit: (
        "boolean fenced = mark != ((Number) params.mark).longValue();",
        "boolean fenced = false;",
    ),
};

/// The result of a run.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The counts.
    pub load: Load,
    /// The faults of executors.
    pub faults: BTreeMap<Fault, usize>,
    /// Violations of rules.
    pub findings: Vec<Finding>,
    /// The duration in seconds.
    pub seconds: f64,
}

impl Plan {
    /// A transfer of the plan.
    fn transfer(&self, at: usize) -> anyhow::Result<Transaction> {
        some_transfer(self.seed, self.accounts, at)
    }

    /// The faults of each lane, in their order.
    fn of_lanes(&self) -> Vec<Vec<Fault>> {
        let all = self.faults.iter();
        let mut order: Vec<Fault> = all
            .flat_map(|(fault, count)| vec![*fault; *count])
            .collect();
        fastrand::Rng::with_seed(self.seed).shuffle(&mut order);
        let mut lanes = vec![Vec::new(); self.executors];
        for (at, fault) in order.into_iter().enumerate() {
            lanes[at % self.executors].push(fault);
        }
        lanes
    }
}

/// Depends only on the seed and its number, so that every process knows each transfer.
fn some_transfer(seed: u64, accounts: usize, at: usize) -> anyhow::Result<Transaction> {
    let mut chance = fastrand::Rng::with_seed(seed.wrapping_add(at as u64));
    let from = chance.usize(0..accounts);
    let to = (from + chance.usize(1..accounts)) % accounts;
    let amount = chance.i64(1..=LARGEST);
    Ok(Transaction::transfer(
        &format!("t{at}"),
        &account(from),
        &account(to),
        amount,
    )?)
}

fn account(at: usize) -> String {
    format!("a{at}")
}

/// A coordinator at this URL: directly, or through a proxy.
fn coordinator(url: &str, time_limit: Duration) -> anyhow::Result<Coordinator> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let client = Client::new(reqwest::Client::builder().no_proxy(), url)?;
    let client = client.time_limit(time_limit);
    Ok(Coordinator::new(client, ACCOUNTS, TRANSACTIONS))
}

/// Runs the plan on the server at this port, which must have neither index, with this program's
/// [`execute`]. If a rule is removed, findings are expected.
pub async fn play(
    plan: &Plan,
    port: u16,
    program: &Path,
    broken: Option<Broken>,
) -> anyhow::Result<Outcome> {
    let begun = Instant::now();
    let ours = coordinator(&format!("http://127.0.0.1:{port}"), PATIENCE)?;
    ours.prepare(0).await?;
    for at in 0..plan.accounts {
        ours.open(&account(at), BALANCE).await?;
    }
    if let Some(broken) = broken {
        break_rule(&ours, broken).await?;
    }
    let lanes = plan.of_lanes().into_iter().enumerate();
    let lanes =
        lanes.map(|(number, faults)| Lane::play(plan, number, faults, (&ours, port), program));
    // Recovers also while all executors are paused.
    let told = tokio::select! {
        told = try_join_all(lanes) => told?,
        () = ours.recover_always(GRACE, BETWEEN) => Vec::new(),
    };
    let mut faults = BTreeMap::new();
    let mut claims = Vec::new();
    for lane in told {
        claims.extend(lane.claims);
        for fault in lane.struck {
            *faults.entry(fault).or_default() += 1;
        }
    }
    recover(&ours).await?;
    let ending = end(plan, &ours, claims).await?;
    let (load, findings) = judge(&ending);
    Ok(Outcome {
        load,
        faults,
        findings,
        seconds: begun.elapsed().as_secs_f64(),
    })
}

async fn break_rule(ours: &Coordinator, broken: Broken) -> anyhow::Result<()> {
    let (id, source) = broken.script;
    let (from, to) = broken.edit;
    anyhow::ensure!(source.contains(from), "stale: {from:?}");
    let edited = source.replace(from, to);
    Ok(ours.client().put_script(id, &edited).await?)
}

/// Recovers until no transaction is open.
async fn recover(ours: &Coordinator) -> anyhow::Result<()> {
    eventually(QUIET, "recovery ends all transactions", async || {
        ours.client().refresh(TRANSACTIONS).await?;
        ours.recover(Duration::ZERO).await?;
        ours.client().refresh(TRANSACTIONS).await?;
        Ok(ours.list_stuck(Duration::ZERO).await?.is_empty())
    })
    .await
}

async fn end(plan: &Plan, ours: &Coordinator, claims: Vec<lane::Claim>) -> anyhow::Result<Ending> {
    let mut accounts = BTreeMap::new();
    for at in 0..plan.accounts {
        let name = account(at);
        let document = ours.document(&name).await?;
        let document = document.with_context(|| format!("the account {name} is gone"))?;
        accounts.insert(name, document);
    }
    let transfers = (0..plan.transfers).map(|at| async move {
        let transfer = plan.transfer(at)?;
        let record = ours.get(transfer.id().as_str()).await?;
        let state = record.map(|record| record.transaction_state);
        anyhow::Ok((transfer, state))
    });
    let transfers = stream::iter(transfers).buffered(AT_ONCE);
    Ok(Ending {
        opened: BALANCE,
        accounts,
        transfers: transfers.try_collect().await?,
        claims,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_reproduce_transfers_and_faults() {
        let plan = Plan {
            seed: 7,
            transfers: 10,
            accounts: 3,
            executors: 2,
            at_once: 1,
            faults: [(Fault::Kill, 3), (Fault::Stall, 2)].into(),
        };
        let lanes = plan.of_lanes();
        assert_eq!(lanes, plan.of_lanes());
        assert_eq!(lanes.iter().map(Vec::len).collect::<Vec<_>>(), [3, 2]);
        for at in 0..plan.transfers {
            assert_eq!(plan.transfer(at).ok(), plan.transfer(at).ok());
            assert!(plan.transfer(at).is_ok(), "no account pays itself");
        }
    }
}
