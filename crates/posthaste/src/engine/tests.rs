//! Tests of the engine's identity, its gate and the watch over its tasks, without a database.

use futures_util::FutureExt;

use super::*;
use crate::consumer::{Consumer, Delivery};

const LONG: Duration = Duration::from_secs(3_600);

/// Returns a pool whose connections are refused at once.
fn nowhere() -> Pool {
    let mut nobody = tokio_postgres::Config::new();
    nobody.host("127.0.0.1").port(1).user("nobody");
    let manager = deadpool_postgres::Manager::new(nobody, tokio_postgres::NoTls);
    Pool::builder(manager).build().expect("a pool")
}

/// Returns a process that never connects.
fn process() -> Process {
    of(Vec::new()).0
}

fn of(queues: Vec<Arc<QueueState>>) -> (Process, UnboundedReceiver<Settled>) {
    Process::new(Start {
        pool: nowhere(),
        config: Config::default(),
        queues,
        listen: None,
        site: Arc::default(),
        periodic: Vec::new(),
        admission: Arc::default(),
        owed: Arc::default(),
        failing: Arc::default(),
        stop: CancellationToken::new(),
    })
}

/// Returns a fetcher with an identity.
fn fetcher(process: &Process) -> QueueClaimer {
    process.claimer.registration.set_for_test(1);
    let queue = Arc::new(QueueState::new("mail", Arc::new(Broken("none"))));
    let (config, notifications) = (&process.config, &process.notifications);
    QueueClaimer::new(
        &process.claimer,
        &queue,
        config,
        notifications,
        &Arc::default(),
    )
}

/// A consumer with a bug in one of its methods.
struct Broken(&'static str);

impl Broken {
    fn is_in(&self, method: &str) {
        assert!(self.0 != method, "a bug in {method}");
    }
}

impl Consumer for Broken {
    fn capacity(&self) -> usize {
        self.is_in("capacity");
        0
    }
    fn consume(&self, _claim: Vec<Delivery>) {}
    fn give_back(&self) {
        self.is_in("give_back");
    }
    fn abort(&self) {}
    fn watch(&self) {
        self.is_in("watch");
    }
    fn limit(&self) -> Option<Duration> {
        self.is_in("limit");
        None
    }
}

/// Returns the error of a worker with this bug; the worker must end without being stopped.
async fn end_of(bug: &'static str) -> String {
    let queue = QueueState::new("mail", Arc::new(Broken(bug)));
    let (process, settled) = of(vec![Arc::new(queue)]);
    let running = tokio::task::spawn_blocking(move || process.run(settled, Vec::new()));
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
    let ended = ended.expect("it ends by itself").expect("in order");
    ended.expect_err("with an error").to_string()
}

#[tokio::test]
async fn worker_error_names_the_task_that_ended() {
    for (bug, task) in [
        ("capacity", "claim from mail"),
        ("watch", "watch"),
        ("limit", "quarantine"),
    ] {
        let message = end_of(bug).await;
        let expected = format!("its task \"{task}\" panicked: a bug in {bug}");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[tokio::test]
async fn a_task_that_ends_early_stops_the_worker() {
    let stopping = CancellationToken::new();
    let watched = TaskSupervisor::new(stopping.clone());
    watched.task("eager", async {}).await;
    assert!(stopping.is_cancelled());
    watched.task("second", async { panic!("later") }).await;
    let first = watched.failure();
    assert_eq!(first, Some("its task \"eager\" ended unexpectedly"));

    let stopping = CancellationToken::new();
    let watched = TaskSupervisor::new(stopping.clone());
    stopping.cancel();
    watched.task("stops", async {}).await;
    assert_eq!(watched.failure(), None);
}

#[tokio::test]
async fn shutdown_skips_waiting_when_the_settling_task_is_gone() {
    let in_hand = Arc::new(Outstanding::default());
    in_hand.record_delivered(1);
    let stopping = CancellationToken::new();
    let broken =
        TaskSupervisor::new(stopping.clone()).task("acknowledge", async { panic!("a bug") });
    let broken = in_hand.settled_by(broken);
    let waiting = tokio::spawn({
        let in_hand = Arc::clone(&in_hand);
        async move { in_hand.wait_until_drained(LONG).await }
    });
    broken.await;
    assert!(stopping.is_cancelled());
    let drained = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let drained = drained.expect("it is not waited for").expect("an answer");
    assert!(!drained, "its job was not settled");
}

#[test]
fn the_heartbeat_stops_when_the_engine_panics() {
    let queue = QueueState::new("mail", Arc::new(Broken("give_back")));
    let (process, settled) = of(vec![Arc::new(queue)]);
    process.claimer.stopping.cancel();
    let stopped = process.ends.stopped.clone();
    let ended = std::thread::spawn(move || process.run(settled, Vec::new())).join();
    assert!(ended.is_err(), "the engine's own thread panicked");
    assert!(stopped.is_cancelled());
}

#[test]
fn late_reports_about_an_old_identity_leave_the_new_one_alive() {
    let registration = &process().claimer.registration;
    registration.set_for_test(2);
    registration.remove_dead(1);
    assert!(registration.current().is_some());
    registration.remove_dead(2);
    assert!(registration.current().is_none());
}

#[tokio::test]
async fn quarantined_jobs_wait_for_claims_and_runs_in_progress() {
    let (gate, jobs) = (Gate::default(), Outstanding::default());
    let passed = gate.pass(&CancellationToken::new()).await.expect("open");
    assert!(
        gate.close_until_idle(&jobs, Duration::ZERO).await.is_none(),
        "a claim is in flight"
    );
    jobs.record_delivered(2);
    drop(passed);
    assert!(
        gate.close_until_idle(&jobs, Duration::ZERO).await.is_none(),
        "its jobs run"
    );
    jobs.record_settled(1);
    assert!(
        gate.close_until_idle(&jobs, Duration::ZERO).await.is_none(),
        "one runs"
    );
    jobs.set_aside(1);
    assert!(
        gate.close_until_idle(&jobs, LONG).await.is_some(),
        "an acknowledgement that waits by itself is not a run"
    );
    assert!(
        !jobs.wait_until_drained(Duration::ZERO).await,
        "yet it is not settled"
    );
    jobs.settled_aside(1);
    assert!(jobs.wait_until_drained(LONG).await);
}

#[tokio::test]
async fn claims_never_sent_are_not_tracked_as_unanswered() {
    let process = process();
    let fetcher = fetcher(&process);
    let claimer = &process.claimer;
    let passed = claimer.gate.pass(&claimer.stopping).await.expect("open");
    let refused = fetcher.claim(1, passed).await;
    let refused = refused.expect_err("nobody is there");
    assert!(refused.is_connection(), "{refused}");
    assert!(claimer.unanswered.is_empty());
}

#[tokio::test]
async fn quarantined_turns_wait_until_unreadable_jobs_are_dead_lettered() {
    let process = process();
    let fetcher = fetcher(&process);
    let claimer = &process.claimer;
    let bad = Error::invalid("row", "cannot be read");
    let ending = fetcher.dead_letter_next(&bad);
    tokio::pin!(ending);
    assert!((&mut ending).now_or_never().is_none(), "it connects");
    assert!(
        claimer
            .gate
            .close_until_idle(&claimer.dispatcher.in_hand, Duration::ZERO)
            .await
            .is_none(),
        "somebody is alone beside it"
    );
    ending.await;
    assert!(
        claimer
            .gate
            .close_until_idle(&claimer.dispatcher.in_hand, LONG)
            .await
            .is_some(),
        "it is over"
    );
}

#[tokio::test]
async fn claims_resume_after_a_quarantined_turn_ends_or_is_abandoned() {
    let (gate, jobs) = (Gate::default(), Outstanding::default());
    let stopping = CancellationToken::new();
    let hangs = gate.pass(&stopping).await.expect("open");
    assert!(gate.close_until_idle(&jobs, Duration::ZERO).await.is_none());
    assert!(gate.pass(&stopping).await.is_some(), "given up");
    drop(hangs);
    let alone = gate.close_until_idle(&jobs, LONG).await.expect("alone");
    let waits = gate.pass(&stopping).now_or_never();
    assert!(waits.is_none(), "a claim passed beside a quarantined job");
    drop(alone);
    assert!(gate.pass(&stopping).await.is_some(), "over");
    let _alone = gate.close_until_idle(&jobs, LONG).await.expect("alone");
    stopping.cancel();
    assert!(gate.pass(&stopping).await.is_none());
}
