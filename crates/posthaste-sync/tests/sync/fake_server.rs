//! Elasticsearch in the schedules: a fake server whose requests are in flight like all others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use posthaste_sync::{Elastic, ElasticClient, Index, Mark};
use posthaste_testkit::elastic::{FakeElastic, Fault, Faults};
use serde_json::json;
use tokio::sync::oneshot;

use super::world::{Inner, Request, StoredDocument, World};

const ALIAS: &str = "notes";

/// The fake server of a world.
#[derive(Clone)]
pub struct Served(Arc<FakeElastic>);

/// A status and a body; `None` if the response is lost.
type FakeResponse = Option<(u16, Vec<u8>)>;

/// A request of the fake server's client.
pub struct Asked {
    method: String,
    path: String,
    body: Vec<u8>,
    answer: Option<oneshot::Sender<FakeResponse>>,
}

/// Creates an index on the fake server, whose requests go through the world.
pub fn index(world: &World, seed: u64) -> Elastic {
    let _ = rustls::crypto::ring::default_provider().install_default();
    world.inner().served = Some(Served(Arc::new(FakeElastic::new(seed))));
    let world = world.clone();
    let kind = reqwest::Client::builder().no_proxy();
    let client = ElasticClient::new(kind, "http://fake").unwrap();
    let client = client.with_transport(move |request| {
        let (answer, answered) = oneshot::channel();
        world.inner().in_transit.push(Request::Asked(Asked {
            method: request.method,
            path: request.path,
            body: request.body,
            answer: Some(answer),
        }));
        async { answered.await.ok().flatten() }
    });
    let number = json!({"type": "long"});
    Elastic::new(client, ALIAS)
        .definition(json!({"mappings": {"properties": {"text": number, "beside": number}}}))
        // Schedules never wait for a clock.
        .pause(Duration::ZERO)
}

/// As [`index`], as a trait object.
pub fn any(world: &World, seed: u64) -> Arc<dyn Index> {
    Arc::new(index(world, seed))
}

impl Served {
    pub fn settle(&self) {
        self.0.settle();
    }

    /// Returns the documents of the index that the alias points to.
    pub fn stored(&self) -> BTreeMap<String, StoredDocument> {
        let documents = self.0.documents(ALIAS).into_iter();
        let stored = documents.filter_map(|(id, held)| {
            let source = held.source?;
            let ours = &source["posthaste"];
            let is_live = ours["deleted_at"].is_null();
            let document = format!(
                "{{\"text\": {}, \"beside\": {}}}",
                source["text"], source["beside"]
            );
            let stored = StoredDocument {
                mark: Mark::from_number(held.version),
                token: ours["token"].as_i64().unwrap(),
                document: is_live.then_some(document),
            };
            Some((id, stored))
        });
        stored.collect()
    }
}

impl Asked {
    pub fn is_waited_for(&self) -> bool {
        self.answer
            .as_ref()
            .is_some_and(|answer| !answer.is_closed())
    }

    /// Executes and answers the request.
    pub fn answer(self, inner: &Inner) {
        let response = self.carry_out(inner);
        self.say(response);
    }

    /// Handles the request with a random fault.
    pub fn meet(self, inner: &mut Inner, rng: &mut Rng) {
        let fake = Arc::clone(&inner.served.as_ref().unwrap().0);
        let one = |faults: Faults| fake.faults(faults);
        let none = Faults::default();
        match rng.u32(0..24) {
            // The request is lost.
            0 => return self.say(None),
            // The answer is late; the request arrives later.
            1..=3 => {
                inner.in_transit.push(Request::Asked(self.again()));
                return self.say(None);
            }
            // The request is executed, and the answer is lost.
            4 => {
                self.carry_out(inner);
                return self.say(None);
            }
            // The request is repeated, much later.
            5 => inner.in_transit.push(Request::Asked(self.again())),
            6 | 7 => fake.next([Fault::Lie]),
            8 => fake.next([Fault::TooMany]),
            9 => fake.next([Fault::UnavailableBefore]),
            10 => fake.next([Fault::UnavailableAfter]),
            11 => one(Faults {
                partial: 0.5,
                ..none
            }),
            12 => one(Faults { stale: 0.5, ..none }),
            // The disk is full for a while.
            13 if rng.u32(0..4) == 0 => one(Faults {
                read_only: 1.0,
                ..none
            }),
            // A node restarts: another copy of each shard becomes the primary.
            14 if rng.u32(0..4) == 0 => fake.fail_over(),
            _ => {}
        }
        let response = self.carry_out(inner);
        fake.faults(none);
        self.say(response);
    }

    fn carry_out(&self, inner: &Inner) -> FakeResponse {
        let fake = &inner.served.as_ref().unwrap().0;
        let response = fake.call(&self.method, &self.path, &self.body);
        response.map(|(status, body)| (status, body.to_string().into_bytes()))
    }

    fn again(&self) -> Self {
        Self {
            method: self.method.clone(),
            path: self.path.clone(),
            body: self.body.clone(),
            answer: None,
        }
    }

    fn say(self, response: FakeResponse) {
        if let Some(answer) = self.answer {
            let _ = answer.send(response);
        }
    }
}
