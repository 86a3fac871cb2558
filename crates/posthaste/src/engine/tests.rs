//! The engine's identity and its gate, without a database.

use futures_util::FutureExt;

use super::*;

const LONG: Duration = Duration::from_secs(3_600);

/// An engine that never connects.
fn engine() -> Arc<Engine> {
    let manager =
        deadpool_postgres::Manager::new(tokio_postgres::Config::new(), tokio_postgres::NoTls);
    let parts = Parts {
        pool: Pool::builder(manager).build().expect("a pool"),
        config: Config::default(),
        queues: Vec::new(),
        stop: CancellationToken::new(),
    };
    Engine::new(parts).0
}

#[test]
fn a_late_word_of_an_old_identitys_death_leaves_the_new_one_alive() {
    let engine = engine();
    engine.identity.send_replace(Some(2));
    engine.forget_worker(1);
    assert_eq!(*engine.identity.borrow(), Some(2));
    engine.forget_worker(2);
    assert_eq!(*engine.identity.borrow(), None);
}

#[tokio::test]
async fn nobody_is_alone_while_a_claim_is_under_way_or_its_jobs_are_outstanding() {
    let engine = engine();
    let passed = engine.gate.pass(&engine.stopping).await.expect("open");
    assert!(
        engine.alone(Duration::ZERO).await.is_none(),
        "a claim is under way"
    );
    engine.outstanding.fetch_add(1, Ordering::SeqCst);
    drop(passed);
    assert!(engine.alone(Duration::ZERO).await.is_none(), "its job runs");
    engine.settled(1);
    assert!(engine.alone(LONG).await.is_some());
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
