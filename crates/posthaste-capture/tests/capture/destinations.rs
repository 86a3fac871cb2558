//! Destinations of a direct capture that are down or hard to reach.

use posthaste_capture::State;
use posthaste_testkit::{Proxy, eventually};
use serde_json::json;

use super::direct::{Sent, direct, until};
use super::world::SOON;

#[tokio::test]
async fn servers_shut_down_cleanly_while_the_destination_is_dead() {
    // The second count exceeds the events that the capture reads before it has sent some.
    for count in [10, 3_000] {
        let mut sent = Sent::new(|direct| direct.spill_after_time = None).await;
        let running = sent.start();
        sent.insert("a", 10).await;
        sent.until_arrived(10).await;
        sent.redis.kill9().unwrap();
        sent.insert("b", count).await;
        let is_known = async || Ok(running.status().last_error.is_some());
        eventually(SOON, "it takes nothing", is_known)
            .await
            .unwrap();
        sent.world.server.stop_fast().unwrap();
        sent.world.server.restart().unwrap();
        sent.redis.restart().unwrap();
        sent.world.reconnect().await;
        sent.require_all().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn broken_links_keep_every_event_in_order() {
    let mut sent = Sent::new(|_| ()).await;
    let target = ([127, 0, 0, 1], sent.redis.port()).into();
    let proxy = Proxy::start_raw(target).await.unwrap();
    let mut through = direct(proxy.address().port(), &json!({ "time_limit": "1s" }));
    through.spill_after_time = None;
    sent.capture.direct = Some(through);
    let running = sent.start();
    until(&running, State::Direct).await;
    let mut count = 0;
    for round in 0..3 {
        for fault in ["reset", "cut", "half open", "mute"] {
            sent.insert(&format!("{fault}{round}"), 700).await;
            match fault {
                "reset" => proxy.reset(),
                "cut" => proxy.cut().await,
                "half open" => proxy.half_open(),
                _ => proxy.mute(),
            }
            sent.insert(&format!("within {fault}{round}"), 20).await;
            count += 720;
            if fault != "reset" {
                let is_known = async || Ok(running.status().last_error.is_some());
                eventually(SOON, "it takes nothing", is_known)
                    .await
                    .unwrap();
                proxy.restore().await.unwrap();
                proxy.reset();
            }
            sent.until_arrived(count).await;
        }
    }
    sent.require_all().await;
    let repeats = sent.arrived().len() - count;
    assert!(repeats > 0, "answers were lost");
    assert_eq!(running.status().spilled, 0);
}
