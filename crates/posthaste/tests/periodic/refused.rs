//! Periodic jobs that cannot be read or enqueued.

use posthaste::{NewJob, Periodic};
use posthaste_testkit::{PgVersion, Sql as _, TestResult, eventually};
use serde_json::json;
use tokio_postgres::Client;

use super::{Seen, noting, ten_minutes_ago};
use crate::support::{SOON, connected, database, number};

/// Returns the library's error for a schedule, without the name of the field.
fn refusal(schedule: &str, zone: &str) -> Option<String> {
    let job = NewJob::new("x", &json!({})).unwrap();
    let made = Periodic::new("p", schedule, job).and_then(|made| made.time_zone(zone));
    let error = made.err()?.to_string();
    let (_, refusal) = error.split_once("schedule: ").expect("the field");
    Some(refusal.to_owned())
}

/// Returns the database's error for each schedule.
async fn refusals(client: &Client, schedules: &[String], zones: &[String]) -> Vec<Option<String>> {
    let sql = "SELECT posthaste.schedule_refusal(u.schedule, u.zone)
                 FROM unnest($1::text[], $2::text[]) WITH ORDINALITY u(schedule, zone, place)
                ORDER BY u.place";
    client.rows_with(sql, &[&schedules, &zones]).await.unwrap()
}

/// Generates one part of a field, valid or invalid.
fn part(random: &mut fastrand::Rng) -> String {
    const ODD: &[&str] = &[
        "",
        "-",
        "*/",
        "/5",
        "+5",
        "*-5",
        "5-",
        "1-5-7",
        "5/15/2",
        "x",
        "ß",
        "L",
        "1.5",
        "0x1",
        "*/0",
        "5/99999999999",
        "99999999999",
        "0000000005",
        "007",
        "MONDAY",
        "ſUN",
        "#",
        "**",
        "*?",
    ];
    const NAMES: &[&str] = &["SUN", "mon", "Fri", "SAT", "JAN", "feb", "Dec", "?", "*"];
    let one = |random: &mut fastrand::Rng| match random.u32(0..12) {
        0 => random.choice(NAMES).unwrap().to_string(),
        1 => random.i32(-1..70).to_string(),
        _ => random.u32(0..13).to_string(),
    };
    match random.u32(0..12) {
        0 => random.choice(ODD).unwrap().to_string(),
        1 | 2 => format!("{}-{}", one(random), one(random)),
        3 => format!("{}-{}/{}", one(random), one(random), random.u32(0..9)),
        4 => format!("{}/{}", one(random), random.u32(0..9)),
        5..=8 => "*".to_owned(),
        9 => format!("*/{}", random.u32(0..70)),
        _ => one(random),
    }
}

fn schedule(random: &mut fastrand::Rng) -> String {
    const MACROS: &[&str] = &[
        "@hourly",
        "@daily",
        "@midnight",
        "@weekly",
        "@monthly",
        "@yearly",
        "@annually",
        "@Daily",
        "@every 5m",
        "@reboot",
        "",
        " ",
        " @daily ",
        "0 0 2 * * *",
        "0 0 * * SAT-SUN",
        "0 0 30 2 *",
        "0 0 31 4,6,9,11 *",
        "0 0 31 4 MON",
        "0 0 30 2 ?/1",
        "0 0 29 2 *",
        "0 0 31 */2 *",
        "0 0 30-31 2 */2",
    ];
    if random.u32(0..40) == 0 {
        return random.choice(MACROS).unwrap().to_string();
    }
    let fields = match random.u32(0..30) {
        0 => 4,
        1 => 6,
        _ => 5,
    };
    let field = |random: &mut fastrand::Rng| match random.u32(0..5) {
        0 => format!("{},{}", part(random), part(random)),
        _ => part(random),
    };
    let fields: Vec<String> = (0..fields).map(|_| field(random)).collect();
    let between = [" ", " ", " ", "  ", "\t", "\n", "\u{a0}", "\u{b}"];
    fields.join(random.choice(between).unwrap())
}

#[tokio::test]
async fn database_and_library_reject_the_same_schedules() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let mut random = fastrand::Rng::with_seed(9);
        let schedules: Vec<String> = (0..6_000).map(|_| schedule(&mut random)).collect();
        let zones = vec!["UTC".to_owned(); schedules.len()];
        let found = refusals(&client, &schedules, &zones).await;
        let mut valid = 0;
        for (schedule, by_sql) in schedules.iter().zip(found) {
            let expected = refusal(schedule, "UTC");
            assert_eq!(
                by_sql.is_none(),
                expected.is_none(),
                "{schedule:?}: {by_sql:?}"
            );
            if schedule.is_ascii() && !schedule.contains('\u{b}') {
                assert_eq!(by_sql, expected, "{schedule:?}");
            }
            valid += usize::from(by_sql.is_none());
        }
        assert!((300..5_400).contains(&valid), "{valid} are valid");
    }
}

#[tokio::test]
async fn database_and_library_reject_the_same_time_zones() {
    for version in PgVersion::tried() {
        let db = database(version).await;
        let client = db.client().await.unwrap();
        let known = "SELECT name FROM pg_timezone_names WHERE name ~ '^[A-Z]'";
        let mut zones: Vec<String> = client.rows(known).await.unwrap();
        for name in [
            "europe/berlin",
            "utc",
            "etc/gmt+5",
            "",
            " ",
            "Mars/Base",
            "Mars/Base+3",
            "Foo+5",
            "EST5",
            "+02",
            "+02:00",
            "<+03>-3",
            "CEST",
            "BST",
            "Europe/",
            "/Europe",
            "Europe",
            "../etc/passwd",
            "Europe/Berlin ",
            "PST8PDT,M3.2.0,M11.1.0",
            "Zürich",
        ] {
            zones.push(name.to_owned());
        }
        let schedules = vec!["@daily".to_owned(); zones.len()];
        let found = refusals(&client, &schedules, &zones).await;
        for (zone, by_sql) in zones.iter().zip(found) {
            assert_eq!(
                by_sql.is_none(),
                refusal("@daily", zone).is_none(),
                "{zone:?}"
            );
        }
    }
}

#[tokio::test]
async fn rejects_invalid_schedule_rows_with_a_reason() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let good = "INSERT INTO posthaste.periodic (name, schedule, job) VALUES ('p', '@daily', 'x')";
    client.run(good).await.unwrap();
    for (set, refusal) in [
        (
            "schedule = '0 0 2 * * *'",
            "a schedule has five fields, not 6",
        ),
        (
            "schedule = '@every 5m'",
            "a schedule has five fields, not 2",
        ),
        (
            "time_zone = 'Mars/Base'",
            "no time zone is named \"Mars/Base\"",
        ),
        ("kwargs = '[]'", "kwargs: must be a JSON object, not array"),
        ("job = ''", "name: must have 1 to 255 bytes"),
        ("max_attempts = 0", "max_attempts: must be at least 1"),
    ] {
        let update = format!("UPDATE posthaste.periodic SET {set}");
        let error = client.batch_execute(&update).await.unwrap_err();
        let error = error.as_db_error().unwrap();
        assert_eq!(error.code().code(), "22023", "{set}");
        assert!(
            error.message().contains(refusal),
            "{set}: {}",
            error.message()
        );
    }
}

/// Inserts rows as they are after a time zone was removed, or as a session without triggers writes
/// them.
async fn unread(client: &Client, rows: &str) {
    let insert = format!(
        "BEGIN; SET LOCAL session_replication_role = replica;
         INSERT INTO posthaste.periodic (name, schedule, time_zone, job, kwargs) {rows}; COMMIT"
    );
    client.run(&insert).await.unwrap();
}

#[tokio::test]
async fn unreadable_schedules_do_not_delay_others() -> TestResult {
    let (db, client) = connected(PgVersion::any()).await?;
    unread(
        &client,
        "SELECT 'tenant' || g, '0 0 2 * * *', 'UTC', 'x', '{}' FROM generate_series(1, 1100) g",
    )
    .await;
    unread(
        &client,
        "VALUES ('b', '* * * * *', 'UTC', 'b', '[]'), ('c', '* * * * *', 'Mars/Base', 'c', '{}'),
                ('z', '* * * * *', 'UTC', 'z', '{}')",
    )
    .await;
    let seen = Seen::default();
    let worker = noting(&db.pool(4)?, &seen).start().await?;
    eventually(SOON, "the leader has seen what can be read", async || {
        let known = "SELECT count(*) = 2 FROM posthaste.periodic
                      WHERE next_at IS NOT NULL AND name IN ('b', 'z')";
        client.one(known).await
    })
    .await?;
    ten_minutes_ago(&client).await;
    eventually(SOON, "the good one comes", async || {
        Ok(seen.lock().unwrap().contains_key("z"))
    })
    .await?;
    let failed = "SELECT count(*) FROM posthaste.periodic WHERE error IS NOT NULL";
    eventually(SOON, "all others have their error", async || {
        Ok(number(&client, failed).await == 1_102)
    })
    .await?;
    let errors = "SELECT string_agg(error, '; ' ORDER BY name) FROM posthaste.periodic
                   WHERE name IN ('b', 'c', 'tenant1')";
    let errors: String = client.one(errors).await?;
    for part in [
        "must be a JSON object",
        "no time zone is named \"Mars/Base\"",
        "a schedule has five fields, not 6",
    ] {
        assert!(errors.contains(part), "{errors}");
    }
    let checked = "SELECT count(*) FROM posthaste.periodic
                   WHERE error IS NOT NULL AND looked_at > clock_timestamp() - interval '1 h'";
    assert_eq!(number(&client, checked).await, 1_102);
    // A repaired schedule is enqueued at once.
    let mend = "UPDATE posthaste.periodic SET kwargs = '{}' WHERE name = 'b'";
    client.run(mend).await?;
    eventually(SOON, "the mended one comes", async || {
        Ok(seen.lock().unwrap().contains_key("b"))
    })
    .await?;
    worker.stop().await?;
    Ok(())
}
