//! `posthaste alerts` and the Prometheus rules fire the same alerts for the same readings: promtool
//! plays random series against docs/operate/prometheus/posthaste.rules.yml.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use posthaste::Counter;
use posthaste_observe::{Alerts, History, findings};
use posthaste_testkit::ran;

use super::*;

const LASTING: Duration = Duration::from_secs(600);
/// One reading per minute for forty minutes.
const READINGS: usize = 41;
const SERIES: u64 = 60;
/// The Prometheus alerts of findings.
const NAMES: [(Kind, &str); 3] = [
    (Kind::QueueSlow, "PosthasteCompletionRateLow"),
    (Kind::QueueLong, "PosthasteQueueLong"),
    (Kind::WorkerNoLeader, "PosthasteFinding"),
];

#[derive(Clone, Copy)]
struct Reading {
    completed: i64,
    due: i64,
    has_leader: bool,
}

/// Makes random readings. The first twenty minutes are busy, because the rules judge the rate only
/// of a queue that was busy.
fn random_readings(seed: u64) -> Vec<Reading> {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut rate, mut due, mut has_leader) = (40, 0, true);
    let mut completed = 0;
    let reading = |n| {
        if n > 20 && random.u8(..8) == 0 {
            rate = random.choice([0, 2, 40]).unwrap_or_default();
        }
        if random.u8(..10) == 0 {
            due = random.choice([0, 900, 1_001, 5_000]).unwrap_or_default();
        }
        if random.u8(..6) == 0 {
            has_leader = random.bool();
        }
        completed += rate;
        Reading {
            completed,
            due,
            has_leader,
        }
    };
    (0..READINGS).map(reading).collect()
}

fn snapshot(reading: Reading) -> Snapshot {
    let mut counter = Counter::default();
    counter.queue = "mail".into();
    (counter.completed_total, counter.running) = (reading.completed, reading.due);
    let mut snapshot = Snapshot::default();
    snapshot.counters.jobs.push(counter);
    snapshot.store.has_leader = reading.has_leader;
    snapshot.workers.push(posthaste_observe::Worker::default());
    snapshot
}

/// Returns the alerts that fire after the last reading.
fn firing_alerts(readings: &[Reading]) -> Vec<Finding> {
    let scope = AlertScope {
        queues: vec!["mail".into()],
        exempt: Vec::new(),
        completed_below: Some(10.0),
        length_above: Some(1_000),
        lasting: LASTING,
    };
    let thresholds = scope.thresholds(Thresholds::default());
    let (mut history, mut alerts) = (History::default(), Alerts::new(LASTING));
    let mut firing = Vec::new();
    for (n, reading) in readings.iter().enumerate() {
        let (at, mut snapshot) = (n as f64 * 60.0, snapshot(*reading));
        history.add(at, scope.completed_totals(&snapshot), LASTING);
        snapshot.rates = history.rates(LASTING);
        firing = alerts.update(at, findings(&snapshot, &thresholds));
    }
    firing
}

/// Formats one promtool test.
fn promtool_test(seed: u64, readings: &[Reading], firing: &[Finding]) -> String {
    let mut text = format!("- name: seed {seed}\n  interval: 1m\n  input_series:\n");
    let mut series = |name: &str, value: fn(&Reading) -> i64| {
        let values: Vec<String> = readings.iter().map(|one| value(one).to_string()).collect();
        let values = values.join(" ");
        let _ = writeln!(text, "  - series: {name}\n    values: {values}");
    };
    series("posthaste_watched_completed_total{queue=\"mail\"}", |one| {
        one.completed
    });
    series("posthaste_watched_length{queue=\"mail\"}", |one| one.due);
    series(
        "posthaste_findings{id=\"worker.no_leader\",level=\"error\"}",
        |one| i64::from(!one.has_leader),
    );
    text.push_str("  promql_expr_test:\n");
    for (kind, name) in NAMES {
        let samples = match firing.iter().any(|one| one.kind == kind) {
            true => format!("[{{ labels: '{{alertname=\"{name}\"}}', value: 1 }}]"),
            false => "[]".to_owned(),
        };
        let expression =
            format!("count by (alertname) (ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}})");
        let _ = writeln!(
            text,
            "  - expr: {expression}\n    eval_time: {}m\n    exp_samples: {samples}",
            READINGS - 1
        );
    }
    text
}

#[test]
fn prometheus_raises_the_same_alerts_for_random_samples() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operate/prometheus/posthaste.rules.yml")
        .canonicalize()
        .unwrap();
    let mut text = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n",
        rules.display()
    );
    let mut fired = BTreeMap::<Kind, u64>::new();
    for seed in 0..SERIES {
        let readings = random_readings(seed);
        let firing = firing_alerts(&readings);
        for one in &firing {
            *fired.entry(one.kind).or_default() += 1;
        }
        text.push_str(&promtool_test(seed, &readings, &firing));
    }
    let varies = |kind| {
        fired
            .get(&kind)
            .is_some_and(|n| (3..SERIES - 3).contains(n))
    };
    assert!(NAMES.iter().all(|(kind, _)| varies(*kind)), "{fired:?}");
    let file = std::env::temp_dir().join(posthaste_testkit::unique("posthaste-rules"));
    std::fs::write(&file, text).unwrap();
    let outcome = Command::new("promtool")
        .args(["test", "rules"])
        .arg(&file)
        .output();
    let _ = std::fs::remove_file(&file);
    match outcome {
        Ok(outcome) => {
            assert!(outcome.status.success(), "{outcome:?}");
            ran::note("promtool");
        }
        Err(error) => ran::not_run("prometheus makes the same alerts", &error.to_string()),
    }
}
