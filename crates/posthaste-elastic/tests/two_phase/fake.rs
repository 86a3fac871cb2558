//! The fake, with the scripts replaced by the functions that the model runs; tests compare them
//! with the server's Painless request by request.

use std::sync::Arc;

use jiff::Timestamp;
use posthaste_elastic::two_phase::{Coordinator, Document, Effect, Fence, TransactionId};
use posthaste_elastic::{Client, Request};
use posthaste_testkit::elastic::FakeElastic;
use serde_json::{Map, Value, json};

use crate::support;

/// Whether holds with another mark are refused.
#[derive(Clone, Copy, Debug)]
pub enum Marks {
    /// They are refused, as the rules require.
    Compared,
    /// They are accepted: schedules must fail on such a server.
    Ignored,
}

/// Creates a fake with this random seed, with its indexes and scripts, and a coordinator whose
/// requests need no sockets.
pub async fn fake(seed: u64, marks: Marks) -> (Arc<FakeElastic>, Coordinator) {
    let fake = Arc::new(FakeElastic::new(seed));
    let coordinator = Coordinator::new(client(&fake), "documents", "transactions");
    coordinator.prepare(0).await.unwrap();
    fake.script("posthaste-two-phase-advance-1", advance);
    fake.script("posthaste-two-phase-touch-2", touch);
    fake.script("posthaste-two-phase-hold-1", move |ctx, params| {
        hold(ctx, params, marks)
    });
    fake.script("posthaste-two-phase-release-1", release);
    fake.script("posthaste-two-phase-prune-1", prune);
    (fake, coordinator)
}

/// Returns a client of this fake whose requests need no sockets.
pub fn client(fake: &Arc<FakeElastic>) -> Client {
    let fake = Arc::clone(fake);
    carried(move |request| {
        let fake = Arc::clone(&fake);
        async move {
            fake.ask(&request.method, &request.path, &request.body)
                .await
        }
    })
}

/// Returns a client with this transport.
pub fn carried<F>(carry: impl Fn(Request) -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = Option<(u16, Vec<u8>)>> + Send + 'static,
{
    support::client("http://fake").with_transport(carry)
}

fn advance(ctx: &mut Value, params: &Value) -> Result<(), String> {
    if ctx["_source"]["transaction_state"] != params["from"] {
        ctx["op"] = json!("none");
        return Ok(());
    }
    let now = after(ctx, 0);
    ctx["_source"]["transaction_state"] = params["to"].clone();
    ctx["_source"]["modification_time"] = now.clone();
    if !params["reason"].is_null() {
        ctx["_source"]["reason"] = params["reason"].clone();
    }
    next_attempt(ctx, params, now);
    Ok(())
}

/// Returns the time this many seconds from now.
fn after(ctx: &Value, seconds: i64) -> Value {
    let at = ctx["_now"].as_i64().unwrap() + seconds * 1_000;
    json!(Timestamp::from_millisecond(at).unwrap().to_string())
}

fn next_attempt(ctx: &mut Value, params: &Value, at: Value) {
    let source = ctx["_source"].as_object_mut().unwrap();
    match params["ended"] == json!(true) {
        true => source.remove("next_attempt_at"),
        false => source.insert("next_attempt_at".into(), at),
    };
}

fn touch(ctx: &mut Value, params: &Value) -> Result<(), String> {
    if ctx["_source"]["transaction_state"] != params["state"] {
        ctx["op"] = json!("none");
        return Ok(());
    }
    let mut attempts = ctx["_source"]["attempts"].as_u64().unwrap_or(0);
    if params["counted"] == json!(true) {
        attempts += 1;
        ctx["_source"]["attempts"] = json!(attempts);
    }
    let put_off = after(ctx, (1 << attempts.clamp(1, 12)).min(3_600));
    next_attempt(ctx, params, put_off);
    Ok(())
}

fn id(params: &Value) -> TransactionId {
    TransactionId::new(params["id"].as_str().unwrap()).unwrap()
}

fn mark(params: &Value) -> Fence {
    Fence(params["mark"].as_u64().unwrap())
}

fn on_document(ctx: &mut Value, script: impl FnOnce(&mut Document) -> bool) -> Result<(), String> {
    let source = ctx["_source"].take();
    let mut document: Document = serde_json::from_value(source).map_err(|e| e.to_string())?;
    if !script(&mut document) {
        ctx["op"] = json!("none");
    }
    ctx["_source"] = serde_json::to_value(document).map_err(|e| e.to_string())?;
    Ok(())
}

fn hold(ctx: &mut Value, params: &Value, marks: Marks) -> Result<(), String> {
    let set: Option<Map<String, Value>> = params["set"].as_object().cloned();
    let effect = Effect {
        document: "this".into(),
        add: params["add"].as_i64().unwrap(),
        set: set.unwrap_or_default(),
    };
    let (id, mark) = (id(params), mark(params));
    on_document(ctx, |document| {
        let mark = match marks {
            Marks::Compared => mark,
            Marks::Ignored => document.fence(&id),
        };
        document.hold(&id, &effect, mark).is_ok()
    })
}

fn prune(ctx: &mut Value, params: &Value) -> Result<(), String> {
    let [from, add, before] = ["from", "add", "before"].map(|name| params[name].as_i64().unwrap());
    on_document(ctx, |document| document.count_past(from, add, before))
}

fn release(ctx: &mut Value, params: &Value) -> Result<(), String> {
    let (id, mark) = (id(params), mark(params));
    let settles = params["settle"] == json!(true);
    on_document(ctx, |document| {
        match settles {
            true => document.settle(&id, mark),
            false => document.undo(&id, mark),
        }
        true
    })
}
