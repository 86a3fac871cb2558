//! A key of another type in place of a receiver's queue in Redis.

use std::sync::Arc;

use posthaste_relay::{Destination, Mapping, Template};
use posthaste_testkit::receivers::Redis;
use posthaste_testkit::{Sql as _, eventually};

use super::conformance::Subject;
use super::redis::{ProxiedRedis, Route};
use crate::support::{SOON, unfinished};

/// Messages for it wait, count attempts, and arrive when the key is gone.
pub(super) async fn a_key_of_the_wrong_type_loses_nothing<S: Subject>(
    subject: &S,
    redis: &Redis,
    key: &str,
) {
    redis.ask(&["SET", key, "wrong type"]).unwrap();
    let route = Route::to(subject.destination().await).await;
    let id = route.enqueue("mail", "{}", "").await;
    eventually(SOON, "the error is reported", async || {
        let error = route.relay.status().last_error.unwrap_or_default();
        Ok(error.contains("WRONGTYPE") && route.relay.status().retried > 1)
    })
    .await
    .unwrap();
    assert_eq!(route.relay.status().down_since, None);
    redis.ask(&["DEL", key]).unwrap();
    route.all_done().await;
    let received = subject.received().await;
    let ids: Vec<&str> = received.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, [id]);
    route.stop().await;
}

/// In a batch to several queues, messages for the others arrive, once.
pub(super) async fn a_conflicting_queue_spares_the_rest_of_its_batch(
    destination: Arc<dyn Destination>,
    proxied: &ProxiedRedis,
    prefix: &str,
) {
    let bad = format!("{prefix}bad");
    proxied.redis.ask(&["SET", &bad, "wrong type"]).unwrap();
    let queue = Template::parse("{kwargs.to}").unwrap();
    let route = Route::with(destination, Mapping::default().queue(queue)).await;
    let enqueue = "SELECT posthaste.enqueue('mail', jsonb_build_object('to', t), queue => 'm') \
                   FROM unnest('{good,bad,fine}'::text[]) t";
    route.client.run(enqueue).await.unwrap();
    eventually(SOON, "the error is reported", async || {
        let status = route.relay.status();
        let error = status.last_error.unwrap_or_default();
        Ok(error.contains("WRONGTYPE") && status.retried > 1 && status.accepted == 2)
    })
    .await
    .unwrap();
    let there = || ["good", "fine"].map(|queue| proxied.list(&format!("{prefix}{queue}")).len());
    assert_eq!((there(), unfinished(&route.client).await), ([1, 1], 1));
    proxied.redis.ask(&["DEL", &bad]).unwrap();
    route.all_done().await;
    assert_eq!((there(), proxied.list(&bad).len()), ([1, 1], 1));
    route.stop().await;
}
