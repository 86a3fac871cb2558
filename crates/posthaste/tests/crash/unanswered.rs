//! A claim is committed and its answer lost, while the worker lives: the jobs belong to it and it does not know.

use posthaste_testkit::{Answer, PgServer, PgVersion, Proxy};

use super::{Worked, remembering};
use crate::support;

async fn a_lost_answer_burns_nothing(version: PgVersion) {
    let server = PgServer::shared(version).expect("a server");
    let database = support::migrated(server).await;
    let client = database.client().await.expect("a connection");
    client
        .execute(
            "INSERT INTO posthaste.job (name, kwargs) SELECT 'crash', jsonb_build_object('key', i) FROM generate_series(1, 10) i",
            &[],
        )
        .await
        .expect("ten jobs");
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let lost = proxy.drop_answer_to(Answer::to_statement("FROM posthaste.claim("));
    let worked = Worked::default();
    let worker = remembering(&proxy.url(database.name()), &worked).await;
    lost.wait(support::SOON)
        .await
        .expect("the first claim's answer is lost");
    support::all_done(&client).await;
    worker.stop().await.expect("a clean stop");
    let times = worked.all();
    assert_eq!(times.len(), 10);
    assert!(
        times.values().all(|times| *times == 1),
        "no job was handed out before: {times:?}"
    );
    // The claim had really been committed: its jobs were given back, which the store has written down.
    let given_back: i64 = client
        .query_one(
            "SELECT count(*) FROM posthaste.ack_0 WHERE outcome = 8",
            &[],
        )
        .await
        .expect("a count")
        .get(0);
    assert_eq!(given_back, 10);
    posthaste_testkit::ran::count("unanswered", 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_given_back_and_burns_no_attempt_on_15() {
    a_lost_answer_burns_nothing(PgVersion::V15).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_whose_answer_is_lost_is_given_back_and_burns_no_attempt_on_18() {
    a_lost_answer_burns_nothing(PgVersion::V18).await;
}
