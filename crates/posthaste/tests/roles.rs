//! Roles: the producer of docs/operate/producer.sql, and the three that posthaste creates.

mod at_once;
mod forged;
mod functions;

use posthaste::{Config, NewJob, Outcome, enqueue, enqueue_many};
use posthaste_testkit::{PgVersion, Sql as _, TestDb, TestResult, eventually};
use serde_json::json;
use tokio_postgres::Client;

use crate::support::{SOON, all_done, connected, database, quick, quick_queue, unfinished, worker};

#[tokio::test]
async fn the_producer_role_can_use_every_enqueue_function() -> TestResult {
    for version in PgVersion::ALL {
        let (db, owner) = connected(version).await?;
        let name: String = owner.one("SELECT 'app_' || current_database()").await?;
        let file = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../docs/operate/producer.sql"
        );
        let file = std::fs::read_to_string(file)?;
        let grants: Vec<String> = file
            .split("\nGRANT ")
            .skip(1)
            .filter_map(|rest| rest.split_once(" TO app;"))
            .map(|(grant, _)| format!("GRANT {grant} TO {name};"))
            .collect();
        assert!(grants.len() >= 7, "the file lists the rights of a producer");
        owner
            .run(&format!("CREATE ROLE {name}; {}", grants.concat()))
            .await?;
        let producer = db.client().await?;
        producer.run(&format!("SET ROLE {name}")).await?;
        producer
            .run(
                "INSERT INTO posthaste.job (name) VALUES ('view');
                 INSERT INTO posthaste.job (name, scheduled_at)
                   VALUES ('view', now() + interval '1 hour');
                 SELECT posthaste.enqueue('plain');
                 SELECT posthaste.enqueue('scheduled', scheduled_at => now() + interval '1 hour');
                 SELECT posthaste.enqueue('keyed', unique_key => 'k')",
            )
            .await?;
        let job = NewJob::new("rust", &json!({}))?;
        enqueue(&producer, &job).await?;
        enqueue(&producer, &job.clone().queue("q")).await?;
        enqueue_many(&producer, &[job.clone(), job.clone()]).await?;
        let pooled = db.pool(1)?.get().await?;
        pooled.run(&format!("SET ROLE {name}")).await?;
        enqueue(&pooled, &job).await?;
        owner
            .run("INSERT INTO posthaste.route (pattern, queue) VALUES ('r*', 'routed')")
            .await?;
        producer.run("SELECT posthaste.enqueue('routed')").await?;
        enqueue(&pooled, &job).await?;
        assert_eq!(unfinished(&owner).await, 12);
        let routed: i64 = owner
            .one("SELECT count(*) FROM posthaste.job WHERE queue = 'routed'")
            .await?;
        assert_eq!(routed, 2, "a route holds for every way to enqueue");
    }
    Ok(())
}

#[tokio::test]
async fn missing_rights_are_reported() -> TestResult {
    for version in PgVersion::ALL {
        let (db, owner) = connected(version).await?;
        let name: String = owner.one("SELECT 'nobody_' || current_database()").await?;
        // It may write, but not read the positions of the slots.
        owner
            .run(&format!(
                "CREATE ROLE {name}; GRANT USAGE ON SCHEMA posthaste TO {name};
                 GRANT USAGE ON SEQUENCE posthaste.job_id TO {name};
                 GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA posthaste TO {name}"
            ))
            .await?;
        let client = db.client().await?;
        client
            .run(&format!("SET ROLE {name}; SET statement_timeout = '20s'"))
            .await?;
        for statement in [
            "SELECT posthaste.enqueue('a')",
            "SELECT posthaste.enqueue('a', scheduled_at => now() + interval '1 hour')",
            "INSERT INTO posthaste.job (name) VALUES ('a')",
        ] {
            let refused = client.batch_execute(statement).await.unwrap_err();
            let code = refused.code().map(|code| code.code().to_owned());
            assert_eq!(
                code.as_deref(),
                Some("42501"),
                "{} {statement}",
                version.name()
            );
        }
    }
    Ok(())
}

const ROLES: [&str; 3] = [
    "posthaste_producer",
    "posthaste_worker",
    "posthaste_observer",
];

/// Creates a migrated database with the roles.
async fn with_roles(version: PgVersion) -> TestDb {
    let db = database(version).await;
    posthaste::grant_roles(&mut db.client().await.unwrap())
        .await
        .unwrap();
    db
}

/// What a role may do to a table or a view, stated independently of roles.sql.
fn may(role: &str, object: &str, verb: &str) -> bool {
    let is_slot = object
        .rsplit_once('_')
        .is_some_and(|(_, slot)| matches!(slot, "0" | "1" | "2" | "3" | "4" | "5" | "6" | "7"));
    let is_changed = [
        "worker",
        "leader",
        "lane",
        "in_flight",
        "dead",
        "unique_key",
        "confirmed",
        "cancelling",
        "queue",
        "periodic",
        "volume",
        "ordered_relay",
        "inbox",
        "search",
        "sample",
        "audited",
        "bulk_action",
        "alert",
        "site",
        "capture",
        "capture_gap",
        "capture_copy",
    ]
    .contains(&object);
    let is_insertable = ["job", "staged_jobs", "outbox"].contains(&object);
    match (role, verb) {
        ("posthaste_observer", _) => verb == "SELECT",
        ("posthaste_worker", "SELECT") => true,
        ("posthaste_worker", "INSERT") => {
            is_slot
                || is_changed
                || is_insertable
                || [
                    "store",
                    "attempt",
                    "finished",
                    "epoch",
                    "stats_delta",
                    "stats_sum",
                    "relay",
                ]
                .contains(&object)
        }
        ("posthaste_worker", "UPDATE") => is_changed || object == "store_identity",
        ("posthaste_worker", "DELETE") => is_changed,
        ("posthaste_worker", _) => is_slot,
        (_, "SELECT") => ["route", "synced", "unique_key"].contains(&object),
        (_, "INSERT") => is_insertable || object == "store",
        _ => false,
    }
}

/// What a role may do to a sequence.
fn may_move(role: &str, sequence: &str, verb: &str) -> bool {
    let draws = ["job_id", "worker_id", "batch_id", "turn"].contains(&sequence);
    let reads = [
        "ready_current",
        "ready_scan",
        "scheduled_current",
        "promote_horizon",
        "flags",
        "listeners_until",
    ];
    match (role, verb) {
        ("posthaste_observer", _) => verb == "SELECT",
        ("posthaste_worker", "SELECT") => true,
        ("posthaste_worker", "USAGE") => draws,
        ("posthaste_worker", _) => !draws,
        (_, "SELECT") => reads.contains(&sequence),
        (_, "USAGE") => sequence == "job_id",
        _ => false,
    }
}

/// Returns every relation of the schema in the catalogue: a new one cannot be missed.
async fn relations(client: &Client, kinds: &str) -> Vec<String> {
    client
        .rows_with(
            "SELECT relname::text FROM pg_class WHERE relnamespace = 'posthaste'::regnamespace \
             AND strpos($1, relkind::text) > 0 ORDER BY 1",
            &[&kinds],
        )
        .await
        .unwrap()
}

/// Returns a column that a statement may set.
async fn column(client: &Client, table: &str) -> String {
    let settable = "SELECT quote_ident(attname) FROM pg_attribute
                     WHERE attrelid = to_regclass('posthaste.' || $1) AND attnum > 0
                       AND NOT attisdropped AND attgenerated = '' AND attidentity <> 'a'
                     ORDER BY attnum LIMIT 1";
    client.one_with(settable, &[&table]).await.unwrap()
}

#[tokio::test]
async fn each_role_has_exactly_its_rights() {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let client = db.client().await.unwrap();
        let (tables, sequences) = (
            relations(&client, "rpv").await,
            relations(&client, "S").await,
        );
        assert!(tables.len() > 40 && sequences.len() > 10, "{tables:?}");
        assert!(sequences.iter().any(|name| name == "pace_1"));
        let mut cells = Vec::new();
        for role in ROLES {
            for table in &tables {
                let column = column(&client, table).await;
                for (verb, statement) in [
                    ("SELECT", format!("SELECT * FROM posthaste.{table} LIMIT 0")),
                    (
                        "INSERT",
                        format!("INSERT INTO posthaste.{table} DEFAULT VALUES"),
                    ),
                    (
                        "UPDATE",
                        format!("UPDATE posthaste.{table} SET {column} = {column} WHERE false"),
                    ),
                    (
                        "DELETE",
                        format!("DELETE FROM posthaste.{table} WHERE false"),
                    ),
                    ("TRUNCATE", format!("TRUNCATE posthaste.{table}")),
                ] {
                    // The views allow neither, for any role.
                    let is_view = ["job", "staged_jobs", "outbox"].contains(&table.as_str());
                    if !is_view || ["SELECT", "INSERT"].contains(&verb) {
                        cells.push((role, may(role, table, verb), statement));
                    }
                }
            }
            for sequence in &sequences {
                for (verb, statement) in [
                    (
                        "SELECT",
                        format!("SELECT last_value FROM posthaste.{sequence}"),
                    ),
                    ("USAGE", format!("SELECT nextval('posthaste.{sequence}')")),
                    (
                        "UPDATE",
                        format!("SELECT setval('posthaste.{sequence}', 1)"),
                    ),
                ] {
                    // Either right allows nextval.
                    let may = may_move(role, sequence, verb)
                        || verb == "USAGE" && may_move(role, sequence, "UPDATE");
                    cells.push((role, may, statement));
                }
            }
        }
        let mut wrong = Vec::new();
        for (role, may, statement) in &cells {
            client
                .run(&format!("BEGIN; SET LOCAL ROLE {role}"))
                .await
                .unwrap();
            let refused = client.batch_execute(statement).await.err();
            client.run("ROLLBACK").await.unwrap();
            let code = refused
                .as_ref()
                .and_then(|error| error.code().map(|code| code.code().to_owned()));
            if (code.as_deref() == Some("42501")) == *may {
                wrong.push(format!("{role}: {statement}: {code:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}: {wrong:#?}", version.name());
    }
}

#[tokio::test]
async fn roles_are_created_concurrently_and_repeatedly() {
    let db = database(PgVersion::any()).await;
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(db.client().await.unwrap());
    }
    let granted = clients.iter_mut().map(posthaste::grant_roles);
    for granted in futures_util::future::join_all(granted).await {
        granted.unwrap();
    }
}

#[tokio::test]
async fn the_worker_role_suffices_for_a_worker() -> TestResult {
    for version in PgVersion::ALL {
        let db = with_roles(version).await;
        let client = db.client().await?;
        let pool = db.pool_as("posthaste_worker", 8)?;
        let worker = worker(&pool)
            .config(Config {
                segment_bytes: 64 * 1024,
                ..quick()
            })
            .queue_config(quick_queue())
            .handler("*", async |_, job| match &*job.name {
                "again" if job.attempt == 1 => Err("once more".into()),
                _ => Ok(Outcome::Done),
            })
            .start()
            .await?;
        client
            .run(
                "SET ROLE posthaste_producer;
                 SELECT posthaste.enqueue('plain') FROM generate_series(1, 600);
                 SELECT posthaste.enqueue('again', unique_key => 'k' || n)
                   FROM generate_series(1, 20) n;
                 SELECT posthaste.enqueue('again', ordering_key => 'k' || n % 3)
                   FROM generate_series(1, 10) n;
                 SELECT posthaste.enqueue('later', scheduled_at => clock_timestamp() + interval
                   '200 ms') FROM generate_series(1, 50);
                 RESET ROLE",
            )
            .await?;
        all_done(&client).await;
        // Rotated, sealed and truncated: maintenance ran in this role too.
        eventually(SOON, "the ready log has rotated", async || {
            let low = "SELECT pg_sequence_last_value('posthaste.ready_low') > 0";
            client
                .run("SELECT posthaste.enqueue('plain') FROM generate_series(1, 100)")
                .await?;
            client.one(low).await
        })
        .await?;
        all_done(&client).await;
        worker.stop().await?;
    }
    Ok(())
}
