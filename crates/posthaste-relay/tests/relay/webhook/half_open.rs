//! A receiver that accepts nothing for a while: messages wait, and one at a time is tried.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use posthaste_testkit::Sql as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// Returns the attempts of all jobs together.
async fn attempts(setup: &Setup) -> i64 {
    let counted = "SELECT coalesce(sum(attempt), 0)::bigint FROM posthaste.job";
    setup.client.one(counted).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_wait_without_attempts_during_backpressure() {
    let setup = Setup::new().await;
    let (relay, worker) = setup.work(Relay::to(webhook(&setup.url("hook")))).await;
    for status in [401, 404, 302, 503] {
        setup
            .server
            .answers(Some(StatusCode::from_u16(status).unwrap()));
        let enqueue = "SELECT count(posthaste.enqueue('m', '{}', queue => 'h')) \
                       FROM generate_series(1, 400)";
        setup.client.run(enqueue).await.unwrap();
        let asked = |times| {
            let server = &setup.server;
            async move || Ok(server.refused() >= times)
        };
        eventually(SOON, "it is asked", asked(1)).await.unwrap();
        // The messages in flight, and then one at a time.
        let begun = 2 * 50 * 4;
        let (before, since) = (setup.server.refused(), std::time::Instant::now());
        eventually(SOON, "it is tried again", asked(before + 4))
            .await
            .unwrap();
        assert!(setup.server.refused() < begun, "{status}");
        assert!(
            since.elapsed() > Duration::from_millis(50) || before < begun,
            "{status}"
        );
        assert_eq!(attempts(&setup).await, 0, "{status}");
        assert_eq!(unfinished(&setup.client).await, 400);
        assert!(relay.status().failing_since.is_some());
        setup.server.answers(None);
        all_done(&setup.client).await;
        assert_eq!(relay.status().failing_since, None);
    }
    worker.stop().await.unwrap();
    let failed = "SELECT count(*) FROM posthaste.attempt";
    let failed: i64 = setup.client.one(failed).await.unwrap();
    assert_eq!(failed, 0);
}

/// A receiver that closes the connection of every request except POST, as nginx does with `return
/// 444`.
struct NoHead {
    address: String,
    /// Closes the connection of a POST too.
    closes: Arc<AtomicBool>,
    heads: Arc<AtomicUsize>,
}

impl NoHead {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}/", listener.local_addr().unwrap());
        let (closes, heads) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let (does, counted) = (Arc::clone(&closes), Arc::clone(&heads));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (does, counted) = (Arc::clone(&does), Arc::clone(&counted));
                tokio::spawn(async move { serve(stream, &does, &counted).await });
            }
        });
        Self {
            address,
            closes,
            heads,
        }
    }
}

/// Answers one request, or closes the connection.
async fn serve(
    mut stream: TcpStream,
    closes: &AtomicBool,
    heads: &AtomicUsize,
) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.ends_with(b"{}") && !request.starts_with(b"HEAD") {
        if stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    if request.starts_with(b"HEAD") {
        heads.fetch_add(1, Ordering::SeqCst);
        return Ok(());
    }
    if !closes.load(Ordering::SeqCst) {
        let answer = b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n";
        stream.write_all(answer).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn receivers_that_reject_head_recover_after_a_lost_answer() {
    let setup = Setup::new().await;
    let receiver = NoHead::start().await;
    let (relay, worker) = setup.work(Relay::to(webhook(&receiver.address))).await;
    for _ in 0..3 {
        setup.enqueue("m", &json!({})).await;
    }
    let lost = async || {
        let asked = receiver.heads.load(Ordering::SeqCst) > 0;
        Ok(asked && relay.status().down_since.is_some())
    };
    eventually(SOON, "its answers are lost", lost)
        .await
        .unwrap();
    assert_eq!(attempts(&setup).await, 0);
    receiver.closes.store(false, Ordering::SeqCst);
    all_done(&setup.client).await;
    let is_up = async || Ok(relay.status().down_since.is_none());
    eventually(SOON, "it is up", is_up).await.unwrap();
    worker.stop().await.unwrap();
}
