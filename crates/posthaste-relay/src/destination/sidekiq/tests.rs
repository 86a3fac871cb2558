use super::{Options, TimeUnit, ToggleOrCount, encode_job, put_seconds, put_time, scheduled_score};
use crate::destination::golden::{Case, cases};
use jiff::Timestamp;
use posthaste::settings::Read as _;
use serde_json::value::RawValue;
use std::collections::HashMap;

fn compare(case: &Case, times: TimeUnit) {
    let is_scheduled = case.input()["at"].is_number();
    let mut theirs = case.texts(if is_scheduled { "zadd" } else { "lpush" });
    let theirs_job = theirs.pop().expect("a job");
    let fields: HashMap<&str, &RawValue> = serde_json::from_str(&theirs_job).expect("JSON");
    let jid = fields["jid"].get().trim_matches('"');
    let id = format!("0190abcd{jid}");
    let payload = format!("{{\"args\":{}}}", fields["args"].get());
    let mut mapped = case.message(&id, &payload, |_| {});
    if let Some(trace) = fields.get("traceparent") {
        let trace = trace.get().trim_matches('"').to_owned();
        mapped.headers.push(("traceparent".into(), trace));
    }
    let queue = fields["queue"].get().trim_matches('"');
    match mapped.at {
        Some(at) => assert_eq!(theirs[1..], ["schedule".to_owned(), scheduled_score(at)]),
        None => assert_eq!(theirs[1..], [format!("queue:{queue}")]),
    }
    let now = mapped.job.enqueued_at;
    let value = |name: &str| fields.get(name).map(|value| value.get());
    let read = |name: &str| {
        let value = value(name).and_then(|value| serde_json::from_str(value).ok());
        value.and_then(ToggleOrCount::read)
    };
    let tags = value("tags").map(serde_json::from_str);
    let options = Options {
        retry: read("retry"),
        backtrace: read("backtrace"),
        tags: tags.transpose().expect("tags").unwrap_or_default(),
        dead: None,
    };
    assert!(options.retry.is_some(), "its client always says it");
    let mine = encode_job(&mapped, queue, &options, times, now);
    let delivery_id = format!(",\"delivery_id\":\"{}\"", mapped.id);
    assert!(mine.contains(&delivery_id), "{mine}");
    let mine = mine.replace(&delivery_id, "");
    let theirs = theirs_job;
    match case.name() {
        // The client writes trace context before the times.
        "options" => {
            let read = |json: &str| serde_json::from_str::<serde_json::Value>(json).ok();
            assert_eq!(read(&mine), read(&theirs));
        }
        name => assert_eq!(mine, theirs, "{name}"),
    }
}

#[test]
fn jobs_match_the_bytes_of_the_sidekiq_client() {
    let six = include_str!("../../../tests/relay/golden/sidekiq6.json");
    let eight = include_str!("../../../tests/relay/golden/sidekiq8.json");
    use TimeUnit::{Milliseconds, Seconds};
    for (capture, times) in [(six, Seconds), (eight, Milliseconds)] {
        let cases = cases(capture);
        let compared = cases.iter().map(|case| compare(case, times)).count();
        assert_eq!(compared, 8);
    }
}

#[test]
fn whole_seconds_are_not_mistaken_for_milliseconds() {
    let mut json = String::new();
    let at = Timestamp::from_second(1_700_000_000).expect("a time");
    put_time(&mut json, at, TimeUnit::Seconds);
    assert_eq!(json, "1700000000.0");
}

#[test]
fn seconds_are_written_as_floating_point_numbers() {
    for microseconds in [
        0,
        1_000_000,
        -1_500_000,
        1_700_000_000_000_000,
        1_700_000_000_100_000,
        1_700_000_000_123_456,
        1_799_999_999_999_999,
        4_102_444_800_000_001,
    ] {
        let mut json = String::new();
        put_seconds(&mut json, microseconds);
        assert_eq!(json, format!("{:?}", microseconds as f64 / 1e6));
    }
}
