//! The behavior of each call, which the real server and the fake must share.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use posthaste_elastic::{
    Client, Condition, Effect, ErrorKind, Flavour, Operation, Reading, Refusal, Script, Source,
    Written,
};
use serde_json::{Value, json};

use crate::support::{created, fake, kind, opensearch, put};

/// Runs each claim as a separate test on each server.
macro_rules! hold {
    ($($claim:ident),* $(,)?) => {
        mod on_the_real_server {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                if let Some(client) = super::opensearch(stringify!($claim)) {
                    super::$claim(client).await;
                }
            })*
        }

        mod on_the_fake {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $claim() {
                let (_fake, client) = super::fake(7).await;
                super::$claim(client).await;
            })*
        }
    };
}

mod indexes;

hold! {
    the_server_reports_its_flavour_and_version,
    late_writes_never_overwrite_newer_ones_or_tombstones,
    conditional_writes_apply_once,
    scripts_update_a_document_or_leave_it,
    bulk_outcomes_are_individual_and_ordered,
    documents_are_read_in_order_from_both_realtime_and_search,
    point_in_time_walks_see_each_document_once_despite_writes,
    searches_find_refreshed_documents,
    single_fields_can_be_read_and_searched,
    ingest_pipelines_write_the_server_time,
    searches_compare_times_with_the_clock_of_the_server,
}

fn kinds(outcomes: Vec<Result<Written, Refusal>>) -> Vec<Result<Effect, ErrorKind>> {
    let one = |outcome: Result<Written, Refusal>| {
        outcome
            .map(|written| written.effect)
            .map_err(|refusal| refusal.kind)
    };
    outcomes.into_iter().map(one).collect()
}

async fn the_server_reports_its_flavour_and_version(client: Client) {
    let info = client.info().await.unwrap();
    assert_eq!(info.flavour, Flavour::OpenSearch);
    assert!(info.version.starts_with("2."), "{info:?}");
}

async fn late_writes_never_overwrite_newer_ones_or_tombstones(client: Client) {
    created(&client, "late").await;
    let put = |n| put("late", "a", n);
    let newer = Condition::Newer;
    let written = client.write(&put(1).when(newer(5))).await.unwrap();
    assert_eq!((written.effect, written.version), (Effect::Created, 5));
    for late in [4, 5] {
        let outcome = client.write(&put(2).when(newer(late))).await;
        assert_eq!(kind(outcome), ErrorKind::Conflict);
    }
    let again = put(1).when(Condition::NotOlder(5));
    assert_eq!(client.write(&again).await.unwrap().effect, Effect::Updated);
    let delete = |version| Operation::delete("late", "a").when(newer(version));
    assert_eq!(
        client.write(&delete(7)).await.unwrap().effect,
        Effect::Deleted
    );
    let outcome = client.write(&put(3).when(newer(6))).await;
    assert_eq!(kind(outcome), ErrorKind::Conflict);
    assert!(client.get("late", "a").await.unwrap().is_none());
    let outcome = client.write(&delete(8)).await.unwrap();
    assert_eq!((outcome.effect, outcome.version), (Effect::NotFound, 8));
}

async fn conditional_writes_apply_once(client: Client) {
    created(&client, "seen").await;
    let create = Operation::create("seen", "a", &json!({"n": 1})).unwrap();
    let first = client.write(&create).await.unwrap();
    assert_eq!(kind(client.write(&create).await), ErrorKind::Conflict);
    let document = client.get("seen", "a").await.unwrap().unwrap();
    assert_eq!((document.seen, document.version), (first.seen, 1));
    assert_eq!(document.read::<Value>().unwrap(), json!({"n": 1}));

    let change = put("seen", "a", 2).when(Condition::Unchanged(document.seen));
    let second = client.write(&change).await.unwrap();
    assert_eq!((second.effect, second.version), (Effect::Updated, 2));
    assert_eq!(kind(client.write(&change).await), ErrorKind::Conflict);
    let gone = Operation::delete("seen", "a").when(Condition::Unchanged(second.seen));
    client.write(&gone).await.unwrap();
    assert_eq!(kind(client.write(&gone).await), ErrorKind::Conflict);
}

async fn scripts_update_a_document_or_leave_it(client: Client) {
    created(&client, "scripted").await;
    let source =
        "if (ctx._source.n < params.by) { ctx.op = 'none' } else { ctx._source.n -= params.by }";
    client.put_script("scripted-take", source).await.unwrap();
    let take = |id: &str, by: i64| {
        let params = json!({ "by": by });
        let id_of_script = "scripted-take";
        let script = Script {
            id: id_of_script,
            params,
        };
        Operation::update("scripted", id, &script).unwrap()
    };
    let seen = client.write(&put("scripted", "a", 5)).await.unwrap().seen;
    assert_eq!(kind(client.write(&take("b", 1)).await), ErrorKind::Missing);
    let first = take("a", 3).when(Condition::Unchanged(seen));
    let written = client.write(&first).await.unwrap();
    assert_eq!((written.effect, written.version), (Effect::Updated, 2));
    assert_eq!(kind(client.write(&first).await), ErrorKind::Conflict);
    let nothing = client.write(&take("a", 3)).await.unwrap();
    assert_eq!((nothing.effect, nothing.seen), (Effect::Noop, written.seen));

    let nobody = Script {
        id: "scripted-nobody",
        params: json!({}),
    };
    let nobody = Operation::update("scripted", "a", &nobody).unwrap();
    let error = client.write(&nobody).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Refused);
    assert!(
        error.to_string().contains("unable to find script"),
        "{error}"
    );
    assert!(!error.may_have_been_done());
}

async fn bulk_outcomes_are_individual_and_ordered(client: Client) {
    created(&client, "many").await;
    let wrong = Operation::index("many", "2", &json!({"m": 1})).unwrap();
    let strange = "ein/Name ü%&?#..";
    let operations = [
        put("many", "1", 1).when(Condition::Newer(3)),
        put("many", "1", 2).when(Condition::Newer(3)),
        wrong,
        Operation::delete("many", "9"),
        put("many", strange, 4),
        put("many", "1", 5).when(Condition::Newer(4)),
    ];
    let outcomes = kinds(client.bulk(&operations).await.unwrap());
    let expected = [
        Ok(Effect::Created),
        Err(ErrorKind::Conflict),
        Err(ErrorKind::Refused),
        Ok(Effect::NotFound),
        Ok(Effect::Created),
        Ok(Effect::Updated),
    ];
    assert_eq!(outcomes, expected);
    assert!(client.bulk(&[]).await.unwrap().is_empty());
    let found = client.get("many", strange).await.unwrap();
    assert_eq!(found.unwrap().id, strange);
}

async fn documents_are_read_in_order_from_both_realtime_and_search(client: Client) {
    created(&client, "read").await;
    client.refresh("read").await.unwrap();
    client.bulk(&[put("read", "b", 2)]).await.unwrap();
    let ids = ["a", "b", "a", "c"];
    let read = async |reading| {
        let read = client.multi_get("read", &ids, reading, Source::None).await;
        let there = read.unwrap().into_iter().map(|one| {
            let document = one.unwrap();
            assert!(document.as_ref().is_none_or(|one| one.source.is_none()));
            document.map(|document| document.version)
        });
        there.collect::<Vec<_>>()
    };
    let latest = [None, Some(1), None, None];
    assert_eq!(read(Reading::Latest).await, latest);
    assert_eq!(read(Reading::Searchable).await, [None; 4]);
    client.refresh("read").await.unwrap();
    assert_eq!(read(Reading::Searchable).await, latest);
    let nowhere = client
        .multi_get("nowhere", &["a"], Reading::Latest, Source::Whole)
        .await
        .unwrap();
    assert_eq!(nowhere[0].as_ref().unwrap_err().kind, ErrorKind::NoIndex);
    assert_eq!(kind(client.get("nowhere", "a").await), ErrorKind::NoIndex);
}

async fn point_in_time_walks_see_each_document_once_despite_writes(client: Client) {
    created(&client, "walked").await;
    let all: Vec<_> = (0..25)
        .map(|n| put("walked", &n.to_string(), n).when(Condition::Newer(n + 1)))
        .collect();
    client.bulk(&all).await.unwrap();
    client.refresh("walked").await.unwrap();
    let minute = Duration::from_secs(60);
    let mut moment = client.open_point_in_time("walked", minute).await.unwrap();
    let mut seen = Vec::new();
    let mut after = None;
    loop {
        let sort = [moment.last_sort()];
        let mut query = json!({"size": 10, "version": true, "_source": false, "sort": sort});
        if let Some(after) = &after {
            query["search_after"] = json!(after);
        }
        let query = query.as_object().unwrap().clone();
        let page = client.search_at(&mut moment, query).await.unwrap();
        let Some(last) = page.hits.last() else { break };
        after = Some(last.sort.clone());
        seen.extend(page.hits.iter().map(|hit| hit.version.unwrap() - 1));
        client.write(&put("walked", "0", 24)).await.unwrap();
        client.refresh("walked").await.unwrap();
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..25).collect::<Vec<_>>());
    let by_place = json!({"sort": [{"_shard_doc": "asc"}]});
    let outcome = client.search("walked", &by_place).await;
    assert_eq!(kind(outcome), ErrorKind::Refused, "as Elasticsearch sorts");
    let lost = moment.clone();
    client.close_point_in_time(moment).await.unwrap();
    client.close_point_in_time(lost.clone()).await.unwrap();
    let query = json!({"size": 1}).as_object().unwrap().clone();
    let outcome = client.search_at(&mut lost.clone(), query).await;
    assert_eq!(kind(outcome), ErrorKind::Missing);
}

async fn searches_find_refreshed_documents(client: Client) {
    created(&client, "searched").await;
    client
        .bulk(&[put("searched", "a", 1), put("searched", "b", 2)])
        .await
        .unwrap();
    client.refresh("searched").await.unwrap();
    let above = json!({"range": {"n": {"gt": 1}}});
    assert_eq!(client.count("searched", Some(&above)).await.unwrap(), 1);
    assert_eq!(client.count("searched", None).await.unwrap(), 2);
    let query = json!({"query": above, "version": true, "seq_no_primary_term": true,
        "track_total_hits": true});
    let page = client.search("searched", &query).await.unwrap();
    assert_eq!((page.total, page.hits.len()), (Some(1), 1));
    let hit = &page.hits[0];
    assert_eq!(
        (&*hit.index, &*hit.id, hit.version),
        ("searched", "b", Some(1))
    );
    assert_eq!(hit.seen.map(|seen| seen.seq_no), Some(1));
    assert_eq!(hit.source.as_ref().unwrap().get(), r#"{"n":2}"#);
    let wrong = json!({"query": {"nonsense": {}}});
    assert_eq!(
        kind(client.search("searched", &wrong).await),
        ErrorKind::Refused
    );
    assert_eq!(
        kind(client.count("nowhere", None).await),
        ErrorKind::NoIndex
    );
}

async fn single_fields_can_be_read_and_searched(client: Client) {
    let open = json!({"settings": {"number_of_replicas": 0}});
    client.create_index("parts", &open).await.unwrap();
    let document = json!({"n": {"deep": [1]}, "m": 2});
    let index = Operation::index("parts", "a", &document).unwrap();
    client.write(&index).await.unwrap();
    let read = client
        .multi_get("parts", &["a", "c"], Reading::Latest, Source::Field("n"))
        .await
        .unwrap();
    let shown = read[0].as_ref().unwrap().as_ref().unwrap();
    assert_eq!(shown.read::<Value>().unwrap(), json!({"n": {"deep": [1]}}));
    assert!(read[1].as_ref().unwrap().is_none());
    client.refresh("parts").await.unwrap();
    let query = json!({"query": {"ids": {"values": ["a"]}}, "_source": "m"});
    let page = client.search("parts", &query).await.unwrap();
    assert_eq!(page.hits[0].source.as_ref().unwrap().get(), r#"{"m":2}"#);
}

async fn ingest_pipelines_write_the_server_time(client: Client) {
    created(&client, "stamped").await;
    let set = json!({"set": {"field": "at", "value": "{{_ingest.timestamp}}"}});
    let pipeline = json!({"processors": [set]});
    client.put_pipeline("stamped", &pipeline).await.unwrap();
    let create = Operation::create("stamped", "a", &json!({"n": 1})).unwrap();
    client.write(&create.through("stamped")).await.unwrap();
    let document = client.get("stamped", "a").await.unwrap().unwrap();
    assert!(document.read::<Value>().unwrap()["at"].is_string());
    let nowhere = put("stamped", "b", 1).through("nobody");
    assert_eq!(kind(client.write(&nowhere).await), ErrorKind::Refused);
}

async fn searches_compare_times_with_the_clock_of_the_server(client: Client) {
    created(&client, "timed").await;
    let set = json!({"set": {"field": "at", "value": "{{_ingest.timestamp}}"}});
    let pipeline = json!({"processors": [set]});
    client.put_pipeline("timed", &pipeline).await.unwrap();
    let create = Operation::create("timed", "now", &json!({"n": 1})).unwrap();
    client.write(&create.through("timed")).await.unwrap();
    let stamped = client.get("timed", "now").await.unwrap().unwrap();
    let stamped = stamped.read::<Value>().unwrap()["at"].clone();
    let now: Timestamp = stamped.as_str().unwrap().parse().unwrap();
    for (id, hours) in [
        ("before", -2),
        ("long-before", -4),
        ("whole", -3),
        ("after", 4),
    ] {
        let mut at = now + SignedDuration::from_hours(hours);
        // A time without a fraction is a different text, and sorts differently as text.
        if id == "whole" {
            at = Timestamp::from_second(at.as_second()).unwrap();
        }
        let timed = json!({"at": at.to_string()});
        let timed = Operation::index("timed", id, &timed).unwrap();
        client.write(&timed).await.unwrap();
    }
    client.write(&put("timed", "never", 2)).await.unwrap();
    client.refresh("timed").await.unwrap();
    let found = async |bounds: Value, after: Option<Vec<Value>>| {
        let mut query = json!({"size": 3, "query": {"range": {"at": bounds}},
            "sort": [{"at": "asc"}, {"_id": "asc"}]});
        if let Some(after) = after {
            query["search_after"] = after.into();
        }
        let page = client.search("timed", &query).await.unwrap();
        let ids: Vec<String> = page.hits.iter().map(|hit| hit.id.clone()).collect();
        (ids, page.hits.last().map(|hit| hit.sort.clone()))
    };
    let (ids, last) = found(json!({"lte": "now-3600s"}), None).await;
    assert_eq!(ids, ["long-before", "whole", "before"]);
    let before = now - SignedDuration::from_hours(2);
    assert_eq!(
        last.unwrap(),
        [json!(before.as_millisecond()), json!("before")]
    );
    assert_eq!(found(json!({"lte": "now-5h"}), None).await.0.len(), 0);
    let (_, last) = found(json!({"lte": "now+5h"}), None).await;
    let (ids, _) = found(json!({"lte": "now+5h"}), last).await;
    assert_eq!(ids, ["now", "after"]);
    let between = json!({"gt": "now-150m", "lt": now.to_string()});
    assert_eq!(found(between, None).await.0, ["before"]);
}
