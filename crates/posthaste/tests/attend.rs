//! A consumer's background task, beside the claims of its worker.

use futures_util::future::BoxFuture;
use posthaste::consumer::{Consumer, ConsumerContext, Delivery};
use posthaste_testkit::PgVersion;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

use crate::support::{SOON, database, worker};

#[derive(Debug, PartialEq)]
enum Seen {
    /// The id of the task's worker, and its queue.
    Is(i64, String),
    /// The consumer was notified that its worker is lost.
    Lost,
    /// The end, and whether the worker was still registered then.
    Ends(bool),
}

struct Watching(UnboundedSender<Seen>);

impl Consumer for Watching {
    fn capacity(&self) -> usize {
        0
    }
    fn consume(&self, _claim: Vec<Delivery>) {}
    fn give_back(&self) {}
    fn abort(&self) {}
    fn worker_lost(&self) {
        let _ = self.0.send(Seen::Lost);
    }
    fn background_task(&self, worker: ConsumerContext) -> Option<BoxFuture<'static, ()>> {
        let seen = self.0.clone();
        Some(Box::pin(async move {
            let worker = worker.with_connection();
            for round in 0..2 {
                let id = worker.worker().await.unwrap();
                seen.send(Seen::Is(id, worker.queue().to_owned())).unwrap();
                if round == 0 {
                    worker.changed(Some(id)).await;
                }
            }
            worker.ended().await;
            let lives = "SELECT stopped_at IS NULL FROM posthaste.worker WHERE id = $1";
            let id = worker.worker().await.unwrap();
            let lives = worker.fetch("cannot read", lives, &[&id]).await;
            seen.send(Seen::Ends(lives.unwrap()[0].get(0))).unwrap();
        }))
    }
}

async fn next(seen: &mut UnboundedReceiver<Seen>) -> Seen {
    timeout(SOON, seen.recv()).await.unwrap().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_tasks_see_a_replaced_worker_and_end_before_sign_off() {
    let db = database(PgVersion::any()).await;
    let client = db.client().await.unwrap();
    let (sender, mut seen) = unbounded_channel();
    let worker = worker(&db.pool(2).unwrap()).consumer("mine", Watching(sender));
    let worker = worker.start().await.unwrap();
    let Seen::Is(first, queue) = next(&mut seen).await else {
        panic!("no worker");
    };
    assert_eq!(queue, "mine");
    let declare_dead = "UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE id = $1";
    client.execute(declare_dead, &[&first]).await.unwrap();
    assert_eq!(next(&mut seen).await, Seen::Lost);
    let Seen::Is(second, _) = next(&mut seen).await else {
        panic!("no other worker");
    };
    assert_ne!(second, first);
    worker.stop().await.unwrap();
    assert_eq!(next(&mut seen).await, Seen::Ends(true));
}
