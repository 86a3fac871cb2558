//! A server that accepts connections and sends nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use posthaste_relay::{Destination, RabbitMq};
use posthaste_testkit::eventually;

use crate::support::SOON;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_server_times_out_and_is_disconnected() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("amqp://{}/mail", listener.local_addr().unwrap());
    let open = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&open);
    tokio::spawn(async move {
        while let Ok((mut socket, _)) = listener.accept().await {
            let open = Arc::clone(&counted);
            open.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let _ = tokio::io::copy(&mut socket, &mut tokio::io::sink()).await;
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let destination = RabbitMq::new(&url).unwrap();
    let silent = destination.probe().await.unwrap_err();
    assert!(silent.contains("no connection within 5 s"), "{silent}");
    // An attempt that is cancelled sooner leaks nothing either.
    let brief = std::time::Duration::from_millis(200);
    for _ in 0..5 {
        assert!(
            tokio::time::timeout(brief, destination.probe())
                .await
                .is_err()
        );
    }
    let closed = async || Ok(open.load(Ordering::SeqCst) == 0);
    eventually(SOON, "all are closed", closed).await.unwrap();
}
