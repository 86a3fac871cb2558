//! The suite on the mock cluster of Kafka's client library, as far as that supports it: it is
//! available everywhere, and replaces the broker where the ledger names Kafka as not run.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

use posthaste_relay::{Destination, Kafka};
use posthaste_testkit::{Proxy, ran, unique};
use rdkafka::mocking::MockCluster;
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use super::super::conformance::{Received, Subject, conformance};
use super::{To, received};

struct Mocked {
    bootstrap: String,
    topic: String,
    /// Each order is answered when it is done. The cluster runs in its own thread, which ends when
    /// this sender is dropped.
    orders: Sender<(Order, Sender<()>)>,
}

enum Order {
    Refuse(bool),
    Delay(Duration),
}

impl Mocked {
    fn order(&self, order: Order) -> bool {
        let (done, is_done) = channel();
        self.orders.send((order, done)).is_ok() && is_done.recv().is_ok()
    }
}

impl Subject for Mocked {
    const DEDUPLICATES: bool = false;
    const LARGEST: usize = super::Topic::LARGEST;

    async fn start() -> Option<Self> {
        let (orders, ordered) = channel::<(Order, Sender<()>)>();
        let (sender, receiver) = channel();
        let topic = unique("mocked");
        let named = topic.clone();
        thread::spawn(move || {
            let cluster = MockCluster::new(1).unwrap();
            cluster.create_topic(&named, 1, 1).unwrap();
            sender.send(cluster.bootstrap_servers()).unwrap();
            for (order, done) in ordered {
                match order {
                    Order::Refuse(true) => {
                        let few = [RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS; 10_000];
                        cluster.request_errors(RDKafkaApiKey::Produce, &few);
                    }
                    Order::Refuse(false) => cluster.clear_request_errors(RDKafkaApiKey::Produce),
                    Order::Delay(by) => cluster.broker_round_trip_time(1, by).unwrap(),
                }
                done.send(()).unwrap();
            }
        });
        ran::note("kafka-mock");
        Some(Self {
            bootstrap: receiver.recv().unwrap(),
            topic,
            orders,
        })
    }

    async fn destination(&self) -> Arc<dyn Destination> {
        let kafka = Kafka::new(&self.bootstrap).unwrap();
        let topic = self.topic.clone();
        Arc::new(To { kafka, topic })
    }

    fn proxy(&self) -> &Proxy {
        panic!(
            "a mock cluster tells clients where it is itself: no claim that needs a proxy is asked \
             of it"
        )
    }

    fn delay(&self, by: Duration) {
        assert!(self.order(Order::Delay(by)), "the cluster has ended");
    }

    async fn received(&self) -> Vec<Received> {
        received(&self.bootstrap, &self.topic).await
    }

    async fn refuse_for_now(&self, refuse: bool) -> bool {
        self.order(Order::Refuse(refuse))
    }
}

conformance!(Mocked:
    messages_arrive_as_they_were_enqueued,
    duplicates_have_the_same_id_and_are_accepted,
    temporary_rejections_lose_nothing,
    stopping_amid_a_batch_loses_nothing,
    messages_of_an_ordered_relay_arrive_in_order,
    jobs_of_one_key_arrive_in_order,
);
