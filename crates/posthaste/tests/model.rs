//! The store against a model: whatever operators, workers and maintenance do in whatever order, the
//! store must show what a few lines of Rust predict. `PROPTEST_CASES` sets the number of sequences;
//! a sequence that fails is shrunk, printed, and stored in `proptest-regressions`.

mod book;
mod step;
mod store;

use std::sync::OnceLock;

use posthaste_testkit::PgVersion;
use proptest::prelude::ProptestConfig;
use proptest::test_runner::{FileFailurePersistence, TestCaseError, TestRunner};
use tokio::runtime::Runtime;

use crate::{stress, support};
use book::Book;
use step::Step;
use store::Store;

/// Sequences on each server by default.
const CASES: u32 = 16;
/// Steps of a sequence: a database costs more than many steps.
const STEPS: std::ops::RangeInclusive<usize> = 60..=80;

fn config() -> ProptestConfig {
    let asked = std::env::var_os("PROPTEST_CASES").is_some();
    let default = ProptestConfig::default();
    ProptestConfig {
        cases: if asked { default.cases } else { CASES },
        max_shrink_iters: 300,
        source_file: Some(file!()),
        failure_persistence: Some(Box::new(FileFailurePersistence::SourceParallel(
            "proptest-regressions",
        ))),
        ..default
    }
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Runtime::new().expect("a runtime"))
}

/// Plays one sequence against a separate database, which is compared after each step.
async fn play(version: PgVersion, steps: Vec<Step>) -> Result<(), String> {
    let database = support::migrated(stress::server(version)).await;
    let mut store = Store::open(&database).await?;
    let mut book = Book::default();
    for (at, step) in steps.iter().enumerate() {
        let run = async {
            store.take(step, &mut book).await?;
            store.compare(&book).await
        };
        run.await
            .map_err(|problem| format!("step {at}, {step:?}: {problem}"))?;
    }
    Ok(())
}

fn agrees(version: PgVersion) {
    let config = config();
    let cases = config.cases;
    let sequences = proptest::collection::vec(step::any(), STEPS);
    let mut runner = TestRunner::new(config);
    let outcome = runner.run(&sequences, |steps| {
        runtime()
            .block_on(play(version, steps))
            .map_err(TestCaseError::fail)
    });
    if let Err(failure) = outcome {
        panic!("{}: {failure}", version.name());
    }
    posthaste_testkit::ran::count("modelled", cases.into());
}

#[test]
fn the_store_behaves_like_the_model_on_15() {
    agrees(PgVersion::V15);
}

#[test]
fn the_store_behaves_like_the_model_on_18() {
    agrees(PgVersion::V18);
}
