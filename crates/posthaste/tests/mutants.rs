//! Broken variants of the store, made by the mutations in its SQL (sql/README.md). Each is run
//! against the stress and, where it has one, against a scenario: a moment that the stress would
//! meet only by luck, or not at all. One of the two must detect it.

mod gate;
mod list;
mod scenario;
mod script;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use posthaste::__private::migrations_sql_with_mutations;
use posthaste_testkit::{PgServer, PgVersion, TestDb, connect, mutations};

use crate::stress;
use list::{MUTANTS, Mutant};
use scenario::Scenario;

/// The timeout of a scenario, twice what any takes. A scenario that does not end proves nothing
/// about a mutant.
const LONGEST: Duration = Duration::from_secs(60);

/// How a scenario ended.
#[derive(Debug)]
enum Ended {
    Passed,
    /// The failure that it detected.
    Noticed(String),
    Hung,
}

/// Runs a scenario against the store, or against a mutant of it.
///
/// # Panics
/// If the store cannot be set up: then nothing was played, and nothing detected.
async fn run(server: &PgServer, scenario: &Scenario, mutant: Option<&Mutant>) -> Ended {
    let names = scenario.gates.iter().copied();
    let names: Vec<&str> = names.chain(mutant.map(|mutant| mutant.name)).collect();
    let script = script::mutated(&names).unwrap_or_else(|error| panic!("{error}"));
    let database = TestDb::empty(server).await.expect("a database");
    let client = connect(database.url()).await.expect("a connection");
    client.batch_execute(&script).await.unwrap_or_else(|error| {
        panic!(
            "{}",
            stress::session::describe("it cannot be installed", &error)
        )
    });
    match tokio::time::timeout(LONGEST, (scenario.play)(database.url().to_owned())).await {
        Ok(Ok(())) => Ended::Passed,
        Ok(Err(noticed)) => Ended::Noticed(described(&noticed)),
        Err(_) => Ended::Hung,
    }
}

/// Begins with the server's error code, which no message contains.
fn described(error: &anyhow::Error) -> String {
    let code = error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<tokio_postgres::Error>())
        .find_map(tokio_postgres::Error::code);
    match code {
        Some(code) => format!("{} {error:#}", code.code()),
        None => format!("{error:#}"),
    }
}

/// Fails if a scenario detects a failure in the unmodified store.
async fn must_pass(server: &PgServer, scenario: &Scenario) {
    match run(server, scenario, None).await {
        Ended::Passed => {}
        Ended::Noticed(how) => panic!("the store itself does not pass {}: {how}", scenario.name),
        Ended::Hung => panic!("the store itself hangs in {}", scenario.name),
    }
}

async fn baseline(version: PgVersion) {
    let server = stress::server(version);
    for scenario in scenario::ALL {
        must_pass(server, scenario).await;
    }
    posthaste_testkit::ran::count("scenarios", scenario::ALL.len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unmodified_store_passes_every_scenario_on_15() {
    baseline(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_unmodified_store_passes_every_scenario_on_18() {
    baseline(PgVersion::V18).await;
}

#[test]
fn every_mutant_differs_from_the_store() {
    let dense = |text: &str| text.split_whitespace().collect::<String>();
    for mutant in MUTANTS {
        let gates = mutant.scenario.gates;
        let store = script::mutated(gates).unwrap();
        let mutated = script::mutated(&[gates, &[mutant.name]].concat()).unwrap();
        assert_ne!(dense(&mutated), dense(&store), "{}", mutant.name);
    }
}

#[test]
fn every_mutation_belongs_to_a_mutant_or_a_scenario() {
    let script = migrations_sql_with_mutations();
    let mutants: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
    assert_eq!(mutants.len(), MUTANTS.len(), "two mutants have one name");
    assert_eq!(mutations::names(&script, "mutant"), mutants);
    let gates = scenario::ALL.iter().flat_map(|scenario| scenario.gates);
    let gates: BTreeSet<&str> = gates.copied().collect();
    assert_eq!(mutations::names(&script, "gate"), gates);
}

#[test]
fn users_get_the_schema_without_mutations() {
    let script = migrations_sql_with_mutations();
    let without = mutations::apply(&script, &[]).unwrap();
    assert!(without == posthaste::migrations_sql());
}

/// A renamed function breaks a mutation that calls it, which no other quick test would notice.
#[test]
fn mutations_name_only_existing_functions_and_tables() {
    let script = migrations_sql_with_mutations();
    let store = format!("{}{}", gate::SQL, posthaste::migrations_sql());
    let known: BTreeSet<&str> = names_in_schema(&store).collect();
    let mut renamed = String::new();
    for line in script.lines() {
        for name in names_in_schema(line).filter(|name| !known.contains(name)) {
            let created = format!("CREATE FUNCTION posthaste.{name}(");
            if !script.contains(&created) {
                let _ = writeln!(renamed, "posthaste.{name}: {}", line.trim());
            }
        }
    }
    assert!(renamed.is_empty(), "{renamed}");
}

/// Returns the names after `posthaste.`.
fn names_in_schema(text: &str) -> impl Iterator<Item = &str> {
    let ends = |one: char| !(one.is_ascii_alphanumeric() || one == '_');
    let after = text.split("posthaste.").skip(1);
    after.map(move |rest| rest.split(ends).next().unwrap_or_default())
}

/// Mutants that run at once: much of a run is waiting. The unmodified store has to pass under the
/// same load first.
const AT_ONCE: usize = 2;

/// `make mutants`. `POSTHASTE_MUTANTS` picks those whose name contains it,
/// `POSTHASTE_MUTANTS_PG=18` another server.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: make mutants"]
async fn every_mutant_is_killed() {
    let wanted = std::env::var("POSTHASTE_MUTANTS").unwrap_or_default();
    let version = match std::env::var("POSTHASTE_MUTANTS_PG").as_deref() {
        Ok("18") => PgVersion::V18,
        _ => PgVersion::V15,
    };
    let server = stress::server(version);
    // Skipped while an engineer works on single mutants.
    if wanted.is_empty() {
        the_store_itself_passes(server).await;
    }
    let chosen = MUTANTS.iter().filter(|one| one.name.contains(&wanted));
    let results: Vec<MutantResult> = stream::iter(chosen)
        .map(|mutant| MutantResult::of(server, mutant))
        .buffered(AT_ONCE)
        .inspect(|result| println!("{}", result.describe()))
        .collect()
        .await;
    let count = |is_meant: fn(&MutantResult) -> bool| {
        results.iter().filter(|result| is_meant(result)).count()
    };
    let survivors: Vec<&str> = results
        .iter()
        .filter(|result| !result.is_killed())
        .map(|result| result.mutant.name)
        .collect();
    posthaste_testkit::ran::count("mutants", results.len() as u64);
    println!(
        "{} mutants: {} killed by the stress, {} by a scenario of their own, {} survived",
        results.len(),
        count(|result| result.by_stress.is_kill()),
        count(|result| result.by_scenario.as_ref().is_some_and(Run::is_kill)),
        survivors.len()
    );
    assert!(survivors.is_empty(), "survived: {survivors:?}");
}

async fn the_store_itself_passes(server: &PgServer) {
    let stresses = std::iter::repeat_n(&scenario::STRESS, AT_ONCE);
    stream::iter(scenario::ALL.iter().chain(stresses))
        .map(async |scenario| {
            let started = Instant::now();
            must_pass(server, scenario).await;
            println!(
                "passed    the store itself: {}  {:.1} s",
                scenario.name,
                started.elapsed().as_secs_f32()
            );
        })
        .buffered(AT_ONCE)
        .collect::<()>()
        .await;
}

/// The results of a mutant.
struct MutantResult {
    mutant: &'static Mutant,
    by_stress: Run,
    /// `None` if the mutant has only the stress.
    by_scenario: Option<Run>,
}

/// One run of a mutant. A mutant that hangs is not killed: a slow machine would hang as well.
struct Run {
    ended: Ended,
    seconds: f32,
}

impl Run {
    async fn of(server: &PgServer, mutant: &Mutant, scenario: &Scenario) -> Self {
        let started = Instant::now();
        let ended = run(server, scenario, Some(mutant)).await;
        if let Ended::Noticed(how) = &ended {
            let name = mutant.name;
            assert!(
                !is_misspelt(how),
                "{name}: the mutant is not a program: {how}"
            );
            assert!(
                !is_outage(how),
                "{name}: the server failed, not the mutant: {how}"
            );
        }
        Self {
            ended,
            seconds: started.elapsed().as_secs_f32(),
        }
    }

    fn is_kill(&self) -> bool {
        matches!(self.ended, Ended::Noticed(_))
    }

    fn tell(&self, scenario: &str, line: &mut String) {
        let how = match &self.ended {
            Ended::Noticed(how) => how.lines().next().unwrap_or_default(),
            Ended::Passed => "nothing was noticed",
            Ended::Hung => "it hung, which proves nothing",
        };
        let how: String = how.chars().take(100).collect();
        let _ = write!(line, "  | {scenario}, {:.1} s: {how}", self.seconds);
    }
}

/// Runs of the stress for a mutant that has no scenario: a run is short, and finds a failure only
/// by luck.
const PATIENT: usize = 3;

impl MutantResult {
    async fn of(server: &PgServer, mutant: &'static Mutant) -> Self {
        let own = (mutant.scenario.name != scenario::STRESS.name).then_some(mutant.scenario);
        let by_scenario = match own {
            Some(scenario) => Some(Run::of(server, mutant, scenario).await),
            None => None,
        };
        let mut by_stress = Run::of(server, mutant, &scenario::STRESS).await;
        for _ in 1..PATIENT {
            if own.is_none() && !by_stress.is_kill() {
                by_stress = Run::of(server, mutant, &scenario::STRESS).await;
            }
        }
        Self {
            mutant,
            by_stress,
            by_scenario,
        }
    }

    fn is_killed(&self) -> bool {
        self.by_stress.is_kill() || self.by_scenario.as_ref().is_some_and(Run::is_kill)
    }

    /// Describes the result in one line.
    fn describe(&self) -> String {
        let by_scenario = self.by_scenario.as_ref();
        let head = match (
            self.by_stress.is_kill(),
            by_scenario.is_some_and(Run::is_kill),
        ) {
            (true, true) => "killed by both",
            (true, false) => "killed by the stress",
            (false, true) => "killed by its scenario",
            (false, false) => "SURVIVED",
        };
        let mut line = format!("{head:<23} {}", self.mutant.name);
        if let Some(run) = by_scenario {
            run.tell(self.mutant.scenario.name, &mut line);
        }
        self.by_stress.tell(scenario::STRESS.name, &mut line);
        line
    }
}

/// Whether a text contains an error code that satisfies the predicate.
fn has_code(how: &str, is_meant: impl Fn(&str) -> bool) -> bool {
    how.contains("ERROR")
        && how
            .split(|c: char| !c.is_ascii_alphanumeric())
            .any(|word| word.len() == 5 && is_meant(word))
}

/// Whether a mutant does not compile, which does not kill it: 42601, 42703, 42883, 42P01 …
fn is_misspelt(how: &str) -> bool {
    has_code(how, |code| code.starts_with("42") && code != "42501")
}

/// Whether an outage ended the run, which does not kill the mutant: a full disk (53100), too many
/// connections (53300), a server that stops (57P01) or that cannot be reached.
fn is_outage(how: &str) -> bool {
    let is_meant = |code: &str| {
        ["53", "57P", "58"]
            .iter()
            .any(|class| code.starts_with(class))
    };
    has_code(how, is_meant)
        || how.contains("error connecting to server")
        || how.contains("connection closed")
}

#[test]
fn unrelated_errors_do_not_kill_a_mutant() {
    assert!(is_outage(
        "53100 db error: ERROR: could not extend file: No space left on device"
    ));
    assert!(is_outage("error connecting to server: Connection refused"));
    assert!(is_misspelt(
        "it claims: 42703 ERROR: column \"a\" does not exist"
    ));
    for kill in [
        "job 53100 is lost",
        "55000 db error: ERROR: the batch is lost",
        "42501 ERROR: no",
    ] {
        assert!(!is_outage(kill) && !is_misspelt(kill), "{kill}");
    }
}
