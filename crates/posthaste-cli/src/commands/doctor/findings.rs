//! From what was seen to what it means: no IO. In one file because each finding is a few lines and
//! its test one more.

use serde::Serialize;

use super::facts::{Facts, Server, Store};
use super::holders::of_a_holder;
use super::rights::of_the_rights;
use super::synced::{of_a_sync, of_a_synced_table};
use crate::commands::status::periodic::Failed;
use crate::terminal::named;

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

/// The oldest server that will do.
pub(super) const OLDEST: i32 = 150_000;
/// A clock that differs by more than this is told.
const CLOCK: i64 = 2_000;
/// A queue of notifications that is fuller than this, in percent, is told.
const NOTIFICATIONS: i32 = 10;

/// What all that means, the worst first.
pub(crate) fn findings(facts: &Facts) -> Vec<Finding> {
    let mut found = Vec::new();
    of_the_server(&facts.server, &mut found);
    if facts.pooled {
        found.push(hint(
            "pooler",
            "the connection goes through a pooler that gives each transaction another server \
             process",
            "it works; a direct address for workers saves a hop, and is needed for whatever \
             listens",
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
    for (name, behind) in &facts.behind {
        found.extend(of_a_sync(name, behind, facts.older_than));
    }
    found.extend(facts.holders.iter().filter_map(of_a_holder));
    found.sort_by_key(|one| one.level);
    found
}

fn of_the_server(server: &Server, found: &mut Vec<Finding>) {
    if server.version < OLDEST {
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
            "ALTER SYSTEM SET fsync = on, then SELECT pg_reload_conf()",
        ));
    }
    if ["off", "local"].contains(&server.synchronous_commit.as_str()) {
        found.push(hint(
            "synchronous_commit",
            &format!(
                "synchronous_commit is {}: a crash or a failover may take the last commits, \
                 jobs with their data",
                server.synchronous_commit
            ),
            "ALTER ROLE … SET synchronous_commit = on for roles that enqueue what must not be lost",
        ));
    }
    if server.notifications >= NOTIFICATIONS {
        let full = server.notifications;
        found.push(wrong(
            "notifications",
            &format!(
                "the server's queue of notifications is {full} % full: a session of some database \
                 listens and stays in a transaction. From 50 % on nobody is notified; when it is \
                 full, NOTIFY fails at COMMIT"
            ),
            "end that session: in pg_stat_activity the oldest that is 'idle in transaction' \
             and has said LISTEN",
        ));
    }
    if server.max_prepared > 0 {
        found.push(hint(
            "prepared_transactions",
            "this server allows prepared transactions: one that has notified cannot be prepared, \
             and one that is forgotten keeps space",
            "where transactions with jobs in them are prepared, switch notifications off for these \
             sessions, and see that each is ended",
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
            "keep both right (NTP): the server's decides what is due, and times that programs \
             compute are their own",
        ));
    }
    if server.encoding == "SQL_ASCII" {
        found.push(hint(
            "encoding",
            "this database is in SQL_ASCII, which takes any bytes for text: a job with some that \
             are not UTF-8 cannot be handed out, and is kept as dead",
            "let producers write UTF-8 only, or move to a database in UTF8",
        ));
    }
    if !server.sees_sessions {
        let me = &server.me;
        found.push(hint(
            "sessions",
            &format!(
                "{me} is not shown what the sessions of others do: nobody looked for locks, \
                 transactions and replicas' readers that are old"
            ),
            &format!(
                "a superuser: GRANT pg_read_all_stats TO {me}; posthaste_worker and \
                 posthaste_observer have it where 'posthaste migrate --roles' was run by one who \
                 may grant it"
            ),
        ));
    }
    if !server.roles_missing.is_empty() && server.version > 0 {
        found.push(hint(
            "roles",
            &format!("no role {}", server.roles_missing.join(", ")),
            "'posthaste migrate --roles' makes them, for programs that are to have no more rights \
             than they need",
        ));
    }
    if !server.open_schemas.is_empty() {
        let names = server.open_schemas.join(", ");
        found.push(hint(
            "open_schema",
            &format!(
                "everybody may create in {names}, so anybody's functions and operators may run in \
                 the sessions of others; posthaste itself calls none of them"
            ),
            &format!("its owner: REVOKE CREATE ON SCHEMA {names} FROM PUBLIC"),
        ));
    }
}

fn of_the_store(store: &Store, found: &mut Vec<Finding>) {
    if store.needs_rebase {
        found.push(wrong(
            "restore",
            "this database was restored, copied, upgraded or loaded, and its jobs were not taken \
             over yet: no worker works here",
            "stop all workers and run 'posthaste rebase' once",
        ));
    }
    if store.ids_behind {
        found.push(wrong(
            "sequences",
            "the sequence of job ids is behind the jobs, as after a logical replication: \
             new jobs get ids that others have",
            "before anybody enqueues: stop all workers and run 'posthaste rebase' once, \
             which moves it beyond every id that is known here",
        ));
    }
    if store.needs_rebase {
        return; // who works is the question behind that
    }
    if store.workers == 0 && store.has_waiting {
        found.push(wrong(
            "workers",
            "jobs wait, and no worker has sent a heartbeat for a minute",
            "start one: 'posthaste work', or your own program",
        ));
    } else if store.workers == 0 {
        let what = "no worker has sent a heartbeat for a minute";
        let remedy = "start one: 'posthaste work', or your own program";
        found.push(hint("workers", what, remedy));
    }
    of_periodic_jobs(&store.periodic, found);
    of_the_clock(store, found);
    for queue in store.unworked.iter().filter(|_| store.workers > 0) {
        let queue = named(queue);
        found.push(wrong(
            "unworked",
            &format!("jobs wait in queue {queue}, and none of the workers works on it"),
            "correct the queue's name where they are enqueued, or give it a worker",
        ));
    }
    if store.workers > 0 && !store.has_leader {
        found.push(wrong(
            "leader",
            "workers live, and none of them does maintenance: what is scheduled does not come, \
             and space does not come back",
            "let at least one worker have Config::maintenance",
        ));
    }
}

fn of_periodic_jobs(failed: &Failed, found: &mut Vec<Finding>) {
    if let Some(first) = failed.first.first() {
        let (name, error, all) = (named(&first.name), named(&first.error), failed.all);
        let what = match all {
            1 => format!("the periodic job {name} is not enqueued: {error}"),
            _ => format!("{all} periodic jobs are not enqueued; the first is {name}: {error}"),
        };
        let remedy = "correct its row in posthaste.periodic, whose column error has the reason; \
                      it is looked at again at once, and else every ten minutes";
        found.push(wrong("periodic", &what, remedy));
    }
}

/// What a clock that stepped has left in the store.
fn of_the_clock(store: &Store, found: &mut Vec<Finding>) {
    let ahead = store.seconds_ahead;
    if ahead >= 2 {
        found.push(wrong(
            "clock_stepped_back",
            &format!(
                "the store was written by a clock that was {ahead} s ahead of the server's: \
                 jobs that are due by then run at once, and who fails cannot back off"
            ),
            "a worker that does maintenance sets that right within a minute; if this stays, end \
             who is named as a lock or a transaction; keep the clocks of all servers right (NTP)",
        ));
    }
    let jumped = store.seconds_jumped;
    if store.has_leader && jumped >= 3600 {
        found.push(hint(
            "clock_jumped",
            &format!(
                "the server's clock has jumped ahead, or nobody did maintenance for long: history \
                 and what receivers had are forgotten {jumped} s later"
            ),
            "if the clock is wrong, set it right, and redrive what expired by it, which is kept; \
             if it is right, this ends by itself",
        ));
    }
}

pub(super) fn wrong(about: &'static str, what: &str, remedy: &str) -> Finding {
    finding(Level::Wrong, about, what, remedy)
}

pub(super) fn hint(about: &'static str, what: &str, remedy: &str) -> Finding {
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
    use super::super::facts::{Rights, Unsynced};
    use super::*;
    use crate::commands::status::periodic::Line;

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
                functions_lacking: Vec::new(),
                roles_lacking: Vec::new(),
            }),
            store: Some(Store {
                needs_rebase: false,
                workers: 1,
                has_leader: true,
                has_waiting: true,
                ids_behind: false,
                seconds_ahead: -1,
                seconds_jumped: 0,
                unworked: Vec::new(),
                periodic: Failed::default(),
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
        let full = [(Wrong, "notifications")];
        assert_eq!(when(|f| f.server.notifications = 10), full);
        let step = |ahead, jumped| {
            move |f: &mut Facts| {
                if let Some(store) = &mut f.store {
                    (store.seconds_ahead, store.seconds_jumped) = (ahead, jumped);
                }
            }
        };
        assert_eq!(when(step(2, 3599)), [(Wrong, "clock_stepped_back")]);
        assert_eq!(when(step(1, 3600)), [(Hint, "clock_jumped")]);
        let idle = |f: &mut Facts| {
            if let Some(store) = &mut f.store {
                store.workers = 0;
                store.has_waiting = false;
            }
        };
        assert_eq!(when(idle), [(Hint, "workers")]);
        let unread = |f: &mut Facts| {
            if let Some(store) = &mut f.store {
                let (name, error) = ("nightly".into(), "no time zone".into());
                store.periodic.first.push(Line { name, error });
            }
        };
        assert_eq!(when(unread), [(Wrong, "periodic")]);
        let gone = |f: &mut Facts| {
            f.unsynced.push(Unsynced {
                name: "page".into(),
                is_gone: true,
                parts: Vec::new(),
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
