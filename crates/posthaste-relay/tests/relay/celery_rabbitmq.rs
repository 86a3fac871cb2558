//! Celery over RabbitMQ: the suite, and a real Celery that runs the tasks.

use std::sync::Arc;
use std::time::Duration;

use posthaste::NewJob;
use posthaste_relay::{Celery, Destination, Relay};
use posthaste_testkit::receivers::{Receiver, Worker, are_here};
use posthaste_testkit::{PgVersion, Proxy, Sql as _, TestResult, unique};
use serde_json::{Value, json};

use super::conformance::{Received, Subject, conformance};
use super::rabbitmq::{Hands, behind_a_proxy, no_room, shared, too_large};
use crate::support::{SOON, all_done, connected, worker};

struct Tasks {
    hands: Hands,
    queue: String,
    proxy: Proxy,
    url: String,
    seen: tokio::sync::Mutex<Vec<Received>>,
}

impl Subject for Tasks {
    const DEDUPLICATES: bool = false;
    const LARGEST: usize = (1 << 20) - 1000;

    async fn start() -> Option<Self> {
        if !are_here("celery on rabbitmq", &[Receiver::RabbitMq]) {
            return None;
        }
        let hands = Hands::on(shared()).await;
        let queue = unique("celery");
        hands.queue(&queue, &[]).await;
        let (proxy, url) = behind_a_proxy().await;
        Some(Self {
            hands,
            queue,
            proxy,
            url,
            seen: tokio::sync::Mutex::default(),
        })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let celery = Celery::rabbitmq(&self.url).unwrap();
        Arc::new(celery.queue(&self.queue))
    }

    fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    async fn received(&self) -> Vec<Received> {
        let mut seen = self.seen.lock().await;
        while let Some(message) = self.hands.take(&self.queue).await {
            let id = message.properties.correlation_id().clone();
            let mut body: Value = serde_json::from_slice(&message.data).unwrap();
            assert_eq!(body[0], json!([]));
            seen.push(Received {
                id: id.unwrap().to_string(),
                payload: body[1].take(),
            });
        }
        seen.clone()
    }

    fn unacceptable(&self) -> Option<NewJob> {
        Some(too_large())
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        // The queue is empty before and after.
        self.hands.delete(&self.queue).await;
        let full = no_room();
        let arguments = if refuse { &full[..] } else { &[] };
        self.hands.queue(&self.queue, arguments).await;
        true
    }
}

conformance!(Tasks, and:
    a_permanently_rejected_message_does_not_affect_others,
    temporary_rejections_lose_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_celery_on_rabbitmq_runs_each_task() -> TestResult {
    let test = "a_real_celery_on_rabbitmq_runs_each_task";
    if !are_here(test, &[Receiver::RabbitMq, Receiver::Celery]) {
        return Ok(());
    }
    let queue = unique("tasks");
    let celery = Worker::celery(shared(), &[&queue]).unwrap();
    let (db, client) = connected(PgVersion::any()).await?;
    let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let list = r#"{"args": [1, "ü", 18446744073709551616]}"#;
    let named = json!({ "to": "ada" }).to_string();
    let enqueue = "SELECT posthaste.delivery_id(posthaste.enqueue('mail.send', $1::text::jsonb, \
                   queue => 'm', trace => $2))::text";
    let mut ids = Vec::new();
    for kwargs in [list, &named] {
        let row = client
            .one_with::<String>(enqueue, &[&kwargs, &parent])
            .await?;
        ids.push(row);
    }
    let destination = Celery::rabbitmq(shared()).unwrap();
    let destination = destination
        .queue(&queue)
        .expires()
        .time_limit(Duration::from_secs(60));
    let relay = Relay::to(destination).start().await?;
    let worker = worker(&db.pool(2)?).consumer("m", relay);
    let worker = worker.start().await?;
    all_done(&client).await;
    let effects = celery.wait_for(2, SOON).await?;
    let of = |id: &String| &effects.iter().find(|effect| effect.id == *id).unwrap().all;
    let (list, named) = (of(&ids[0]), of(&ids[1]));
    assert_eq!(list["name"], "mail.send");
    let big: Value = serde_json::from_str(r#"[1, "ü", 18446744073709551616]"#)?;
    assert_eq!((&list["args"], &list["kwargs"]), (&big, &json!({})));
    assert_eq!(named["args"], json!([]));
    assert_eq!(named["kwargs"], json!({ "to": "ada" }));
    assert_eq!(named["headers"]["traceparent"], parent);
    assert_eq!(named["root_id"], ids[1].as_str());
    assert_eq!(named["queue"], queue.as_str());
    worker.stop().await?;
    Ok(())
}
