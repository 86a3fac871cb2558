//! Random calls, identical on the real server and on the fake: each call must have the same result
//! on both.

use std::collections::BTreeMap;

use posthaste_elastic::{
    AliasChange, Client, Condition, Document, Error, Operation, Reading, Refusal, Script, Seen,
    Source, Written,
};
use serde_json::{Value, json};

use crate::support::{asked, created, fake, opensearch};

/// The number of calls by default and in longer runs.
const CALLS: [usize; 2] = [300, 1_500];
/// Fewer ids than calls, so that calls conflict.
const IDS: [&str; 4] = ["a", "b", "c", "d"];
const INDEXES: [&str; 3] = ["agreed", "agreed-open", "agreed-alias"];

/// One call, with the results of earlier calls that it needs.
#[derive(Debug)]
enum Call {
    Bulk(Vec<Operation>),
    Get(&'static str, Reading, Source),
    Refresh(&'static str),
    Search(&'static str, Value),
    Count(&'static str, Value),
    Block(&'static str, bool),
    Alias(&'static str),
    Move(&'static str, &'static str),
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_fake_and_the_server_answer_random_calls_alike() {
    let Some(real) = opensearch("the fake answers random calls as the real server does") else {
        return;
    };
    let (_fake, fake) = fake(11).await;
    prepared(&real).await;
    prepared(&fake).await;
    let mut rng = fastrand::Rng::with_seed(11);
    let mut seen = Vec::new();
    let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
    let calls = CALLS[usize::from(asked("POSTHASTE_SCHEDULES").is_some())];
    for step in 0..calls {
        let call = drawn(&mut rng, &seen);
        let (answered, result) = tokio::join!(made(&real, &call), made(&fake, &call));
        assert_eq!(answered.0, result.0, "step {step}: {call:?}");
        seen.extend(answered.1);
        for outcome in answered.0 {
            let name = outcome.split(' ').next().unwrap_or_default().to_owned();
            *outcomes.entry(name).or_default() += 1;
        }
    }
    posthaste_testkit::ran::count("agreed", calls as u64);
    // An outcome that never occurred was not compared.
    for outcome in [
        "Created", "Updated", "Deleted", "NotFound", "Noop", "Conflict", "Missing", "Refused",
        "Blocked", "NoIndex", "there", "absent", "hits", "count", "done",
    ] {
        let times = outcomes.get(outcome).copied().unwrap_or_default();
        assert!(
            times >= (calls / 150).max(3),
            "{outcome} was met {times} times: {outcomes:?}"
        );
    }
}

async fn prepared(client: &Client) {
    created(client, "agreed").await;
    let open = json!({"settings": {"number_of_replicas": 0, "refresh_interval": "-1"}});
    client.create_index("agreed-open", &open).await.unwrap();
    client.switch_alias("agreed-alias", "agreed").await.unwrap();
    let source =
        "if (ctx._source.n < params.by) { ctx.op = 'none' } else { ctx._source.n -= params.by }";
    client.put_script("agreed-take", source).await.unwrap();
    // Creates a mapping that searches can use.
    let first = Operation::index("agreed-open", "a", &json!({"n": 1})).unwrap();
    client.write(&first).await.unwrap();
}

fn drawn(rng: &mut fastrand::Rng, seen: &[Seen]) -> Call {
    let index = INDEXES[rng.usize(..INDEXES.len())];
    match rng.u32(..25) {
        0..14 => {
            let many = [1, 1, 1, 2, 5][rng.usize(..5)];
            Call::Bulk((0..many).map(|_| operation(rng, seen)).collect())
        }
        14..17 => Call::Get(index, Reading::Latest, source(rng)),
        17 => Call::Get(index, Reading::Searchable, source(rng)),
        18 => Call::Refresh(index),
        19 => Call::Search(index, query(rng)),
        20 => Call::Count(index, query(rng)),
        21 => Call::Block(index, rng.bool()),
        // Blocks are removed more often than they are added.
        22 => Call::Block(index, false),
        23 => Call::Alias(INDEXES[rng.usize(..2)]),
        _ => match rng.bool() {
            true => Call::Move(INDEXES[0], INDEXES[1]),
            false => Call::Move(INDEXES[1], INDEXES[0]),
        },
    }
}

fn source(rng: &mut fastrand::Rng) -> Source {
    [
        Source::Whole,
        Source::Whole,
        Source::Field("n"),
        Source::None,
    ][rng.usize(..4)]
}

fn operation(rng: &mut fastrand::Rng, seen: &[Seen]) -> Operation {
    let index = INDEXES[rng.usize(..INDEXES.len())];
    let id = IDS[rng.usize(..IDS.len())];
    let document = match rng.u32(..10) {
        0 => json!({"m": 1}),
        1 => json!({"n": "no number"}),
        2 => json!({"n": [rng.i64(-9..9), rng.i64(-9..9)]}),
        3 => json!({"n": {"deeper": 1}}),
        _ => json!({"n": rng.i64(0..20)}),
    };
    let script = |by: Value| Script {
        id: "agreed-take",
        params: json!({ "by": by }),
    };
    let operation = match rng.u32(..9) {
        0..4 => Operation::index(index, id, &document),
        4 => return Operation::create(index, id, &document).unwrap(),
        5 => Operation::update(index, id, &script(json!(rng.i64(0..9)))),
        6 => Operation::update(index, id, &script(json!(3))),
        _ => Ok(Operation::delete(index, id)),
    };
    let is_update = matches!(&operation, Ok(one) if format!("{one:?}").contains("Update"));
    let version = rng.i64(0..40);
    let condition = match rng.u32(..6) {
        0 if !is_update => Condition::Newer(version),
        1 if !is_update => Condition::NotOlder(version),
        2..4 => match seen.len() {
            0 => Condition::None,
            // Mostly one of the most recent.
            length => Condition::Unchanged(seen[length - 1 - rng.usize(..length.min(4))]),
        },
        _ => Condition::None,
    };
    let operation = operation.unwrap().when(condition);
    let is_deletion = format!("{operation:?}").contains("Delete");
    match rng.u32(..6) {
        0 if !is_deletion => operation.by_alias(),
        _ => operation,
    }
}

fn query(rng: &mut fastrand::Rng) -> Value {
    let n = rng.i64(0..20);
    match rng.u32(..5) {
        0 => json!({"match_all": {}}),
        1 => json!({"range": {"n": {"gt": n, "lte": n + 8}}}),
        2 => json!({"terms": {"n": [n, n + 1, n + 2, n + 3]}}),
        3 => {
            json!({"bool": {"must_not": [{"term": {"n": n}}],
                "filter": [{"exists": {"field": "n"}}]}})
        }
        _ => json!({"ids": {"values": ["a", "c"]}}),
    }
}

/// Returns the results without their texts, and the states of documents that were seen.
async fn made(client: &Client, call: &Call) -> (Vec<String>, Vec<Seen>) {
    let mut seen = Vec::new();
    let answered = match call {
        Call::Bulk(operations) => match client.bulk(operations).await {
            Ok(outcomes) => outcomes
                .iter()
                .map(|outcome| written(outcome, &mut seen))
                .collect(),
            Err(error) => vec![failed(&error)],
        },
        Call::Get(index, reading, source) => {
            let read = client.multi_get(index, &IDS, *reading, *source);
            match read.await {
                Ok(read) => read.iter().map(|one| got(one, &mut seen)).collect(),
                Err(error) => vec![failed(&error)],
            }
        }
        Call::Search(index, query) => {
            let query = json!({"query": query, "_source": "n", "version": true,
                "seq_no_primary_term": true,
                "track_total_hits": true, "sort": [{"n": {"order": "asc", "unmapped_type": "long"}},
                {"_id": "desc"}]});
            vec![match client.search(index, &query).await {
                Ok(page) => format!("hits {page:?}"),
                Err(error) => failed(&error),
            }]
        }
        Call::Count(index, query) => vec![result(client.count(index, Some(query)).await, "count")],
        Call::Refresh(index) => vec![result(client.refresh(index).await, "done")],
        Call::Block(index, blocked) => {
            let blocked = if *blocked { json!(true) } else { Value::Null };
            let settings = json!({"index": {"blocks": {"read_only_allow_delete": blocked}}});
            vec![result(client.put_settings(index, &settings).await, "done")]
        }
        Call::Alias(index) => vec![result(
            client.switch_alias("agreed-alias", index).await,
            "done",
        )],
        Call::Move(from, to) => {
            let alias = "agreed-alias";
            let changes = [
                AliasChange::Remove { alias, index: from },
                AliasChange::Add { alias, index: to },
            ];
            vec![result(client.change_aliases(&changes).await, "done")]
        }
    };
    (answered, seen)
}

fn written(outcome: &Result<Written, Refusal>, seen: &mut Vec<Seen>) -> String {
    match outcome {
        Ok(written) => {
            seen.push(written.seen);
            format!("{:?} {written:?}", written.effect)
        }
        Err(refusal) => format!("{:?} {}", refusal.kind, refusal.status),
    }
}

fn got(read: &Result<Option<Document>, Refusal>, seen: &mut Vec<Seen>) -> String {
    match read {
        Ok(Some(document)) => {
            seen.push(document.seen);
            let holds: Option<Value> = document.source.as_ref().map(|_| document.read().unwrap());
            format!("there {} {:?} {holds:?}", document.version, document.seen)
        }
        Ok(None) => "absent".to_owned(),
        Err(refusal) => format!("{:?} {}", refusal.kind, refusal.status),
    }
}

fn result(outcome: Result<impl std::fmt::Debug, Error>, what: &str) -> String {
    match outcome {
        Ok(result) => format!("{what} {result:?}"),
        Err(error) => failed(&error),
    }
}

fn failed(error: &Error) -> String {
    format!("{:?} {:?}", error.kind(), error.status())
}
