//! `posthaste alerts` and the rules for Prometheus judge the same readings alike: promtool plays
//! random series against docs/operate/prometheus/posthaste.rules.yml, and expects of each what the
//! findings say.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use posthaste_testkit::ran;

use super::*;

/// What the rules say.
const LIMITS: Limits = Limits {
    completed_below: Some(10.0),
    length_above: Some(1_000),
    lasting: Duration::from_secs(600),
};
/// A reading a minute, for half an hour.
const READINGS: usize = 31;
const SERIES: u64 = 60;

/// Completed jobs, lengths and expired jobs, a minute apart. No rate is near its limit: Prometheus
/// extrapolates.
fn played(seed: u64) -> Vec<Watched> {
    let mut random = fastrand::Rng::with_seed(seed);
    let rates = [0, 2, 40];
    let lengths = [0, 900, 1_001, 5_000];
    let (mut rate, mut length) = (random.choice(rates), random.choice(lengths));
    let expires_at = random.usize(..READINGS * 2);
    let mut completed = 0;
    (0..READINGS)
        .map(|n| {
            // Seldom: what must last is to last sometimes.
            if random.u8(..12) == 0 {
                rate = random.choice(rates);
            }
            if random.u8(..12) == 0 {
                length = random.choice(lengths);
            }
            completed += rate.unwrap_or_default();
            Watched {
                completed,
                length: length.unwrap_or_default(),
                expired: i64::from(n >= expires_at),
            }
        })
        .collect()
}

fn found(readings: &[Watched]) -> Vec<Finding> {
    let mut history = History::default();
    for (n, watched) in readings.iter().enumerate() {
        let queues = BTreeMap::from([("mail".to_owned(), *watched)]);
        let at = n as f64 * 60.0;
        history.add(Reading { at, queues }, LIMITS.lasting);
    }
    history.findings(&LIMITS)
}

/// Whether an average is far enough from the limit to be the same by each way of counting.
fn is_clear(readings: &[Watched]) -> bool {
    let jobs = readings[READINGS - 1].completed - readings[READINGS - 11].completed;
    !(70..130).contains(&jobs)
}

/// One test of promtool.
fn test_of(seed: u64, readings: &[Watched]) -> String {
    let mut text = format!("- name: seed {seed}\n  interval: 1m\n  input_series:\n");
    let mut series = |name: &str, value: fn(&Watched) -> i64| {
        let values: Vec<String> = readings.iter().map(|one| value(one).to_string()).collect();
        let values = values.join(" ");
        let _ = writeln!(
            text,
            "  - series: {name}{{queue=\"mail\"}}\n    values: {values}"
        );
    };
    series("posthaste_watched_completed_total", |one| one.completed);
    series("posthaste_watched_length", |one| one.length);
    series("posthaste_watched_expired", |one| one.expired);
    text.push_str("  promql_expr_test:\n");
    let firing = found(readings);
    for alert in [Alert::CompletionRate, Alert::QueueLength, Alert::Expired] {
        let fires = firing.iter().any(|one| one.alert == alert);
        let name = alert.name();
        let samples = match fires {
            true => format!("[{{ labels: '{{alertname=\"{name}\"}}', value: 1 }}]"),
            false => "[]".to_owned(),
        };
        let expression = format!("count by (alertname) (ALERTS{{alertname=\"{name}\"}})");
        let _ = writeln!(
            text,
            "  - expr: {expression}\n    eval_time: 30m\n    exp_samples: {samples}"
        );
    }
    text
}

#[test]
fn prometheus_judges_random_readings_as_posthaste_alerts_does() {
    let rules = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/operate/prometheus/posthaste.rules.yml")
        .canonicalize()
        .unwrap();
    let mut text = format!(
        "rule_files: [{}]\nevaluation_interval: 1m\ntests:\n",
        rules.display()
    );
    let (mut played_so_far, mut fired) = (0, BTreeMap::<Alert, u32>::new());
    for seed in 0..SERIES {
        let readings = played(seed);
        if !is_clear(&readings) {
            continue;
        }
        played_so_far += 1;
        for finding in found(&readings) {
            *fired.entry(finding.alert).or_default() += 1;
        }
        text.push_str(&test_of(seed, &readings));
    }
    assert!(played_so_far > SERIES / 2, "{played_so_far}");
    assert!(
        fired.len() == 3 && fired.values().all(|times| *times > 2),
        "{fired:?}"
    );
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
        Err(error) => ran::not_run(
            "prometheus judges as posthaste alerts does",
            &error.to_string(),
        ),
    }
}
