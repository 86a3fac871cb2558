//! An effect that happens once, in a real worker whose queue drops no duplicates: it calls
//! `posthaste.receive` in the effect's transaction.

use std::sync::Arc;
use std::time::Duration;

use posthaste_relay::{Ack, Celery, Relay};
use posthaste_testkit::Sql as _;
use posthaste_testkit::receivers::{Receiver, Redis, Worker, are_here};

use super::redis::{Again, KEEPS};
use super::{enqueue, setup};
use crate::support::{SOON, all_done};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_celery_task_applies_and_confirms_its_effect_once() {
    let test = "a_duplicate_celery_task_applies_and_confirms_its_effect_once";
    if !are_here(test, &[Receiver::Redis, Receiver::Celery]) {
        return;
    }
    let setup = setup().await;
    let (client, redis) = (&setup.client, Redis::start(KEEPS).unwrap());
    let table = "CREATE TABLE effect (delivery_id uuid)";
    client.run(table).await.unwrap();
    let celery = Worker::celery_once(&redis.url(), &["mail"], setup.db.url()).unwrap();
    let celery = Arc::new(celery);
    let destination = Celery::redis(&redis.url()).unwrap().queue("mail");
    let have_run = {
        let celery = Arc::clone(&celery);
        move |count| celery.effects().unwrap().len() >= count
    };
    // Longer than the test: only the receiver's confirmation ends the job.
    let lease = Duration::from_secs(3600);
    let relay = Relay::to_any(Again::new(destination, have_run));
    let relay = relay.ack(Ack::Confirmed { lease });
    enqueue(client, &["mail.send"]).await;
    let worker = setup.relay(relay).await;
    let arrivals = celery.wait_for(2, SOON).await.unwrap();
    assert_eq!(arrivals[0].id, arrivals[1].id);
    all_done(client).await;
    let effects = "SELECT array_agg(delivery_id::text) FROM effect";
    let effects: Vec<String> = client.one(effects).await.unwrap();
    assert_eq!(effects, [arrivals[0].id.clone()]);
    worker.stop().await.unwrap();
}
