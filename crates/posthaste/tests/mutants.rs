//! Broken variants of the store, made by exact replacement in its SQL. Each must be noticed by the stress or by one of the scenarios, which are the
//! moments that the stress would have to be lucky to meet. A replacement that no longer matches fails the run: a stale mutant proves nothing.

mod gate;
mod list;
mod scenario;
mod script;

use std::time::{Duration, Instant};

use posthaste_testkit::{PgServer, PgVersion, TestDb, connect};

use crate::stress;
use list::{MUTANTS, Mutant};
use scenario::Scenario;
use script::Edits;

/// A scenario that comes to no end has noticed something, too.
const LONGEST: Duration = Duration::from_secs(60);

/// Runs a scenario against the store with these edits. The error says what it noticed.
async fn run(server: &PgServer, scenario: &Scenario, edits: Edits<'_>) -> Result<(), String> {
    let script = script::edited(scenario.gates, edits)?;
    let database = TestDb::empty(server)
        .await
        .map_err(|error| format!("{error:#}"))?;
    let client = connect(database.url())
        .await
        .map_err(|error| format!("{error:#}"))?;
    client
        .batch_execute(&script)
        .await
        .map_err(|error| stress::session::told("it cannot be installed", &error))?;
    match tokio::time::timeout(LONGEST, (scenario.play)(database.url().to_owned())).await {
        Ok(noticed) => noticed.map_err(|error| format!("{error:#}")),
        Err(_) => Err("it hangs".into()),
    }
}

async fn baseline(version: PgVersion) {
    let server = stress::server(version);
    for scenario in scenario::ALL {
        if let Err(noticed) = run(server, scenario, &[]).await {
            panic!("{}: {}: {noticed}", version.name(), scenario.name);
        }
    }
    posthaste_testkit::ran::count("scenarios", scenario::ALL.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_itself_passes_every_scenario_on_15() {
    baseline(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_store_itself_passes_every_scenario_on_18() {
    baseline(PgVersion::V18).await;
}

#[test]
fn every_mutant_still_differs_from_the_store() {
    for mutant in MUTANTS {
        script::edited(mutant.scenario.gates, mutant.edits)
            .unwrap_or_else(|stale| panic!("{}: {stale}", mutant.name));
    }
}

/// `make mutants`. `POSTHASTE_MUTANTS` picks those whose name contains it, `POSTHASTE_MUTANTS_PG=18` another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make mutants"]
async fn every_mutant_is_killed() {
    let wanted = std::env::var("POSTHASTE_MUTANTS").unwrap_or_default();
    let version = match std::env::var("POSTHASTE_MUTANTS_PG").as_deref() {
        Ok("18") => PgVersion::V18,
        _ => PgVersion::V15,
    };
    let server = stress::server(version);
    for scenario in scenario::ALL.iter().chain([&scenario::STRESS]) {
        if !wanted.is_empty() {
            break; // somebody sharpens one mutant
        }
        let started = Instant::now();
        if let Err(noticed) = run(server, scenario, &[]).await {
            panic!(
                "the store itself does not pass {}: {noticed}",
                scenario.name
            );
        }
        println!(
            "passed    the store itself: {}  {:.1} s",
            scenario.name,
            started.elapsed().as_secs_f32()
        );
    }
    let mut survivors = Vec::new();
    let mut ran = 0;
    for mutant in MUTANTS.iter().filter(|one| one.name.contains(&wanted)) {
        ran += 1;
        if !is_killed(server, mutant).await {
            survivors.push(mutant.name);
        }
    }
    posthaste_testkit::ran::count("mutants", ran);
    println!("{ran} mutants, {} survived", survivors.len());
    assert!(survivors.is_empty(), "survived: {survivors:?}");
}

async fn is_killed(server: &PgServer, mutant: &Mutant) -> bool {
    let started = Instant::now();
    let noticed = run(server, mutant.scenario, mutant.edits).await;
    let seconds = started.elapsed().as_secs_f32();
    match noticed {
        Err(how) => {
            assert!(
                !is_misspelt(&how),
                "{}: the mutant is no program: {how}",
                mutant.name
            );
            let how: String = how
                .lines()
                .next()
                .unwrap_or_default()
                .chars()
                .take(140)
                .collect();
            println!(
                "killed    {}  by {} after {seconds:.1} s: {how}",
                mutant.name, mutant.scenario.name
            );
            true
        }
        Ok(()) => {
            println!(
                "SURVIVED  {}  {} for {seconds:.1} s",
                mutant.name, mutant.scenario.name
            );
            false
        }
    }
}

/// A mutant that does not compile is not killed by what it does: 42601, 42703, 42883, 42P01 …
fn is_misspelt(how: &str) -> bool {
    how.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| {
        word.len() == 5 && word.starts_with("42") && word != "42501" && how.contains("ERROR")
    })
}
