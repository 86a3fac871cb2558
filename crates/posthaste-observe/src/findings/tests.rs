//! Findings of constructed snapshots, in one file because each test takes a few lines.

use std::collections::BTreeMap;

use posthaste::{Counter, Oldest};

use super::*;
use crate::checks::{Rights, UnsyncedTable};
use crate::facts::{
    EndedTransaction, FailingJobs, QueueActivity, QueueSettings, Server, StoreState, SyncedTable,
    Worker,
};
use crate::finding::{Kind, group_by_kind};

fn healthy() -> Snapshot {
    Snapshot {
        server: Server {
            version_number: 150_018,
            fsync: true,
            synchronous_commit: "on".into(),
            sees_sessions: true,
            ..Server::default()
        },
        store: StoreState {
            has_leader: true,
            ..StoreState::default()
        },
        workers: vec![worker(1.0, &["mail"])],
        ..Snapshot::default()
    }
}

fn worker(silent: f64, queues: &[&str]) -> Worker {
    Worker {
        silent,
        queues: queues.iter().map(|&queue| queue.to_owned()).collect(),
        ..Worker::default()
    }
}

fn wait_in(snapshot: &mut Snapshot, queue: &str, jobs: i64, seconds: f64) {
    let mut counter = Counter::default();
    counter.queue = queue.into();
    counter.available = jobs;
    snapshot.counters.jobs.push(counter);
    let mut oldest = Oldest::default();
    oldest.queue = queue.into();
    oldest.seconds = seconds;
    snapshot.counters.oldest.push(oldest);
}

/// Returns the kinds of the findings after this change to a healthy store.
fn found(change: impl FnOnce(&mut Snapshot)) -> Vec<Kind> {
    let mut snapshot = healthy();
    change(&mut snapshot);
    let found = findings(&snapshot, &Thresholds::default());
    assert!(found.iter().all(|one| !one.remedy.is_empty()));
    found.iter().map(|one| one.kind).collect()
}

#[test]
fn a_healthy_store_has_no_findings() {
    assert_eq!(found(|_| ()), []);
    assert_eq!(found(|store| wait_in(store, "mail", 5, 1.0)), []);
}

#[test]
fn unsafe_server_settings_and_clocks_are_reported() {
    assert_eq!(
        found(|s| s.server.version_number = 140_009),
        [Kind::ServerVersion]
    );
    assert_eq!(
        found(|s| s.server.notifications = 10),
        [Kind::ServerNotifications]
    );
    assert_eq!(found(|s| s.server.fsync = false), [Kind::ServerFsync]);
    let step = |ahead, jumped| {
        move |s: &mut Snapshot| (s.store.seconds_ahead, s.store.seconds_jumped) = (ahead, jumped)
    };
    assert_eq!(found(step(2, 3_599)), [Kind::StoreClockBack]);
    assert_eq!(found(step(1, 3_600)), [Kind::StoreClockAhead]);
    let mut checks = Checks {
        server: healthy().server,
        clock_ahead: -2_500,
        ..Checks::default()
    };
    let clock = |checks: &Checks| {
        let found = check_findings(checks, None, &Thresholds::default());
        found.iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    assert_eq!(clock(&checks), [Kind::ServerClock]);
    checks.clock_ahead = 1_999;
    assert_eq!(clock(&checks), []);
}

#[test]
fn silent_workers_count_as_absent_in_every_finding() {
    let dead = |silent| {
        found(move |store| {
            wait_in(store, "mail", 20, 5.0);
            store.workers = vec![worker(silent, &["mail"])];
        })
    };
    assert_eq!(dead(59.0), []);
    for silent in [61.0, -61.0] {
        assert_eq!(dead(silent), [Kind::WorkerNone, Kind::WorkerSilent]);
    }
    let idle = found(|store| store.workers.clear());
    assert_eq!(idle, [Kind::WorkerIdle]);
    assert_eq!(
        found(|store| store.store.has_leader = false),
        [Kind::WorkerNoLeader]
    );
}

#[test]
fn uncounted_jobs_are_reported() {
    let partial = found(|store| store.counters.is_partial = true);
    assert_eq!(partial, [Kind::JobsUncounted]);
}

#[test]
fn an_unadopted_copy_has_one_finding() {
    let copy = found(|store| {
        wait_in(store, "mail", 20, 5_000.0);
        store.workers.clear();
        store.store.needs_rebase = true;
    });
    assert_eq!(copy, [Kind::StoreRestored]);
}

#[test]
fn queues_without_workers_are_grouped_longest_first() {
    let mut store = healthy();
    for n in 1..=200 {
        wait_in(&mut store, &format!("q{n}"), n, 5.0);
    }
    let all = findings(&store, &Thresholds::default());
    assert_eq!(all.len(), 200);
    assert_eq!(all[0].subject, "q200");
    let groups = group_by_kind(&all);
    assert_eq!(groups.len(), 1);
    let text = "200 queues have no worker (20,100 jobs): q200 200, q199 199, q198 198, q197 197, \
                q196 196 and 195 more.";
    assert_eq!(groups[0].summary, text);
}

#[test]
fn late_and_paused_queues_are_reported_once() {
    assert_eq!(
        found(|store| wait_in(store, "mail", 5, 121.0)),
        [Kind::QueueLate]
    );
    let paused = found(|store| {
        wait_in(store, "mail", 5, 500.0);
        store.queues.push(crate::facts::QueueSettings {
            name: "mail".into(),
            paused_at: Some(jiff::Timestamp::UNIX_EPOCH),
            ..Default::default()
        });
    });
    assert_eq!(paused, [Kind::QueuePaused]);
}

#[test]
fn a_queue_is_failing_when_half_of_twenty_attempts_failed() {
    let fails = |failed, completed| {
        found(move |store| {
            store.windows.push(QueueActivity {
                queue: "mail".into(),
                seconds: 600.0,
                failed,
                completed,
                error: Some("HTTP status 500".into()),
                ..QueueActivity::default()
            });
        })
    };
    assert_eq!(fails(10, 10), [Kind::QueueFailing]);
    assert_eq!(fails(9, 0), []);
    assert_eq!(fails(10, 11), []);
}

#[test]
fn sync_findings_suggest_the_sync_command_instead_of_a_worker() {
    let sync = || SyncedTable {
        name: "page".into(),
        due: 7,
        ..SyncedTable::default()
    };
    let waiting = |workers: Vec<Worker>, seconds| {
        found(move |store| {
            store.syncs.push(sync());
            store.workers = workers;
            wait_in(store, "sync.page", 7, seconds);
        })
    };
    assert_eq!(waiting(Vec::new(), 61.0), [Kind::SyncNoWorker]);
    assert_eq!(
        waiting(vec![worker(1.0, &["mail"])], 61.0),
        [Kind::SyncNoWorker]
    );
    assert_eq!(
        waiting(vec![worker(1.0, &["sync.page"])], 601.0),
        [Kind::QueueLate, Kind::SyncLate]
    );
}

#[test]
fn a_failing_sync_is_reported_after_a_minute() {
    let fails = |seconds, given_up| {
        found(move |store| {
            let problem = posthaste_sync::Problem {
                reason: "connection refused".into(),
                jobs: 7,
                seconds,
                given_up,
            };
            store.syncs.push(SyncedTable {
                name: "page".into(),
                behind: Some(posthaste_sync::SyncLag {
                    due: 7,
                    seconds: Some(seconds),
                    problems: vec![problem],
                }),
                ..SyncedTable::default()
            });
        })
    };
    assert_eq!(fails(61.0, false), [Kind::SyncFailing]);
    assert_eq!(fails(59.0, false), []);
    assert_eq!(fails(599.0, true), [Kind::SyncGivenUp]);
    assert_eq!(fails(601.0, true), [Kind::SyncLate]);
}

#[test]
fn always_failing_jobs_are_reported_during_retries() {
    let fails = |attempts, retrying| {
        found(move |store| {
            let mut counter = Counter::default();
            counter.queue = "mail".into();
            counter.retrying = retrying;
            store.counters.jobs.push(counter);
            store.failing_jobs.push(FailingJobs {
                queue: "mail".into(),
                attempts,
                jobs: 1,
                error: Some("no such user".into()),
            });
        })
    };
    assert_eq!(fails(8, 1), [Kind::JobsFailing]);
    assert_eq!(fails(7, 1), []);
    assert_eq!(fails(8, 0), []);
}

#[test]
fn per_queue_thresholds_apply_unless_the_queue_is_paused() {
    let figures = || BTreeMap::from([("mail".to_owned(), 10.0)]);
    let thresholds = Thresholds {
        length_above: figures(),
        completed_below: figures(),
        ..Thresholds::default()
    };
    let judged = |jobs, rate, paused_at| {
        let mut store = healthy();
        wait_in(&mut store, "mail", jobs, 1.0);
        store.rates.insert("mail".into(), rate);
        store.queues.push(QueueSettings {
            name: "mail".into(),
            paused_at,
            ..QueueSettings::default()
        });
        let found = findings(&store, &thresholds);
        found.iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    assert_eq!(judged(10, 10.0, None), []);
    assert_eq!(judged(11, 9.9, None), [Kind::QueueLong, Kind::QueueSlow]);
    let now = Some(jiff::Timestamp::UNIX_EPOCH);
    assert_eq!(judged(11, 9.9, now), [Kind::QueuePaused]);
}

#[test]
fn jobs_with_excluded_tags_are_ignored() {
    let mut store = healthy();
    wait_in(&mut store, "mail", 4_000, 500.0);
    store.counters.jobs[0].tag = "reindex_user".into();
    store.leave_out_tags(&["other".into()]);
    assert_eq!(findings(&store, &Thresholds::default()).len(), 1);
    store.leave_out_tags(&["reindex*".into()]);
    assert_eq!(findings(&store, &Thresholds::default()), []);
}

#[test]
fn sessions_ended_by_txwatch_are_reported_for_an_hour() {
    let ended = |seconds, result: &'static str| {
        let mut store = healthy();
        store.ended.push(EndedTransaction {
            at: store.server.at - jiff::SignedDuration::from_secs(seconds),
            action: "terminate".into(),
            result: result.into(),
            ..EndedTransaction::default()
        });
        let found = findings(&store, &Thresholds::default());
        found.into_iter().map(|one| one.summary).collect::<Vec<_>>()
    };
    assert!(ended(3_599, "done")[0].contains("1 session terminated"));
    assert!(ended(3_599, "refused")[0].contains("1 attempt without effect"));
    assert_eq!(ended(3_601, "done"), Vec::<String>::new());
}

#[test]
fn checks_report_the_schema_before_hints() {
    let checks = Checks {
        server: healthy().server,
        is_pooled: true,
        schema: Some("it is not there".into()),
        unsynced: vec![UnsyncedTable {
            name: "page".into(),
            is_dropped: true,
            parts: Vec::new(),
        }],
        ..Checks::default()
    };
    let found = check_findings(&checks, None, &Thresholds::default());
    let kinds: Vec<Kind> = found.iter().map(|one| one.kind).collect();
    assert_eq!(
        kinds,
        [Kind::SchemaMismatch, Kind::ServerPooler, Kind::SyncDropped]
    );
}

#[test]
fn missing_role_rights_are_reported_and_observers_get_a_hint() {
    let with = |rights: Rights| {
        let checks = Checks {
            server: healthy().server,
            rights: Some(rights),
            ..Checks::default()
        };
        let found = check_findings(&checks, None, &Thresholds::default());
        found.iter().map(|one| one.kind).collect::<Vec<_>>()
    };
    assert_eq!(with(Rights::default()), [Kind::RightsNone]);
    let observer = Rights {
        use_schema: true,
        observe: true,
        ..Rights::default()
    };
    assert_eq!(with(observer), [Kind::RightsPartial]);
}

fn capture() -> posthaste_capture::Overview {
    posthaste_capture::Overview {
        name: "orders".into(),
        slot: "posthaste_orders".into(),
        publication: "posthaste_orders".into(),
        installed_at: jiff::Timestamp::UNIX_EPOCH,
        started_at: None,
        stopped: None,
        is_active: true,
        is_missing: false,
        wal_status: "reserved".into(),
        done: None,
        marked_at: None,
        unconfirmed_bytes: Some(1 << 20),
        retained_bytes: Some(2 << 20),
        gaps: 0,
        paused_at: None,
        events: 7,
        bytes: 70,
        lag_seconds: Some(0.0),
        copied_rows: None,
        copy_rows: None,
        copy_problem: None,
        path: None,
        indirect_since: None,
        path_problem: None,
    }
}

fn spill(capture: &mut posthaste_capture::Overview, path: &str, seconds: i64) {
    capture.path = Some(path.into());
    let now = healthy().server.at;
    capture.indirect_since = now
        .checked_sub(jiff::SignedDuration::from_secs(seconds))
        .ok();
}

#[test]
fn stopped_lagging_and_slotless_captures_are_reported() {
    type Change = fn(&mut posthaste_capture::Overview);
    let cases: [(Change, &[Kind]); 18] = [
        (|_| (), &[]),
        (|one| one.is_active = false, &[]),
        (
            |one| one.stopped = Some("why".into()),
            &[Kind::CaptureStopped],
        ),
        (|one| one.is_missing = true, &[Kind::CaptureStopped]),
        (
            |one| one.wal_status = "lost".into(),
            &[Kind::CaptureStopped],
        ),
        (
            |one| {
                one.is_active = false;
                one.paused_at = Some(jiff::Timestamp::UNIX_EPOCH);
                one.unconfirmed_bytes = Some(1 << 30);
            },
            &[Kind::CapturePaused],
        ),
        (
            |one| {
                one.is_active = false;
                one.paused_at = Some(jiff::Timestamp::UNIX_EPOCH);
                one.unconfirmed_bytes = Some(2 << 30);
            },
            &[Kind::CaptureBehind],
        ),
        (
            |one| one.copy_problem = Some("why".into()),
            &[Kind::CaptureCopy],
        ),
        (|one| one.gaps = 2, &[Kind::CaptureGap]),
        (
            |one| one.unconfirmed_bytes = Some(2 << 30),
            &[Kind::CaptureBehind],
        ),
        (
            |one| {
                one.is_active = false;
                one.unconfirmed_bytes = Some(1 << 30);
            },
            &[Kind::CaptureNotRunning],
        ),
        (|one| spill(one, "waiting", 29), &[]),
        (|one| spill(one, "waiting", 31), &[Kind::CaptureWaiting]),
        (|one| spill(one, "waiting", 901), &[Kind::CaptureWaiting]),
        (|one| spill(one, "spilling", 899), &[]),
        (|one| spill(one, "spilling", 901), &[Kind::CaptureSpilling]),
        (|one| spill(one, "draining", 901), &[Kind::CaptureSpilling]),
        (|one| spill(one, "full", 1), &[Kind::CaptureFull]),
    ];
    for (change, expected) in cases {
        let mut one = capture();
        change(&mut one);
        assert_eq!(found(|store| store.captures.push(one)), expected);
    }
}

#[test]
fn endpoints_that_accept_no_jobs_are_reported_while_jobs_wait() {
    let fail = |snapshot: &mut Snapshot| {
        let mut failing = worker(1.0, &["mail"]);
        failing.failing_since = Some(snapshot.server.at);
        failing.last_error = Some("http://host: the answer was 401".into());
        snapshot.workers.push(failing);
    };
    assert!(found(|store| fail(store)).is_empty());
    assert_eq!(
        found(|store| {
            fail(store);
            wait_in(store, "mail", 3, 1.0);
        }),
        [Kind::WorkerFailing]
    );
    let others = found(|store| {
        fail(store);
        wait_in(store, "other", 3, 1.0);
        store.workers.push(worker(1.0, &["other"]));
    });
    assert!(others.is_empty(), "it does not serve the queue");
    let mut failing = healthy();
    fail(&mut failing);
    wait_in(&mut failing, "mail", 3, 1.0);
    let finding = &findings(&failing, &Thresholds::default())[0];
    assert!(
        finding
            .summary
            .ends_with("3 jobs waiting: http://host: the answer was 401")
    );
    assert_eq!(finding.jobs, 3);
}
