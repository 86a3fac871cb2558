//! The same log through this crate and through the server's own plugin test_decoding.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use posthaste_testkit::PgVersion;
use serde_json::value::RawValue;

use super::world::{World, tables};

const TABLES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, t text, n numeric, b boolean, j jsonb, bytes bytea);
    CREATE TABLE b (id int, t text, d timestamptz, f float8, r int4range, arr text[]);
    ALTER TABLE b REPLICA IDENTITY FULL;
    CREATE TABLE parts (id int, t text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (500);
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (500) TO (1000)";

/// A line of the other plugin: its table, and `column[type]:value` for each column of the new row.
fn line(body: &str, types: &dyn Fn(&str, &str) -> String) -> String {
    let event: Event = serde_json::from_str(body).unwrap();
    let mut line = format!("{} {}", event.table, event.operation.to_uppercase());
    for (name, value) in event.after.unwrap_or_default() {
        // A text, or what stands there as it stands there.
        let text = serde_json::from_str(value.get());
        let value = text.unwrap_or_else(|_| value.get().to_owned());
        write!(line, " {name}[{}]:{value}", types(&event.table, &name)).unwrap();
    }
    line
}

#[derive(serde::Deserialize)]
struct Event {
    table: String,
    operation: String,
    after: Option<BTreeMap<String, Box<RawValue>>>,
}

/// The same of a line as test_decoding prints it.
fn expected(text: &str) -> Option<String> {
    let rest = text.strip_prefix("table public.")?;
    let (table, rest) = rest.split_once(": ")?;
    let (operation, rest) = rest.split_once(": ")?;
    // A partition goes by its root's name here.
    let table = if table.starts_with("parts") {
        "parts"
    } else {
        table
    };
    let mut line = format!("{table} {operation}");
    if matches!(operation, "DELETE" | "TRUNCATE") {
        return Some(line);
    }
    let new = rest.split_once("new-tuple: ").map_or(rest, |(_, new)| new);
    let mut columns: Vec<(String, String, String)> = Vec::new();
    let mut rest = new;
    while let Some((name, after)) = rest.split_once('[') {
        let close = after.find("]:").unwrap();
        let (kind, value) = (&after[..close], &after[close + 2..]);
        let (value, next) = match value.strip_prefix('\'') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = value.find(' ').unwrap_or(value.len());
                (value[..end].to_owned(), value[end..].trim_start())
            }
        };
        columns.push((name.to_owned(), kind.to_owned(), value));
        rest = next;
    }
    columns.sort();
    for (name, kind, value) in columns {
        // What the log does not have is left out here.
        if value != "unchanged-toast-datum" {
            write!(line, " {name}[{kind}]:{value}").unwrap();
        }
    }
    Some(line)
}

fn unquoted(text: &str) -> (String, &str) {
    let (mut value, mut rest) = (String::new(), text);
    loop {
        let end = rest.find('\'').unwrap();
        value.push_str(&rest[..end]);
        rest = &rest[end + 1..];
        match rest.strip_prefix('\'') {
            Some(more) => {
                value.push('\'');
                rest = more;
            }
            None => return (value, rest.trim_start()),
        }
    }
}

fn statement(random: &mut fastrand::Rng) -> String {
    let id = random.i32(0..1000);
    let text = match random.u8(0..6) {
        0 => "NULL".to_owned(),
        1 => "'it''s [odd]:''x'' ü'".to_owned(),
        2 => "repeat(md5(random()::text), 200)".to_owned(),
        _ => format!("'t{id}'"),
    };
    match random.u8(0..12) {
        0..=2 => format!(
            "INSERT INTO a VALUES ({id}, {text}, {id}.50, {}, '{{\"k\": [{id}, null]}}', \
             '\\x00ff') ON CONFLICT (id) DO UPDATE SET n = a.n + 1",
            random.bool()
        ),
        3 => format!(
            "UPDATE a SET b = NOT b, n = 'NaN' WHERE id % 7 = {}",
            id % 7
        ),
        4 => format!("UPDATE a SET id = id + 10000 WHERE id = {id} AND id < 1000"),
        5 => format!("DELETE FROM a WHERE id % 50 = {}", id % 50),
        6 => format!(
            "INSERT INTO b SELECT i, {text}, '2026-01-01', 'infinity', '[1,5)', '{{x,NULL}}' \
             FROM generate_series(1, {}) i",
            1 + id % 20
        ),
        7 => format!("UPDATE b SET f = {id}.25, d = NULL WHERE id = {}", id % 20),
        8 => format!("INSERT INTO parts VALUES ({id}, {text}) ON CONFLICT DO NOTHING"),
        9 => format!("UPDATE parts SET t = 'u{id}' WHERE id = {id}"),
        10 => format!("SAVEPOINT s; INSERT INTO b (id) VALUES ({id}); ROLLBACK TO s"),
        _ => match random.u8(0..6) {
            0 => "TRUNCATE b".to_owned(),
            1 => format!(
                "ALTER TABLE a ADD COLUMN extra_{} int DEFAULT 7",
                random.u32(..)
            ),
            _ => format!("DELETE FROM b WHERE id = {}", id % 20),
        },
    }
}

async fn compare(version: PgVersion, seed: u64) {
    let world = World::new(version, &[]).await;
    world.sql(TABLES).await;
    let capture = tables(&["public.a", "public.b", "public.parts"]);
    world.install(&capture).await;
    world
        .sql("SELECT pg_create_logical_replication_slot('other', 'test_decoding')")
        .await;
    let mut random = fastrand::Rng::with_seed(seed);
    for _ in 0..60 {
        let count = random.usize(1..8);
        let statements: Vec<String> = (0..count).map(|_| statement(&mut random)).collect();
        let end = if random.u8(0..5) == 0 {
            "ROLLBACK"
        } else {
            "COMMIT"
        };
        let transaction = format!("BEGIN; {}; {end}", statements.join("; "));
        world.sql(&transaction).await;
        if random.u8(0..6) == 0 {
            world.catch_up(&capture).await.unwrap();
        }
    }
    world.catch_up(&capture).await.unwrap();
    world
        .sql("SET timezone = 'UTC'; SET datestyle = 'ISO'; SET bytea_output = 'hex'")
        .await;
    let rows = world
        .client
        .query(
            "SELECT data FROM pg_logical_slot_peek_changes('other', NULL, NULL)",
            &[],
        )
        .await
        .unwrap();
    let expected: Vec<String> = rows.iter().filter_map(|row| expected(row.get(0))).collect();
    let kinds = "SELECT a.attrelid::regclass::text, a.attname::text, \
                 format_type(a.atttypid, NULL) FROM pg_attribute a WHERE a.attnum > 0 \
                 AND a.attrelid IN ('a'::regclass, 'b'::regclass, 'parts'::regclass)";
    let kinds = world.client.query(kinds, &[]).await.unwrap();
    let kinds: HashMap<(String, String), String> = kinds
        .iter()
        .map(|row| ((row.get(0), row.get(1)), row.get(2)))
        .collect();
    let kind = |table: &str, column: &str| kinds[&(table.into(), column.into())].clone();
    let jobs = world.jobs().await;
    let found: Vec<String> = jobs.iter().map(|job| line(&job.body, &kind)).collect();
    assert!(found.len() > 200, "{} changes", found.len());
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "change {number}, seed {seed}, {version:?}");
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}");
}

#[tokio::test]
async fn generated_histories_are_read_as_the_servers_own_plugin_reads_them() {
    for version in PgVersion::tried() {
        let seed = fastrand::u64(..);
        compare(version, seed).await;
    }
}
