//! One transfer at a time in alternation with each of the operations that it is compared with, so
//! that a slow phase of the machine affects all of them.

use std::time::Instant;

use anyhow::{Result, ensure};
use posthaste_elastic::two_phase::{Coordinator, Transaction};
use posthaste_elastic::{Operation, Reading, Script, Source};
use serde_json::json;

use super::article::Article;
use super::ground::{Ground, account, pair};
use crate::rounds::Figures;
use crate::statistics::percentile;
use crate::taint::Watch;

/// Names of the ratios of medians.
pub(super) const SETTLED_TO_CHAIN: &str = "settled_to_chain";
pub(super) const FINISHED_TO_CHAIN: &str = "finished_to_chain";
pub(super) const SETTLED_TO_SEVEN: &str = "settled_to_seven";
const COUNT: (&str, &str) = ("bench-count", "ctx._source.balance += params.by");

/// Runs this many of each.
pub(super) async fn in_turn(ground: &Ground, count: usize) -> Result<Figures> {
    let (ours, theirs) = (ground.indexes(), ground.indexes());
    let coordinator = ground.coordinator(&ours).await?;
    let article = Article::prepared(&ground.client, &theirs, "single", count).await?;
    let requests = Requests::of(&coordinator, &ours[0]).await?;
    let transfer = |kind: &str, at: usize| {
        let (from, to) = pair(at);
        Transaction::transfer(&format!("{kind}{at}"), &from, &to, 1)
    };
    let mut times: [Vec<f64>; 6] = Default::default();
    let watch = Watch::begin()?;
    for at in 0..count {
        let (settled, finished) = (transfer("settled", at)?, transfer("finished", at)?);
        times[0].push(timed(requests.read(at)).await?);
        times[1].push(timed(requests.write(at, 1)).await?);
        times[2].push(timed(requests.write(at, 2)).await?);
        times[3].push(timed(async { Ok(coordinator.run_to_settled(&settled).await?) }).await?);
        times[4].push(timed(async { Ok(coordinator.run(&finished).await?) }).await?);
        times[5].push(timed(article.run("single", at)).await?);
    }
    let figures = Figures::measured_under(watch.finish()?);
    ground.clear(&ours).await?;
    ground.clear(&theirs).await?;
    let [read, one, two, settled, finished, seven] =
        [0, 1, 2, 3, 4, 5].map(|kind| percentile(&times[kind], 0.5));
    let chain = read + 2.0 * one + 2.0 * two;
    Ok(figures
        .with("read_ms", read)
        .with("write_ms", one)
        .with("write_both_ms", two)
        .with("settled_ms", settled)
        .with("settled_p99_ms", percentile(&times[3], 0.99))
        .with("finished_ms", finished)
        .with("seven_ms", seven)
        .with("seven_p99_ms", percentile(&times[5], 0.99))
        .with(SETTLED_TO_CHAIN, settled / chain)
        .with(FINISHED_TO_CHAIN, finished / (chain + one))
        .with(SETTLED_TO_SEVEN, settled / seven))
}

/// Measures an operation in milliseconds.
async fn timed(once: impl Future<Output = Result<()>>) -> Result<f64> {
    let begun = Instant::now();
    once.await?;
    Ok(begun.elapsed().as_secs_f64() * 1_000.0)
}

/// The single requests of which a transfer consists.
struct Requests<'c> {
    coordinator: &'c Coordinator,
    accounts: &'c str,
}

impl<'c> Requests<'c> {
    async fn of(coordinator: &'c Coordinator, accounts: &'c str) -> Result<Self> {
        coordinator.client().put_script(COUNT.0, COUNT.1).await?;
        Ok(Self {
            coordinator,
            accounts,
        })
    }

    async fn read(&self, at: usize) -> Result<()> {
        let (from, to) = pair(at);
        let both = [from.as_str(), to.as_str()];
        let client = self.coordinator.client();
        let read = client.multi_get(self.accounts, &both, Reading::Latest, Source::Whole);
        read.await?;
        Ok(())
    }

    /// Updates this many documents in one request.
    async fn write(&self, at: usize, documents: usize) -> Result<()> {
        let script = Script {
            id: COUNT.0,
            params: json!({"by": 1}),
        };
        let update = |nth| -> Result<Operation> {
            let update = Operation::update(self.accounts, &account(2 * at + nth), &script)?;
            Ok(update.retried(3))
        };
        let updates: Vec<Operation> = (0..documents).map(update).collect::<Result<_>>()?;
        let outcomes = self.coordinator.client().bulk(&updates).await?;
        ensure!(outcomes.iter().all(Result::is_ok), "not all was written");
        Ok(())
    }
}
