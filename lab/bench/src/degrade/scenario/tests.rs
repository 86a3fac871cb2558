//! The valid contents of a scenario.

use std::time::Duration;

use super::{HoldKind, SHIPPED, Scenario};

const SMALL: &str = r#"
about = "small"
algorithms = ["que", "posthaste"]
speed = 20
[produce]
jobs = 100
every = "2s"
[work]
workers = 8
takes = "10ms"
[[hold]]
kind = "snapshot"
at = "1m"
for = "60m"
[bound]
claim_blocks = 1.5
[bound.posthaste]
dead_tuples = 0
"#;

fn refused(from: &str, to: &str) -> String {
    assert!(SMALL.contains(from), "{from}");
    match Scenario::parse(&SMALL.replacen(from, to, 1)) {
        Ok(_) => String::new(),
        Err(error) => format!("{error:#}"),
    }
}

#[test]
fn speed_multiplies_rates_and_divides_durations() -> anyhow::Result<()> {
    let scenario = Scenario::parse(SMALL)?;
    assert_eq!(scenario.rate(), 1_000.0);
    let held = (Duration::from_secs(3), Duration::from_secs(183));
    assert_eq!(scenario.held(), Some(held));
    assert_eq!(scenario.lasts(), Duration::from_secs(213));
    assert_eq!(scenario.title(), "small (at 20 times the speed)");
    Ok(())
}

#[test]
fn bounds_of_one_algorithm_add_to_those_of_all() -> anyhow::Result<()> {
    let bounds = Scenario::parse(SMALL)?.bound;
    assert_eq!(bounds.limits("que").dead_tuples, None);
    let ours = bounds.limits("posthaste");
    assert_eq!(
        (ours.claim_blocks, ours.dead_tuples),
        (Some(1.5), Some(0.0))
    );
    Ok(())
}

#[test]
fn only_a_bulk_has_rows() {
    assert!(refused("at = \"1m\"", "at = \"1m\"\nrows = 5").contains("hold.rows"));
    assert!(refused("\"snapshot\"", "\"bulk\"").contains("hold.rows"));
    assert_eq!(refused("\"snapshot\"", "\"bulk\"\nrows = 5"), "");
}

#[test]
fn unknown_keys_are_refused_with_their_line() {
    assert!(refused("workers = 8", "worker = 8").contains("line 9"));
    assert!(refused("speed = 20", "sped = 20").contains("line 4"));
    assert!(refused("at = \"1m\"", "when = \"1m\"").contains("line 13"));
    assert!(refused("claim_blocks", "claim_block").contains("claim_block"));
    assert!(refused("dead_tuples", "dead_tuple").contains("dead_tuple"));
}

#[test]
fn unplayable_scenarios_are_refused() {
    for (from, to, named) in [
        ("\"2s\"", "\"2 s\"", "no duration"),
        ("\"que\"", "\"queue\"", "queue is none of"),
        ("[\"que\", \"posthaste\"]", "\"some\"", "\"all\""),
        ("speed = 20", "speed = 0", "speed"),
        ("workers = 8", "workers = 0", "work.workers"),
        ("\"snapshot\"", "\"guess\"", "line 12"),
        ("[bound.posthaste]", "[bound.nobody]", "bound.nobody"),
    ] {
        let said = refused(from, to);
        assert!(said.contains(named), "{to}: {said}");
    }
}

#[test]
fn shipped_scenarios_can_be_played() -> anyhow::Result<()> {
    for (name, _) in SHIPPED {
        let scenario = Scenario::find(name)?;
        assert!(
            scenario.names()?.contains(&"posthaste".to_owned()),
            "{name}"
        );
    }
    let article = Scenario::find("article")?;
    assert_eq!((article.rate(), article.speed), (50.0, 1.0));
    let pinned = article.held().map(|(begins, ends)| ends - begins);
    assert_eq!(pinned, Some(Duration::from_secs(3_600)));
    assert_eq!(article.hold[0].kind, HoldKind::Snapshot);
    Ok(())
}
