//! Drains take turns: one relay of a queue sends at a time, over all processes, and what it had comes first when it is gone.

use std::time::Duration;

use posthaste::relay::{Mode, RelayState, relays};
use posthaste_testkit::eventually;

use super::told::Told;
use super::{enqueue, setup};
use crate::support::{SOON, all_done, number};

fn names(from: usize, to: usize) -> Vec<String> {
    (from..to).map(|n| format!("m{n:03}")).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_that_stops_sends_what_it_has_and_the_next_takes_over_at_once() {
    let setup = setup().await;
    let client = &setup.client;
    let (first, second) = (Told::default(), Told::default());
    // Slow enough to be stopped in the midst of them.
    let limit = "SELECT posthaste.limit_rate('mail', 500, burst => 20)";
    client.batch_execute(limit).await.unwrap();
    let one = setup.relay(first.relay().mode(Mode::Drain).batch(3)).await;
    let all = names(0, 300);
    enqueue(client, &all.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let some = async || Ok(first.taken().len() > 30);
    eventually(SOON, "some are sent", some).await.unwrap();
    let two = setup.relay(second.relay().mode(Mode::Drain).batch(3)).await;
    let waits = async || {
        let relays = relays(client).await?;
        Ok(relays.iter().any(|one| one.state == RelayState::Standby))
    };
    eventually(SOON, "the second waits", waits).await.unwrap();
    assert_eq!(second.taken().len(), 0);
    one.stop().await.unwrap();
    let before = first.taken().len();
    all_done(client).await;
    assert!((31..300).contains(&before), "{before}");
    assert_eq!([first.taken(), second.taken()].concat(), all);
    two.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_is_kept_by_changing_one_row_and_asked_for_by_its_queue() {
    let setup = setup().await;
    let client = &setup.client;
    let told = Told::default();
    let worker = setup.relay(told.relay().mode(Mode::Drain)).await;
    let held = async || {
        let held = "SELECT count(*) FROM posthaste.drain WHERE queue = 'mail' AND until > clock_timestamp()";
        Ok(number(client, held).await == 1)
    };
    eventually(SOON, "it is held", held).await.unwrap();
    let until = "SELECT extract(epoch FROM until)::bigint * 1000 FROM posthaste.drain";
    let first = number(client, until).await;
    let renewed = async || Ok(number(client, until).await > first);
    eventually(SOON, "it is renewed", renewed).await.unwrap();
    // Somebody else's, who lives: nothing is sent while that is so.
    let stranger = "UPDATE posthaste.drain SET until = clock_timestamp() + interval '1 hour', worker = (SELECT w.id FROM other w)";
    let other = "CREATE TABLE other AS SELECT 0::bigint AS id; WITH w AS (INSERT INTO posthaste.worker (name) VALUES ('other') RETURNING id) UPDATE other SET id = w.id FROM w";
    client.batch_execute(other).await.unwrap();
    client.batch_execute(stranger).await.unwrap();
    let waits = async || {
        let relays = relays(client).await?;
        Ok(relays[0].state == RelayState::Standby)
    };
    eventually(SOON, "it is lost", waits).await.unwrap();
    enqueue(client, &["a", "b"]).await;
    // A look or two of the relay at its queue.
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(told.taken().len(), 0);
    // That one ends in good order: its lease does not matter any more.
    let ends = "UPDATE posthaste.worker SET stopped_at = clock_timestamp(), clean = true WHERE name = 'other'";
    client.batch_execute(ends).await.unwrap();
    all_done(client).await;
    assert_eq!(told.taken(), ["a", "b"]);
    worker.stop().await.unwrap();
}
