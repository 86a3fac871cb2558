//! The same log, read by this crate, by the server's plugin test_decoding, and by the parser of
//! another crate.

mod parsed;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;

use posthaste_testkit::PgVersion;
use serde_json::value::RawValue;

use super::world::{World, tables};

const TABLES: &str = "
    CREATE TABLE a (id int PRIMARY KEY, t text, n numeric, b boolean, j jsonb, bytes bytea);
    CREATE TABLE b (id int, t text, d timestamptz, f float8, r int4range, arr text[],
                    moving int DEFAULT 5);
    ALTER TABLE b REPLICA IDENTITY FULL;
    CREATE TABLE parts (id int, t text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
    CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (500);
    CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (500) TO (1000);
    CREATE TYPE mood AS ENUM ('sad', 'so so');
    CREATE DOMAIN small AS int CHECK (VALUE < 100000);
    CREATE TABLE c (id int PRIMARY KEY, e mood, s small, u uuid, i interval, ip inet, x bit(3),
                    ts timestamp, tm time, grid int[], made int GENERATED ALWAYS AS (id * 2) STORED,
                    ch char(5), j json, period tstzrange, moods mood[]);
    CREATE TABLE of_c (id int PRIMARY KEY, c int REFERENCES c (id) ON DELETE CASCADE)";

/// Converts an event to a line in test_decoding's format: its table, and `column[type]:value` for
/// each column of the new row.
fn line(body: &str, types: &dyn Fn(&str, &str) -> String) -> String {
    let event: Event = serde_json::from_str(body).unwrap();
    let mut line = format!("{} {}", event.table, event.operation.to_uppercase());
    let is_deleted = event.operation == "delete";
    let row = if is_deleted {
        event.before
    } else {
        event.after
    };
    for (name, value) in row.unwrap_or_default() {
        // The other plugin omits nulls of an old row.
        if is_deleted && value.get() == "null" {
            continue;
        }
        // The text of a JSON string, or the JSON as it is.
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
    before: Option<BTreeMap<String, Box<RawValue>>>,
    after: Option<BTreeMap<String, Box<RawValue>>>,
}

/// Converts a line of test_decoding to lines in the same format.
fn expected(text: &str, version: PgVersion) -> Vec<String> {
    let Some((tables, rest)) = text
        .strip_prefix("table ")
        .and_then(|rest| rest.split_once(": "))
    else {
        return Vec::new();
    };
    // One line contains all tables that were truncated together.
    let tables = tables.split(", ");
    let line = |table: &str| change(table.strip_prefix("public.")?, rest, version);
    tables.filter_map(line).collect()
}

fn change(table: &str, rest: &str, version: PgVersion) -> Option<String> {
    let (operation, rest) = rest.split_once(": ")?;
    // The capture reports a partition under the name of its root.
    let table = if table.starts_with("parts") {
        "parts"
    } else {
        table
    };
    let mut line = format!("{table} {operation}");
    if operation == "TRUNCATE" {
        return Some(line);
    }
    let (old, new) = rest.split_once(" new-tuple: ").unwrap_or(("", rest));
    let old = columns(old.strip_prefix("old-key: ").unwrap_or(old));
    let mut columns = columns(new);
    // Servers before 18 do not publish generated columns.
    columns.retain(|column| column.name != "made" || version == PgVersion::V18);
    columns.sort();
    for column in columns {
        // A value that the new row lacks is taken from the old row, or omitted if the old row lacks
        // it too.
        let is_known = column.value != "unchanged-toast-datum";
        let mut before = old.iter().filter(|before| before.name == column.name);
        let known = if is_known {
            Some(&column)
        } else {
            before.next()
        };
        if let Some(Column { name, kind, value }) = known {
            write!(line, " {name}[{kind}]:{value}").unwrap();
        }
    }
    Some(line)
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Column {
    name: String,
    kind: String,
    value: String,
}

fn columns(mut rest: &str) -> Vec<Column> {
    let mut columns = Vec::new();
    while let Some((name, after)) = rest.split_once('[') {
        let close = after.find("]:").unwrap();
        let (kind, value) = (&after[..close], &after[close + 2..]);
        let (value, next) = match value.strip_prefix('\'') {
            Some(quoted) => unquoted(quoted),
            None => {
                let end = value.find(' ').unwrap_or(value.len());
                let bits = value[..end].trim_start_matches("B'").trim_end_matches('\'');
                (bits.to_owned(), value[end..].trim_start())
            }
        };
        let (name, kind) = (name.to_owned(), kind.to_owned());
        columns.push(Column { name, kind, value });
        rest = next;
    }
    columns
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
        2 => "(SELECT string_agg(md5(random()::text || g), '') FROM generate_series(1, 200) g)"
            .to_owned(),
        _ => format!("'t{id}'"),
    };
    match random.u8(0..19) {
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
        11 | 12 => format!(
            "INSERT INTO c VALUES ({id}, 'so so', {id}, 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11', \
             '1 year 2 days 03:04:05.6', '10.0.0.0/8', B'101', '2026-02-28 23:59:59.999', \
             '04:05', '{{{{1,2}},{{3,NULL}}}}', DEFAULT, 'ab', '{{\"b\": 1,  \"a\": [2.50]}}', \
             '[2026-01-01,)', '{{sad,NULL,\"so so\"}}') ON CONFLICT (id) DO UPDATE SET s = c.s + 1"
        ),
        13 => format!("COPY b (id, moving) FROM PROGRAM 'seq -f \"%.0f\t{id}\" 1 30'"),
        14 => format!(
            "INSERT INTO of_c SELECT g, max(c.id) FROM c, generate_series({id}, {id} + 3) g \
             GROUP BY g ON CONFLICT DO NOTHING"
        ),
        15 => format!("SELECT pg_logical_emit_message(true, 'noise', '{id}')"),
        16 => format!(
            "DO $$ BEGIN ALTER TABLE b RENAME COLUMN moving TO moving_{id}; \
             INSERT INTO b (id, moving_{id}) VALUES ({id}, 7); \
             ALTER TABLE b RENAME COLUMN moving_{id} TO moving; END $$"
        ),
        17 => format!("DELETE FROM c WHERE id % 40 = {}", id % 40),
        10 => format!("SAVEPOINT s; INSERT INTO b (id) VALUES ({id}); ROLLBACK TO s"),
        _ => match random.u8(0..6) {
            0 => "TRUNCATE b".to_owned(),
            5 => "TRUNCATE c CASCADE".to_owned(),
            1 => format!(
                "ALTER TABLE a ADD COLUMN extra_{} int DEFAULT 7",
                random.u32(..)
            ),
            _ => format!("DELETE FROM b WHERE id = {}", id % 20),
        },
    }
}

async fn compare(version: PgVersion, seed: u64) {
    let world = World::new(version, &[("max_prepared_transactions", "5")]).await;
    world.sql(TABLES).await;
    let all = [
        "public.a",
        "public.b",
        "public.c",
        "public.of_c",
        "public.parts",
    ];
    let capture = tables(&all);
    world.install(&capture).await;
    world
        .sql(
            "SELECT pg_create_logical_replication_slot('other', 'test_decoding');
             SELECT pg_create_logical_replication_slot('third', 'pgoutput')",
        )
        .await;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut kinds = HashMap::new();
    for _ in 0..80 {
        let count = random.usize(1..8);
        let statements: Vec<String> = (0..count).map(|_| statement(&mut random)).collect();
        let (end, then) = match random.u8(0..8) {
            0 => ("ROLLBACK", ""),
            1 => ("PREPARE TRANSACTION 'p'", "COMMIT PREPARED 'p'"),
            2 => ("PREPARE TRANSACTION 'p'", "ROLLBACK PREPARED 'p'"),
            _ => ("COMMIT", ""),
        };
        let transaction = format!("BEGIN; {}; {end}", statements.join("; "));
        world.sql(&transaction).await;
        world.sql(then).await;
        kinds.extend(types(&world).await);
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
    let lines = rows.iter().flat_map(|row| expected(row.get(0), version));
    let expected: Vec<String> = lines.collect();
    let kind = |table: &str, column: &str| {
        // The column is renamed and back within one statement.
        let column = if column.starts_with("moving") {
            "moving"
        } else {
            column
        };
        kinds[&(table.to_owned(), column.to_owned())].clone()
    };
    let jobs = world.jobs().await;
    let found: Vec<String> = jobs.iter().map(|job| line(&job.body, &kind)).collect();
    assert!(found.len() > 200, "{} changes", found.len());
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "change {number}, seed {seed}, {version:?}");
    }
    assert_eq!(found.len(), expected.len(), "seed {seed}");
    let parsed = parsed::parsed(&world, &kind).await;
    for (number, (found, parsed)) in found.iter().zip(&parsed).enumerate() {
        assert_eq!(found, parsed, "change {number}, seed {seed}, {version:?}");
    }
    assert_eq!(found.len(), parsed.len(), "seed {seed}");
}

/// Returns the types of the columns, by table and name.
async fn types(world: &World) -> Vec<((String, String), String)> {
    let sql = "SELECT c.relname::text, a.attname::text, format_type(a.atttypid, NULL) \
               FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid \
               WHERE a.attnum > 0 AND NOT a.attisdropped \
               AND c.relnamespace = 'public'::regnamespace AND c.relkind IN ('r', 'p')";
    let rows = world.client.query(sql, &[]).await.unwrap();
    let kind = |row: &tokio_postgres::Row| ((row.get(0), row.get(1)), row.get(2));
    rows.iter().map(kind).collect()
}

#[tokio::test]
async fn generated_histories_match_test_decoding() {
    for version in PgVersion::tried() {
        let seed = fastrand::u64(..);
        compare(version, seed).await;
    }
}
