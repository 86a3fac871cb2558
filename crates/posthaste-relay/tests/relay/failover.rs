//! Redis servers that accept nothing for now, or are no longer the primary.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use posthaste_relay::{Ack, Relay};
use posthaste_testkit::receivers::{Receiver, Redis, are_here};
use posthaste_testkit::{Sql as _, TestResult, eventually};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};

use super::redis::{KEEPS, Route, all};
use super::setup;
use crate::support::{SOON, all_done, number};

const COUNTED: &str = "SELECT coalesce(sum(attempt), 0)::bigint FROM posthaste.job";

/// A stable address: each new connection leads to the server that is current then.
struct Stable {
    address: SocketAddr,
    port: Arc<AtomicU16>,
}

impl Stable {
    async fn before(redis: &Redis) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stable = Self {
            address: listener.local_addr().unwrap(),
            port: Arc::new(AtomicU16::new(redis.port())),
        };
        let port = Arc::clone(&stable.port);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                let to = ("127.0.0.1", port.load(Ordering::SeqCst));
                tokio::spawn(async move {
                    let mut server = TcpStream::connect(to).await?;
                    copy_bidirectional(&mut client, &mut server).await
                });
            }
        });
        stable
    }

    fn url(&self) -> String {
        format!("redis://{}/0", self.address)
    }

    fn turn_to(&self, redis: &Redis) {
        self.port.store(redis.port(), Ordering::SeqCst);
    }
}

async fn until_it_says(route: &Route, code: &str) {
    let says = async || {
        let error = route.relay.status().last_error.unwrap_or_default();
        Ok(error.contains(code))
    };
    eventually(SOON, code, says).await.unwrap();
    assert_eq!(number(&route.client, COUNTED).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failover_reconnects_to_the_new_master() {
    let test = "failover_reconnects_to_the_new_master";
    if !are_here(test, &[Receiver::Redis]) {
        return;
    }
    let servers = [Redis::start(KEEPS).unwrap(), Redis::start(KEEPS).unwrap()];
    let stable = Stable::before(&servers[0]).await;
    for (n, destination) in all(&stable.url()).into_iter().enumerate() {
        let (old, new) = (&servers[n % 2], &servers[1 - n % 2]);
        let route = Route::to(destination).await;
        route.enqueue("mail", "{}", "").await;
        route.all_done().await;
        let new_port = new.port().to_string();
        old.ask(&["REPLICAOF", "127.0.0.1", &new_port]).unwrap();
        route.enqueue("mail", "{}", "").await;
        until_it_says(&route, "READONLY").await;
        new.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
        stable.turn_to(new);
        route.all_done().await;
        assert_eq!(route.relay.status().retried, 0);
        assert!(new.ask(&["DBSIZE"]).unwrap().as_i64() > Some(0));
        route.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_answers_probes_but_no_batch_counts_no_attempt() -> TestResult {
    let test = "a_redis_that_answers_probes_but_no_batch_counts_no_attempt";
    if !are_here(test, &[Receiver::Redis]) {
        return Ok(());
    }
    let redis = Redis::start(KEEPS).unwrap();
    for destination in all(&redis.url()) {
        let setup = setup().await;
        // Leaves room for some of them.
        let used = redis.ask(&["INFO", "memory"]).unwrap();
        let used = used.as_str().unwrap().lines();
        let used = used
            .clone()
            .find_map(|line| line.strip_prefix("used_memory:"));
        let most: u64 = used.unwrap().trim().parse::<u64>()? + 2_000_000;
        redis
            .ask(&["CONFIG", "SET", "maxmemory", &most.to_string()])
            .unwrap();
        let enqueue =
            "SELECT posthaste.enqueue('m', jsonb_build_object('text', repeat('x', 20000)),
            queue => 'mail') FROM generate_series(1, 200)";
        setup.client.run(enqueue).await?;
        let relay = Relay::to_any(destination).batch(50).start().await?;
        let worker = setup.consumer(relay.clone()).await;
        let refused = async || {
            let status = relay.status();
            let error = status.last_error.unwrap_or_default();
            Ok(error.contains("OOM") && status.unavailable > 400)
        };
        eventually(SOON, "it refuses some again and again", refused).await?;
        assert_eq!(number(&setup.client, COUNTED).await, 0);
        assert!(relay.status().failing_since.is_some());
        redis.ask(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        all_done(&setup.client).await;
        let status = relay.status();
        assert_eq!((status.retried, status.failing_since), (0, None));
        worker.stop().await?;
        redis.ask(&["FLUSHALL"]).unwrap();
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_backpressure_counts_no_attempt() {
    let test = "redis_backpressure_counts_no_attempt";
    if !are_here(test, &[Receiver::Redis]) {
        return;
    }
    let redis = Redis::start(KEEPS).unwrap();
    let set = |name: &str, value: &str| redis.ask(&["CONFIG", "SET", name, value]).unwrap();
    for destination in all(&redis.url()) {
        let route = Route::to(destination).await;
        set("min-replicas-to-write", "1");
        route.enqueue("mail", "{}", "").await;
        until_it_says(&route, "NOREPLICAS").await;
        set("min-replicas-to-write", "0");
        route.all_done().await;
        // Otherwise the first error would be that it is read-only.
        set("replica-read-only", "no");
        set("replica-serve-stale-data", "no");
        redis.ask(&["REPLICAOF", "127.0.0.1", "1"]).unwrap();
        route.enqueue("mail", "{}", "").await;
        until_it_says(&route, "MASTERDOWN").await;
        redis.ask(&["REPLICAOF", "NO", "ONE"]).unwrap();
        route.all_done().await;
        assert_eq!(route.relay.status().retried, 0);
        route.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_cluster_nodes_are_refused_at_start() {
    let test = "redis_cluster_nodes_are_refused_at_start";
    if !are_here(test, &[Receiver::Redis]) {
        return;
    }
    let redis = Redis::start(&[KEEPS[0], ("cluster-enabled", "yes")]).unwrap();
    let lease = SOON;
    for destination in all(&redis.url()) {
        for ack in [Ack::Accepted, Ack::Confirmed { lease }] {
            let relay = Relay::to_any(Arc::clone(&destination)).ack(ack);
            let refused = relay.start().await.err().unwrap().to_string();
            assert!(refused.contains(": cluster-enabled: "), "{refused}");
        }
        let relay = Relay::to_any(destination).wait_if_misconfigured();
        let relay = relay.start().await.unwrap();
        assert!(
            relay
                .misconfiguration()
                .unwrap()
                .contains(": cluster-enabled: ")
        );
        assert!(relay.status().down_since.is_some());
    }
}
