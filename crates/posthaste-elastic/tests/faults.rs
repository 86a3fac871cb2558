//! Faults of the fake, as the client sees them and as the fake's state shows them.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use posthaste_elastic::{
    Client, Condition, Document, Effect, Error, ErrorKind, Operation, Reading, Request, Source,
};
use posthaste_testkit::elastic::{FakeElastic, Fault, Faults};
use serde_json::json;

use crate::support::{client, fake, kind, put};

fn version(fake: &FakeElastic, id: &str) -> Option<i64> {
    Some(fake.document("notes", id)?.version)
}

async fn read(client: &Client, id: &str) -> Option<Document> {
    client.get("notes", id).await.unwrap()
}

#[tokio::test]
async fn each_fault_reports_and_acts_differently() {
    let (fake, client) = fake(1).await;
    for (fault, result, done) in [
        (Fault::LostBefore, Some(ErrorKind::Unanswered), false),
        (Fault::LostAfter, Some(ErrorKind::Unanswered), true),
        (Fault::TooMany, Some(ErrorKind::TooMany), false),
        (
            Fault::UnavailableBefore,
            Some(ErrorKind::Unavailable),
            false,
        ),
        (Fault::UnavailableAfter, Some(ErrorKind::Unavailable), true),
        (Fault::Lie, None, false),
    ] {
        let id = format!("{fault:?}");
        fake.next([fault]);
        let outcome = client.write(&put("notes", &id, 1)).await;
        let error = outcome.err();
        assert_eq!(error.as_ref().map(Error::kind), result, "{fault:?}");
        assert_eq!(version(&fake, &id).is_some(), done, "{fault:?}");
        // The client never excludes a write that was executed.
        assert!(!done || error.is_some_and(|error| error.may_have_been_done()));
    }
    assert_eq!(read(&client, "none").await.map(|one| one.version), None);
}

#[tokio::test]
async fn late_faults_fail_the_call_and_apply_the_write_later() {
    let (fake, client) = fake(2).await;
    fake.next([Fault::Late]);
    let outcome = client.write(&put("notes", "a", 1)).await;
    assert!(outcome.unwrap_err().may_have_been_done());
    assert_eq!(version(&fake, "a"), None);
    let mut asked = 0;
    while version(&fake, "a").is_none() {
        client.write(&put("notes", "other", asked)).await.unwrap();
        asked += 1;
        assert!(asked <= 20, "it never came");
    }
    fake.next([Fault::Late]);
    let late = put("notes", "a", 2).when(Condition::Newer(9));
    client.write(&late).await.unwrap_err();
    let newer = put("notes", "a", 3).when(Condition::Newer(10));
    client.write(&newer).await.unwrap();
    fake.settle();
    assert_eq!(version(&fake, "a"), Some(10), "it came too late");
}

#[tokio::test]
async fn unanswered_requests_time_out() {
    let (fake, _) = fake(3).await;
    let client = client(&fake.url()).time_limit(Duration::from_millis(50));
    fake.keeps_silent(true);
    fake.next([Fault::LostAfter]);
    let error = client.write(&put("notes", "a", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    assert_eq!(version(&fake, "a"), Some(1));
}

#[tokio::test]
async fn bulk_writes_fail_individually() {
    let (fake, client) = fake(4).await;
    fake.faults(Faults {
        partial: 0.3,
        ..Faults::default()
    });
    let ids: Vec<String> = (0..100).map(|n| n.to_string()).collect();
    let all: Vec<Operation> = ids.iter().map(|id| put("notes", id, 1)).collect();
    let outcomes = client.bulk(&all).await.unwrap();
    let mut refused = 0;
    for (id, outcome) in ids.iter().zip(&outcomes) {
        assert_eq!(version(&fake, id).is_some(), outcome.is_ok(), "{id}");
        if let Err(refusal) = outcome {
            refused += 1;
            let passes = [ErrorKind::TooMany, ErrorKind::Unavailable];
            assert!(passes.contains(&refusal.kind), "{refusal:?}");
        }
    }
    assert!((10..60).contains(&refused), "{refused}");
}

#[tokio::test]
async fn stale_reads_show_old_values_and_searches_refreshed_ones() {
    let (fake, client) = fake(5).await;
    let quiet = json!({"settings": {"refresh_interval": "-1"}});
    client.create_index("notes", &quiet).await.unwrap();
    for n in 1..=3 {
        client.write(&put("notes", "a", n)).await.unwrap();
    }
    fake.faults(Faults {
        stale: 1.0,
        ..Faults::default()
    });
    for _ in 0..20 {
        let shown = read(&client, "a").await;
        assert!(shown.is_none_or(|one| one.version < 3));
    }
    fake.settle();
    assert_eq!(read(&client, "a").await.unwrap().version, 3);
    let searchable = async || {
        let read = client
            .multi_get("notes", &["a"], Reading::Searchable, Source::None)
            .await;
        let document = read.unwrap().remove(0).unwrap();
        document.map(|document| document.version)
    };
    assert_eq!(searchable().await, None);
    client.refresh("notes").await.unwrap();
    assert_eq!(searchable().await, Some(3));
}

#[tokio::test]
async fn writes_of_an_isolated_primary_may_survive_or_be_lost() {
    let (mut kept, mut gone) = (0, 0);
    for seed in 0..20 {
        let (fake, client) = fake(seed).await;
        let before = client.write(&put("notes", "a", 1)).await.unwrap();
        fake.faults(Faults {
            dirty: 1.0,
            ..Faults::default()
        });
        let outcome = client.write(&put("notes", "a", 2)).await;
        assert_eq!(kind(outcome), ErrorKind::Unanswered);
        let dirty = read(&client, "a").await.unwrap();
        if dirty.version == 1 {
            // The primary was back before the next request.
            continue;
        }
        fake.settle();
        let after = read(&client, "a").await.unwrap();
        match after.version {
            2 => kept += 1,
            _ => {
                gone += 1;
                assert_eq!(after.seen, before.seen);
                // The new primary assigns the same sequence number to another write, under another
                // term.
                let other = client.write(&put("notes", "a", 3)).await.unwrap();
                assert_eq!(other.seen.seq_no, dirty.seen.seq_no);
                assert!(other.seen.primary_term > dirty.seen.primary_term);
                let late = put("notes", "a", 4).when(Condition::Unchanged(dirty.seen));
                assert_eq!(kind(client.write(&late).await), ErrorKind::Conflict);
            }
        }
    }
    assert!(kept > 2 && gone > 2, "kept {kept}, gone {gone}");
}

#[tokio::test]
async fn writes_resume_after_a_full_disk() {
    let (fake, client) = fake(6).await;
    client.write(&put("notes", "a", 1)).await.unwrap();
    fake.faults(Faults {
        read_only: 1.0,
        ..Faults::default()
    });
    let outcome = client.write(&put("notes", "a", 2)).await;
    assert_eq!(kind(outcome), ErrorKind::Blocked);
    fake.faults(Faults::default());
    let mut asked = 0;
    while client.write(&put("notes", "a", 2)).await.is_err() {
        asked += 1;
        assert!(asked <= 20, "it never passed");
    }
    assert_eq!(version(&fake, "a"), Some(2));
}

#[tokio::test]
async fn failures_are_reproducible_by_seed() {
    let story = async |seed| {
        let (fake, client) = fake(seed).await;
        fake.faults(Faults {
            lies: 0.05,
            ..Faults::without_lies(0.1)
        });
        let mut result = String::new();
        for n in 0..200_i64 {
            let id = (n % 5).to_string();
            let outcome = client.write(&put("notes", &id, n)).await;
            let outcome = outcome.map(|written| written.seen).map_err(|e| e.kind());
            let shown = client.get("notes", &id).await.map_err(|e| e.kind());
            let shown = shown.map(|shown| shown.map(|one| one.seen));
            result.push_str(&format!("{outcome:?} {shown:?}\n"));
        }
        fake.settle();
        result + &format!("{:?}", fake.documents("notes"))
    };
    let first = story(8).await;
    assert_eq!(story(8).await, first);
    assert_ne!(story(9).await, first);
    for kind in ["Unanswered", "Unavailable", "TooMany", "Blocked", "Ok(Seen"] {
        assert!(first.contains(kind), "{kind} was not met");
    }
}

#[tokio::test]
async fn points_in_time_end_with_the_node_that_held_them() {
    let (fake, client) = fake(10).await;
    let before = client.write(&put("notes", "a", 1)).await.unwrap();
    let minute = Duration::from_secs(60);
    let mut moment = client.open_point_in_time("notes", minute).await.unwrap();
    let all = json!({}).as_object().unwrap().clone();
    client.search_at(&mut moment, all.clone()).await.unwrap();
    fake.fail_over();
    let outcome = client.search_at(&mut moment, all).await;
    assert_eq!(kind(outcome), ErrorKind::Missing);
    let after = client.write(&put("notes", "a", 2)).await.unwrap();
    assert_eq!(after.effect, Effect::Updated);
    assert!(after.seen.primary_term > before.seen.primary_term);
}

#[tokio::test]
async fn unauthenticated_requests_are_denied() {
    let (fake, client) = fake(12).await;
    fake.demand_authorization("ApiKey a2V5");
    let error = client.info().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error.may_pass() && !error.may_have_been_done());
    client
        .clone()
        .api_key("a2V5")
        .unwrap()
        .info()
        .await
        .unwrap();
    fake.demand_authorization("Basic bWU6c2VjcmV0");
    client
        .basic_auth("me", "secret")
        .unwrap()
        .info()
        .await
        .unwrap();
    let url = fake.url().replace("http://", "http://me:secret@");
    crate::support::client(&url).info().await.unwrap();
}

#[tokio::test]
async fn requests_above_the_limit_of_the_fake_are_refused_as_a_whole() {
    let (fake, client) = fake(13).await;
    fake.largest_request(1_000);
    let large = json!({"text": "x".repeat(2_000)});
    let both = [
        put("notes", "a", 1),
        Operation::index("notes", "b", &large).unwrap(),
    ];
    assert_eq!(kind(client.bulk(&both).await), ErrorKind::TooLarge);
    assert_eq!(version(&fake, "a"), None);
    assert_eq!(fake.document("notes", "b"), None);
}

#[tokio::test]
async fn the_fake_can_delete_a_document_directly() {
    let (fake, client) = fake(14).await;
    client.write(&put("notes", "a", 1)).await.unwrap();
    fake.remove_without_trace("notes", "a");
    assert!(read(&client, "a").await.is_none());
    assert_eq!(fake.document("notes", "a"), None);
}

#[tokio::test]
async fn runs_without_a_connection_are_deterministic() {
    let story = async |seed| {
        let fake = Arc::new(FakeElastic::new(seed));
        fake.faults(Faults::without_lies(0.1));
        let carrying = fake.clone();
        let client = client("http://carried").with_transport(move |request| {
            let fake = carrying.clone();
            async move {
                let Request { method, path, body } = request;
                fake.ask(&method, &path, &body).await
            }
        });
        let result: Arc<Mutex<Vec<String>>> = Arc::default();
        let tasks: Vec<_> = (0..5_i64)
            .map(|task| {
                let (client, result) = (client.clone(), result.clone());
                tokio::spawn(async move {
                    for n in 0..20 {
                        let outcome = client.write(&put("notes", "a", n)).await;
                        let outcome = outcome.map(|w| w.version).map_err(|e| e.kind());
                        result
                            .lock()
                            .unwrap()
                            .push(format!("{task} {n} {outcome:?}"));
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        fake.settle();
        let result = result.lock().unwrap().clone();
        (result, fake.documents("notes"))
    };
    let first = story(15).await;
    assert_eq!(story(15).await, first);
    assert_ne!(story(16).await.0, first.0);
    let turns = first.0.windows(2).filter(|two| two[0][..1] != two[1][..1]);
    assert!(turns.count() > 20, "they hardly met: {first:?}");
}
