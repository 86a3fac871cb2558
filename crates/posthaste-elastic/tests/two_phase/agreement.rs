//! The server's Painless and the functions of the model have the same results, request by request.

use std::collections::BTreeMap;

use posthaste_elastic::two_phase::{
    Coordinator, Document, Effect, Event, Fence, MAX_HOLDS, Obstacle, Request, Response, State,
    Transaction,
};
use serde_json::{Map, json};

use super::{coordinator, document, opened, state};
use crate::model::on_transaction;

/// A sequence that has all outcomes that are required below.
const SEED: u64 = 10_513_045_660_946_069_588;

fn transactions() -> Vec<Transaction> {
    let owner = |name: &str| Map::from_iter([("owner".to_owned(), json!({"name": name}))]);
    let both = Effect {
        add: 2,
        ..Effect::set("poor", owner("cid"))
    };
    let far = (1 << 53) - 1000;
    vec![
        Transaction::transfer("a", "poor", "rich", 3).unwrap(),
        Transaction::transfer("b", "rich", "poor", 4).unwrap(),
        Transaction::transfer("c", "rich", "poor", far).unwrap(),
        Transaction::new(
            "d",
            vec![Effect::set("poor", owner("ann")), Effect::add("rich", -1)],
        )
        .unwrap(),
        Transaction::new("e", vec![Effect::set("rich", owner("bob")), both]).unwrap(),
    ]
}

fn some_request(random: &mut fastrand::Rng) -> Request {
    const EVENTS: [Event; 5] = [
        Event::Begun,
        Event::Held,
        Event::Settled,
        Event::Abandoned,
        Event::Undone,
    ];
    let state = State::ALL[random.usize(..State::ALL.len())];
    let effect = random.usize(..2);
    match random.u8(..10) {
        0 => Request::Create,
        1 => Request::Touch(state),
        2 => {
            let event = EVENTS[random.usize(..EVENTS.len())];
            match state.next(event) {
                Ok(_) => Request::Advance(state, event),
                Err(_) => Request::Touch(state),
            }
        }
        3..=6 => Request::Hold(effect, Fence(random.u64(..2))),
        7 | 8 => Request::Settle(effect),
        _ => Request::Undo(effect),
    }
}

#[tokio::test]
async fn server_scripts_behave_like_the_model() {
    let Some(coordinator) = coordinator("agreement").await else {
        return;
    };
    opened(&coordinator, &[("poor", 5), ("rich", 1 << 52)]).await;
    let transactions = transactions();
    let mut random = fastrand::Rng::with_seed(SEED);
    let mut seen = BTreeMap::<String, u32>::new();
    for _ in 0..600 {
        let transaction = &transactions[random.usize(..transactions.len())];
        let mut request = some_request(&mut random);
        // Mostly with the current mark.
        if let Request::Hold(effect, mark) = &mut request
            && random.u8(..5) > 0
        {
            let name = &transaction.effects()[*effect].document;
            *mark = document(&coordinator, name).await.fence(transaction.id());
        }
        let result = one(&coordinator, transaction, request).await;
        *seen.entry(kind(request, result)).or_default() += 1;
    }
    filled(&coordinator, &mut seen).await;
    println!("{seen:?}");
    for kind in [
        "Hold Acknowledged",
        "Hold Rejected(Fenced)",
        "Hold Rejected(Insufficient)",
        "Hold Rejected(TooLarge)",
        "Hold Rejected(Busy)",
        "Hold Rejected(Full)",
        "Settle Acknowledged",
        "Undo Acknowledged",
        "Create Acknowledged",
        "Create Elsewhere",
        "Advance Acknowledged",
        "Advance Elsewhere",
        "Touch Acknowledged",
        "Touch Elsewhere",
    ] {
        assert!(seen.contains_key(kind), "never seen: {kind}");
    }
}

/// Fills a document with as many transactions as it may hold, and tries one more.
async fn filled(coordinator: &Coordinator, seen: &mut BTreeMap<String, u32>) {
    opened(coordinator, &[("full", 1000)]).await;
    for at in 0..=MAX_HOLDS {
        let transaction = Transaction::transfer(&format!("f{at}"), "full", "rich", 1).unwrap();
        let request = Request::Hold(0, Fence(0));
        let result = one(coordinator, &transaction, request).await;
        let expected = match at {
            MAX_HOLDS => Response::Rejected(Obstacle::Full),
            _ => Response::Acknowledged,
        };
        assert_eq!(result, expected, "hold {at}");
        *seen.entry(kind(request, result)).or_default() += 1;
    }
}

fn kind(request: Request, answer: Response) -> String {
    let request = format!("{request:?}");
    let name = request.split('(').next().unwrap();
    format!("{name} {answer:?}")
}

/// Makes one request to the server and to the model, from the same state.
async fn one(coordinator: &Coordinator, transaction: &Transaction, request: Request) -> Response {
    let id = transaction.id();
    let before = match request {
        Request::Hold(at, _) | Request::Settle(at) | Request::Undo(at) => Some(at),
        _ => None,
    };
    let was = state(coordinator, id.as_str()).await;
    let name = before.map(|at| transaction.effects()[at].document.clone());
    let had = match &name {
        Some(name) => Some(document(coordinator, name).await),
        None => None,
    };
    let (answers, error) = coordinator
        .send_requests(transaction, &[request], None)
        .await;
    assert!(error.is_none(), "{request:?}: {error:?}");
    let answer = answers[0];
    let Some(((name, had), at)) = name.zip(had).zip(before) else {
        let ran = on_transaction(was, request);
        // A script does not run without a document.
        let expected = match (was, request) {
            (None, Request::Advance(..) | Request::Touch(_)) => Response::Missing,
            _ => ran.answer,
        };
        assert_eq!(answer, expected, "{request:?} on {was:?}");
        assert_eq!(
            state(coordinator, id.as_str()).await,
            ran.left,
            "{request:?} on {was:?}"
        );
        return answer;
    };
    let has = document(coordinator, &name).await;
    let effect = &transaction.effects()[at];
    let mut expected: Document = had.clone();
    let mark = has.fence(id);
    let text = match request {
        Request::Hold(_, seen) => match expected.hold(id, effect, seen) {
            Ok(()) => Response::Acknowledged,
            Err(obstacle) => Response::Rejected(obstacle),
        },
        Request::Settle(_) => {
            expected.settle(id, mark);
            Response::Acknowledged
        }
        _ => {
            expected.undo(id, mark);
            Response::Acknowledged
        }
    };
    assert_eq!(answer, text, "{request:?} of {id} on {had:?}");
    assert_eq!(has, expected, "{request:?} of {id} on {had:?}");
    let left_a_mark = mark != had.fence(id);
    let should = matches!(request, Request::Settle(_) | Request::Undo(_));
    assert_eq!(left_a_mark, should, "{request:?} of {id}");
    answer
}
