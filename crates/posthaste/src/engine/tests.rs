//! The engine's identity, its gate and the watch over its tasks, without a database.

use futures_util::FutureExt;

use super::*;
use crate::consumer::Consumer;
use crate::job::Incarnations;

const LONG: Duration = Duration::from_secs(3_600);

/// A pool whose connections are refused at once.
fn nowhere() -> Pool {
    let mut nobody = tokio_postgres::Config::new();
    nobody.host("127.0.0.1").port(1).user("nobody");
    let manager = deadpool_postgres::Manager::new(nobody, tokio_postgres::NoTls);
    Pool::builder(manager).build().expect("a pool")
}

/// An engine that never connects.
fn engine() -> Arc<Engine> {
    of(Vec::new()).0
}

fn of(queues: Vec<Arc<QueueState>>) -> (Arc<Engine>, UnboundedReceiver<Settled>) {
    let parts = Parts {
        pool: nowhere(),
        config: Config::default(),
        queues,
        stop: CancellationToken::new(),
    };
    Engine::new(parts)
}

fn known_as(id: i64) -> Arc<Identity> {
    let incarnations = Incarnations::new(vec![0], vec![Uuid::nil()]);
    Arc::new(Identity { id, incarnations })
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

/// What a worker with this consumer ends with; it must end by itself.
async fn end_of(bug: &'static str) -> String {
    let queue = QueueState::new("mail", Arc::new(Broken(bug)));
    let (engine, settled) = of(vec![Arc::new(queue)]);
    let running = tokio::task::spawn_blocking(move || run(engine, settled, nowhere(), None));
    let ended = tokio::time::timeout(Duration::from_secs(60), running).await;
    let ended = ended.expect("it ends by itself").expect("in order");
    ended.expect_err("with an error").to_string()
}

#[tokio::test]
async fn a_worker_ends_by_itself_when_one_of_its_tasks_does_and_says_which() {
    for (bug, task) in [
        ("capacity", "claim from mail"),
        ("watch", "watch"),
        ("limit", "suspects"),
    ] {
        let said = end_of(bug).await;
        let expected = format!("its task \"{task}\" panicked: a bug in {bug}");
        assert!(said.ends_with(&expected), "{said}");
    }
}

#[tokio::test]
async fn a_task_that_ends_early_stops_the_worker_and_one_that_ends_with_it_does_not() {
    let engine = engine();
    engine.watched("eager", async {}).await;
    assert!(engine.stopping.is_cancelled());
    engine.watched("second", async { panic!("later") }).await;
    let first = engine.failure.get().map(String::as_str);
    assert_eq!(first, Some("its task \"eager\" ended before its time"));

    let engine = super::tests::engine();
    engine.stopping.cancel();
    engine.watched("stops", async {}).await;
    assert_eq!(engine.failure.get(), None);
}

#[tokio::test]
async fn without_the_task_that_takes_outcomes_nothing_outstanding_is_waited_for() {
    let engine = engine();
    engine.delivered(1);
    let broken = engine.watched_to_the_end("acknowledge", async { panic!("a bug") });
    let waiting = tokio::spawn({
        let engine = Arc::clone(&engine);
        async move { engine.drained(LONG).await }
    });
    broken.await;
    assert!(engine.stopping.is_cancelled());
    let drained = tokio::time::timeout(Duration::from_secs(60), waiting).await;
    let drained = drained.expect("it is not waited for").expect("an answer");
    assert!(!drained, "its job was not settled");
}

#[test]
fn the_heart_stops_when_the_engine_panics_or_it_would_keep_its_jobs_from_being_rescued() {
    let queue = QueueState::new("mail", Arc::new(Broken("give_back")));
    let (engine, settled) = of(vec![Arc::new(queue)]);
    engine.stopping.cancel();
    let inner = Arc::clone(&engine);
    let ended = std::thread::spawn(move || run(inner, settled, nowhere(), None)).join();
    assert!(ended.is_err(), "the engine's own thread panicked");
    assert!(engine.stopped.is_cancelled());
}

#[test]
fn a_late_word_of_an_old_identitys_death_leaves_the_new_one_alive() {
    let engine = engine();
    engine.identity.send_replace(Some(known_as(2)));
    engine.forget_worker(1);
    assert!(engine.identity.borrow().is_some());
    engine.forget_worker(2);
    assert!(engine.identity.borrow().is_none());
}

#[tokio::test]
async fn nobody_is_alone_while_a_claim_is_under_way_or_its_jobs_run() {
    let engine = engine();
    let passed = engine.gate.pass(&engine.stopping).await.expect("open");
    assert!(
        engine.alone(Duration::ZERO).await.is_none(),
        "a claim is under way"
    );
    engine.delivered(2);
    drop(passed);
    assert!(engine.alone(Duration::ZERO).await.is_none(), "its jobs run");
    engine.settled(1);
    assert!(engine.alone(Duration::ZERO).await.is_none(), "one runs");
    engine.set_aside(1);
    assert!(
        engine.alone(LONG).await.is_some(),
        "an acknowledgement that waits by itself is no run"
    );
    assert!(
        !engine.drained(Duration::ZERO).await,
        "yet it is not settled"
    );
    engine.settled_aside(1);
    assert!(engine.drained(LONG).await);
}

#[tokio::test]
async fn a_claim_that_was_never_sent_is_not_looked_for_afterwards() {
    let engine = engine();
    engine.identity.send_replace(Some(known_as(1)));
    let queue = Arc::new(QueueState::new("mail", Arc::new(Broken("none"))));
    let passed = engine.gate.pass(&engine.stopping).await.expect("open");
    let refused = claim::claim(&engine, &queue, 1, passed).await;
    let refused = refused.expect_err("nobody is there");
    assert!(refused.is_connection(), "{refused}");
    assert!(engine.uncertain.lock().expect("claims").is_empty());
}

#[tokio::test]
async fn a_job_that_cannot_be_read_is_ended_beside_no_suspect() {
    let engine = engine();
    engine.identity.send_replace(Some(known_as(1)));
    let queue = Arc::new(QueueState::new("mail", Arc::new(Broken("none"))));
    let bad = Error::invalid("row", "cannot be read");
    let ending = claim::bury(&engine, &queue, &bad);
    tokio::pin!(ending);
    assert!((&mut ending).now_or_never().is_none(), "it connects");
    assert!(
        engine.alone(Duration::ZERO).await.is_none(),
        "somebody is alone beside it"
    );
    ending.await;
    assert!(engine.alone(LONG).await.is_some(), "it is over");
}

#[tokio::test]
async fn claims_pass_again_when_the_suspects_turn_is_over_or_was_given_up_or_the_engine_stops() {
    let engine = engine();
    let hangs = engine.gate.pass(&engine.stopping).await.expect("open");
    assert!(engine.alone(Duration::ZERO).await.is_none());
    assert!(
        engine.gate.pass(&engine.stopping).await.is_some(),
        "given up"
    );
    drop(hangs);
    let alone = engine.alone(LONG).await.expect("alone");
    let waits = engine.gate.pass(&engine.stopping).now_or_never();
    assert!(waits.is_none(), "a claim passed beside a suspect");
    drop(alone);
    assert!(engine.gate.pass(&engine.stopping).await.is_some(), "over");
    let _alone = engine.alone(LONG).await.expect("alone");
    engine.stopping.cancel();
    assert!(engine.gate.pass(&engine.stopping).await.is_none());
}
