//! The mail example in asynq's inspector, which reads the tasks and the counts.

use posthaste_testkit::receivers::{Receiver, Worker, are_here};
use prost::Message as _;
use redis::AsyncCommands;
use serde_json::json;

use super::Setup;
use super::worker::Step;
use crate::support::SOON;

/// The fields of asynq's `TaskMessage` that its inspector shows and the example writes.
#[derive(Clone, PartialEq, prost::Message)]
struct TaskState {
    #[prost(int32, tag = "5")]
    max_retry: i32,
    #[prost(int32, tag = "6")]
    retried: i32,
    #[prost(string, tag = "7")]
    error: String,
    #[prost(int64, tag = "11")]
    last_failed_at: i64,
    #[prost(int64, tag = "13")]
    completed_at: i64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_asynq_inspector_shows_completions_errors_and_counts() {
    let test = "the_asynq_inspector_shows_completions_errors_and_counts";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    let client = redis::Client::open(setup.redis.url()).unwrap();
    let mut redis = client.get_multiplexed_async_connection().await.unwrap();
    let begun = jiff::Timestamp::now().as_second();
    setup
        .server
        .set_behaviour(&json!({ "rcpt": "450 later" }))
        .unwrap();
    let id = setup.order().await;
    assert_eq!(setup.worker().step().await.unwrap(), Step::Worked);
    let key = format!("asynq:{{mail}}:t:{id}");
    let task: Vec<u8> = redis.hget(&key, "msg").await.unwrap();
    let task = TaskState::decode(&*task).unwrap();
    assert_eq!((task.max_retry, task.retried), (25, 1));
    assert!(task.error.contains("450"), "{}", task.error);
    assert!((begun..begun + 60).contains(&task.last_failed_at));
    assert_eq!(task.completed_at, 0);

    setup.server.set_behaviour(&json!({})).unwrap();
    setup.work_until(id, "sent").await;
    let task: Vec<u8> = redis.hget(&key, "msg").await.unwrap();
    let task = TaskState::decode(&*task).unwrap();
    assert_eq!((task.max_retry, task.retried), (25, 1));
    assert!((begun..begun + 60).contains(&task.completed_at));

    for (counted, times) in [("processed", 2), ("failed", 1)] {
        let key = format!("asynq:{{mail}}:{counted}");
        let total: i64 = redis.get(&key).await.unwrap();
        let days: Vec<String> = redis.keys(format!("{key}:*")).await.unwrap();
        let mut sum = 0;
        for day in days {
            sum += redis.get::<_, i64>(&day).await.unwrap();
            let ttl: i64 = redis.ttl(&day).await.unwrap();
            assert!(ttl > 89 * 24 * 3600, "{day}: {ttl}");
        }
        assert_eq!((total, sum), (times, times), "{counted}");
    }
    let queues: Vec<String> = redis.smembers("asynq:queues").await.unwrap();
    assert_eq!(queues, ["mail"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asynq_workers_continue_the_retry_count_of_ours() {
    let test = "asynq_workers_continue_the_retry_count_of_ours";
    let Some(setup) = Setup::new(test).await else {
        return;
    };
    if !are_here(test, &[Receiver::Asynq]) {
        return;
    }
    setup
        .server
        .set_behaviour(&json!({ "rcpt": "450 later" }))
        .unwrap();
    let id = setup.order().await;
    assert_eq!(setup.worker().step().await.unwrap(), Step::Worked);
    let asynq = Worker::asynq(&setup.redis.url(), &["mail"]).unwrap();
    let effect = asynq.wait_for(1, SOON).await.unwrap().remove(0);
    assert_eq!(effect.id, id.to_string());
    assert_eq!(
        (&effect.all["retried"], &effect.all["max_retry"]),
        (&json!(1), &json!(25))
    );
}
