use super::*;

fn at(minute: i64) -> Timestamp {
    Timestamp::from_second(1_795_000_000 + minute * 60).unwrap()
}

/// Sixty jobs are enqueued and completed each minute, and none waits.
fn sample(minute: i64) -> Sample {
    Sample {
        at: at(minute),
        come: 1_000 + minute * 60,
        done: 1_000 + minute * 60,
        failed: 0,
        started: 1_000 + minute * 60,
        waited: minute * 60 * 20,
        available: 0,
        running: 2,
        oldest: None,
    }
}

fn charts(samples: &[Sample]) -> Charts {
    Charts::new(None, samples, Period::Hour, at(60))
}

fn line<'a>(charts: &'a Charts, name: &str) -> &'a ChartLine {
    let lines = charts.all.iter().flat_map(|chart| &chart.lines);
    let mut named = lines.filter(|line| line.name == name);
    named.next().unwrap()
}

#[test]
fn totals_become_rates_and_waits_become_means() {
    let samples: Vec<Sample> = (0..=60).map(sample).collect();
    let charts = charts(&samples);
    let come = line(&charts, "enqueued");
    assert_eq!(
        (&*come.last, &*come.least, &*come.most),
        ("1.0", "1.0", "1.0")
    );
    assert_eq!(line(&charts, "mean wait of started jobs").last, "20 ms");
    assert_eq!(line(&charts, "running").last, "2");
    assert_eq!(line(&charts, "oldest waiting job").last, "0 s");
    assert_eq!(charts.missed, "");
    assert_eq!(
        charts.all[0].description,
        "Jobs a second, the last hour: enqueued 1.0, between 1.0 and 1.0; \
         done 1.0, between 1.0 and 1.0; failed attempts 0, between 0 and 0"
    );
}

#[test]
fn times_without_samples_are_shown_as_gaps() {
    let samples: Vec<Sample> = (0..=60)
        .filter(|n| !(20..40).contains(n))
        .map(sample)
        .collect();
    let charts = charts(&samples);
    for name in ["enqueued", "available", "oldest waiting job"] {
        assert_eq!(line(&charts, name).path.matches('M').count(), 2, "{name}");
    }
    assert_eq!(charts.missed, "For 21 min of it no sample was taken.");
}

#[test]
fn counter_resets_draw_no_negative_rates() {
    let mut samples: Vec<Sample> = (0..=60).map(sample).collect();
    for one in &mut samples[30..] {
        one.come -= 2_500;
        one.done -= 2_500;
        one.started = 0;
    }
    let charts = charts(&samples);
    let done = line(&charts, "done");
    assert_eq!(done.path.matches('M').count(), 2, "{}", done.path);
    assert_eq!((&*done.least, &*done.most), ("1.0", "1.0"));
}

#[test]
fn late_reports_make_no_negative_rates() {
    let mut samples: Vec<Sample> = (0..=60).map(sample).collect();
    samples[30].come -= 90;
    let charts = charts(&samples);
    assert_eq!(line(&charts, "enqueued").least, "0");
}

#[test]
fn simultaneous_and_unordered_samples_make_no_rate() {
    let samples = [sample(50), sample(50), sample(40), sample(60)];
    let charts = charts(&samples);
    let most = &line(&charts, "enqueued").most;
    assert!(!most.contains("inf") && !most.contains('-'), "{most}");
}

#[test]
fn a_single_sample_makes_no_chart() {
    assert!(charts(&[]).all.is_empty());
    assert!(charts(&[sample(60)]).all.is_empty());
}

#[test]
fn unknown_time_ranges_default_to_an_hour() {
    assert_eq!(Period::from_name(Some("week")), Period::Week);
    assert_eq!(Period::from_name(Some("<script>")), Period::Hour);
    assert_eq!(Period::from_name(None), Period::Hour);
    let charts = Charts::new(Some("a&b"), &[], Period::Day, at(0));
    assert_eq!(
        charts.link(&Period::Week),
        "/queue?queue=a%26b&over=week#charts"
    );
}
