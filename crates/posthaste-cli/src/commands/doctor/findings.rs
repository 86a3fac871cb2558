//! From what was seen to what it means: no IO.

use serde::Serialize;

use super::facts::{Facts, Holder, Rights, Server, Store, Unsynced};

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Jobs can be lost, or are not worked.
    Wrong,
    /// Works, and costs something or may surprise.
    Hint,
}

/// Something that was found, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Finding {
    pub(crate) level: Level,
    /// A word for programs.
    pub(crate) about: &'static str,
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// A clock that differs by more than this is told.
const CLOCK: i64 = 2_000;

/// What all that means, the worst first.
pub(crate) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    of_the_server(&facts.server, &mut found);
    if facts.pooled {
        found.push(hint(
            "pooler",
            "the connection goes through a pooler that gives each transaction another server process",
            "it works; a direct address for workers saves a hop, and is needed for whatever listens",
        ));
    }
    if let Some(schema) = &facts.schema {
        found.push(wrong(
            "schema",
            schema,
            "run 'posthaste migrate', with the newest version that uses this database",
        ));
    }
    if let Some(rights) = &facts.rights {
        of_the_rights(&facts.server, rights, &mut found);
    }
    if let Some(store) = &facts.store {
        of_the_store(store, &mut found);
    }
    found.extend(facts.unsynced.iter().map(of_a_synced_table));
    found.extend(facts.holders.iter().filter_map(of_a_holder));
    found.sort_by_key(|one| one.level);
    found
}

fn of_the_server(server: &Server, found: &mut Vec<Finding>) {
    if server.version < 150_000 {
        let what = format!("PostgreSQL {} is too old", server.version_name);
        found.push(wrong("version", &what, "use PostgreSQL 15 or newer"));
    }
    if server.is_replica {
        found.push(wrong(
            "replica",
            "this server is a replica: jobs can be looked at here, not enqueued and not worked",
            "connect to the primary, or promote this server",
        ));
    }
    if !server.fsync {
        found.push(wrong(
            "fsync",
            "fsync is off: a crash of the machine may destroy the database, jobs and all",
            "ALTER SYSTEM SET fsync = on, and restart the server",
        ));
    }
    if ["off", "local"].contains(&server.synchronous_commit.as_str()) {
        found.push(hint(
            "synchronous_commit",
            &format!("synchronous_commit is {}: a crash or a failover may take the last commits, jobs with their data", server.synchronous_commit),
            "ALTER ROLE … SET synchronous_commit = on for whoever enqueues what must not be lost",
        ));
    }
    if server.max_prepared > 0 {
        found.push(hint(
            "prepared_transactions",
            "this server allows prepared transactions: one that has notified cannot be prepared, and one that is forgotten keeps space",
            "where transactions with jobs in them are prepared, switch the bell off for these sessions, and see that each is ended",
        ));
    }
    if server.clock_ahead.abs() >= CLOCK {
        let seconds = server.clock_ahead.abs() as f64 / 1000.0;
        let how = if server.clock_ahead > 0 {
            "ahead of"
        } else {
            "behind"
        };
        found.push(hint(
            "clock",
            &format!("the server's clock is {seconds:.1} s {how} this machine's"),
            "keep both right (NTP): the server's decides what is due, and times that programs compute are their own",
        ));
    }
    if !server.sees_sessions {
        let me = &server.me;
        found.push(hint(
            "sessions",
            &format!("{me} is not shown what the sessions of others do: nobody looked for locks, transactions and replicas' readers that are old"),
            &format!("a superuser: GRANT pg_read_all_stats TO {me}; posthaste_worker and posthaste_observer have it where 'posthaste migrate --roles' was run by one who may grant it"),
        ));
    }
    if !server.roles_missing.is_empty() && server.version > 0 {
        found.push(hint(
            "roles",
            &format!("no role {}", server.roles_missing.join(", ")),
            "'posthaste migrate --roles' makes them, for programs that are to have no more rights than they need",
        ));
    }
}

fn of_the_rights(server: &Server, rights: &Rights, found: &mut Vec<Finding>) {
    let me = &server.me;
    let may = |what: &str| {
        let what = format!("{me} may {what} and not work");
        let remedy = format!("if it is to work: GRANT posthaste_worker TO {me}");
        hint("rights", &what, &remedy)
    };
    match rights {
        Rights {
            may_look: true,
            may_work: true,
            ..
        } => {}
        Rights {
            may_look: true,
            may_enqueue: true,
            ..
        } => found.push(may("enqueue")),
        Rights {
            may_look: true,
            may_observe: true,
            ..
        } => found.push(may("look")),
        _ => found.push(wrong(
            "rights",
            &format!("{me} may neither enqueue nor work nor look"),
            &format!(
                "GRANT posthaste_producer TO {me}, or posthaste_worker, or posthaste_observer"
            ),
        )),
    }
    if !rights.roles_lacking.is_empty() {
        found.push(wrong(
            "roles",
            &format!(
                "{} lacks rights that it should have",
                rights.roles_lacking.join(", ")
            ),
            "run 'posthaste migrate --roles' again, as after each migration",
        ));
    }
}

fn of_the_store(store: &Store, found: &mut Vec<Finding>) {
    if store.needs_rebase {
        found.push(wrong(
            "restore",
            "this database was restored, copied or upgraded, and its jobs were not taken over yet: no worker works here",
            "stop all workers and run 'posthaste rebase' once",
        ));
    }
    if store.ids_behind {
        found.push(wrong(
            "sequences",
            "the sequence of job ids is behind the jobs, as after a logical replication: new jobs get ids that others have",
            "before anybody enqueues: stop all workers and run 'posthaste rebase' once, which moves it beyond every id that is known here",
        ));
    }
    if store.workers == 0 && store.has_waiting {
        found.push(wrong(
            "workers",
            "jobs wait, and no worker has given a sign of life for a minute",
            "start one: 'posthaste work', or your own program",
        ));
    } else if store.workers == 0 {
        let what = "no worker has given a sign of life for a minute";
        let remedy = "start one: 'posthaste work', or your own program";
        found.push(hint("workers", what, remedy));
    }
    if store.workers > 0 && !store.has_leader {
        found.push(wrong(
            "leader",
            "workers live, and none of them does maintenance: what is scheduled does not come, and space does not come back",
            "let at least one worker have Config::maintenance",
        ));
    }
}

fn of_a_synced_table(table: &Unsynced) -> Finding {
    let name = &table.name;
    match table.is_gone {
        true => hint(
            "sync",
            &format!("the table of sync {name} was dropped: its index shows what is no more"),
            "SELECT posthaste.unsync_table(its name), and remove the index",
        ),
        false => wrong(
            "sync",
            &format!(
                "triggers of sync {name} are missing or switched off: changes do not come into its index"
            ),
            "'posthaste sync install', then 'posthaste sync audit --repair' for what was changed meanwhile",
        ),
    }
}

fn of_a_holder(holder: &Holder) -> Option<Finding> {
    let Holder { name, .. } = holder;
    let age = holder
        .seconds
        .map(|seconds| format!("{seconds} s"))
        .unwrap_or_default();
    Some(match holder.kind.as_str() {
        "lock" => hint(
            "lock",
            &format!(
                "{name} has had a lock on the queue's tables for {age}: their space cannot come back"
            ),
            "end it, or let it end; a dump goes without them with --exclude-schema=posthaste",
        ),
        "transaction" => hint(
            "transaction",
            &format!(
                "{name} has had a transaction open for {age}: claims do not care, other tables cannot be vacuumed"
            ),
            "end it: SELECT pg_terminate_backend(pid); idle_in_transaction_session_timeout bounds such sessions",
        ),
        "prepared" => wrong(
            "prepared",
            &format!("the transaction {name} was prepared {age} ago and never ended"),
            "COMMIT PREPARED or ROLLBACK PREPARED, there",
        ),
        "slot" => hint(
            "slot",
            &format!("replication slot {name}, holds back vacuum or the write-ahead log"),
            "if nobody needs it: SELECT pg_drop_replication_slot('its name')",
        ),
        "replica" => hint(
            "replica_reader",
            &format!(
                "a reader on replica {name} has held back vacuum here for more than 10,000 transactions (hot_standby_feedback): claims do not care; where it reads a queue it also holds up replay"
            ),
            "there: SELECT pid, usename, xact_start FROM pg_stat_activity WHERE backend_xmin IS NOT NULL ORDER BY xact_start; end the oldest by pg_terminate_backend(pid), and keep long readers off the queue's tables",
        ),
        _ => return None,
    })
}

fn wrong(about: &'static str, what: &str, remedy: &str) -> Finding {
    finding(Level::Wrong, about, what, remedy)
}

fn hint(about: &'static str, what: &str, remedy: &str) -> Finding {
    finding(Level::Hint, about, what, remedy)
}

fn finding(level: Level, about: &'static str, what: &str, remedy: &str) -> Finding {
    Finding {
        level,
        about,
        what: what.to_owned(),
        remedy: remedy.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fine() -> Facts {
        Facts {
            server: Server {
                version: 150_018,
                fsync: true,
                synchronous_commit: "on".into(),
                sees_sessions: true,
                ..Server::default()
            },
            rights: Some(Rights {
                may_look: true,
                may_enqueue: true,
                may_work: true,
                may_observe: true,
                roles_lacking: Vec::new(),
            }),
            store: Some(Store {
                needs_rebase: false,
                workers: 1,
                has_leader: true,
                has_waiting: true,
                ids_behind: false,
            }),
            ..Facts::default()
        }
    }

    /// What is found when this is so.
    fn when(change: impl FnOnce(&mut Facts)) -> Vec<(Level, &'static str)> {
        let mut facts = fine();
        change(&mut facts);
        let found = findings(&facts);
        assert!(found.iter().all(|one| !one.remedy.is_empty()));
        found.iter().map(|one| (one.level, one.about)).collect()
    }

    #[test]
    fn a_store_that_is_well_is_told_nothing() {
        assert_eq!(when(|_| ()), []);
    }

    #[test]
    fn what_a_test_cannot_bring_about_is_found_from_facts() {
        use Level::{Hint, Wrong};
        assert_eq!(when(|f| f.server.version = 140_009), [(Wrong, "version")]);
        assert_eq!(when(|f| f.server.clock_ahead = -2_500), [(Hint, "clock")]);
        assert_eq!(when(|f| f.server.clock_ahead = 1_999), []);
        let idle = |f: &mut Facts| {
            if let Some(store) = &mut f.store {
                store.workers = 0;
                store.has_waiting = false;
            }
        };
        assert_eq!(when(idle), [(Hint, "workers")]);
        let gone = |f: &mut Facts| {
            f.unsynced.push(Unsynced {
                name: "page".into(),
                is_gone: true,
            });
        };
        assert_eq!(when(gone), [(Hint, "sync")]);
    }

    #[test]
    fn the_worst_comes_first() {
        let both = |f: &mut Facts| {
            f.pooled = true;
            f.schema = Some("it is not there".into());
        };
        assert_eq!(
            when(both),
            [(Level::Wrong, "schema"), (Level::Hint, "pooler")]
        );
    }
}
