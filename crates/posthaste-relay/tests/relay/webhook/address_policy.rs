//! Addresses that no webhook may reach unless they are allowed, in any notation.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use posthaste_relay::{AddressPolicy, Webhook};
use posthaste_testkit::eventually;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::json;

use super::server::Server;
use super::{Setup, client, each};
use crate::support::{SOON, all_done, count};

/// Notations of addresses that are not public, and attempts to bypass the check.
const VECTORS: [&str; 54] = [
    // Loopback, as people write it and as parsers accept it.
    "http://127.0.0.1:{port}/hook",
    "http://127.0.0.2:{port}/hook",
    "http://127.1:{port}/hook",
    "http://127.0.1:{port}/hook",
    "http://2130706433:{port}/hook",
    "http://0x7f000001:{port}/hook",
    "http://0x7f.0.0.1:{port}/hook",
    "http://0177.0.0.1:{port}/hook",
    "http://127.0.0.1.:{port}/hook",
    "http://%31%32%37.0.0.1:{port}/hook",
    "http://１２７.０.０.１:{port}/hook",
    "http://①②⑦.⓪.⓪.①:{port}/hook",
    "http://example.com@127.0.0.1:{port}/hook",
    "http://127.0.0.1:{port}\\@example.com/hook",
    "http:127.0.0.1:{port}/hook",
    "HTTP://127.0.0.1:{port}/hook",
    "http://[::1]:{port}/hook",
    "http://[0:0:0:0:0:0:0:1]:{port}/hook",
    // Any address of this host.
    "http://0:{port}/hook",
    "http://0.0.0.0:{port}/hook",
    "http://[::]:{port}/hook",
    // Addresses that contain another address.
    "http://[::ffff:127.0.0.1]:{port}/hook",
    "http://[::ffff:7f00:1]:{port}/hook",
    "http://[::127.0.0.1]:{port}/hook",
    "http://[64:ff9b::127.0.0.1]:{port}/hook",
    "http://[64:ff9b::a9fe:a9fe]/hook",
    "http://[64:ff9b:1::7f00:1]/hook",
    "http://[2002:7f00:1::]/hook",
    "http://[2002:c0a8:101::1]/hook",
    "http://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/hook",
    // Metadata services of clouds, which serve secrets.
    "http://169.254.169.254/latest/meta-data/",
    "http://[::ffff:169.254.169.254]/latest/meta-data/",
    "http://169.254.170.2/v2/credentials",
    "http://100.100.100.200/latest/meta-data/",
    "http://192.0.0.192/opc/v2/instance/",
    "http://168.63.129.16/machine",
    "http://[fd00:ec2::254]/latest/meta-data/",
    // Private networks.
    "http://10.0.0.1/hook",
    "http://172.16.0.1/hook",
    "http://172.31.255.255/hook",
    "http://192.168.1.1/hook",
    "http://100.64.0.1/hook",
    "http://198.18.0.1/hook",
    "http://[fe80::1]/hook",
    "http://[fc00::1]/hook",
    "http://[fec0::1]/hook",
    // Broadcast, multicast and reserved addresses.
    "http://255.255.255.255/hook",
    "http://224.0.0.1/hook",
    "http://240.0.0.1/hook",
    "http://[ff02::1]/hook",
    // Names.
    "http://localhost:{port}/hook",
    "http://private.example:{port}/hook",
    "http://mapped.example:{port}/hook",
    "http://metadata.example./hook",
];

/// Schemes other than HTTP.
const SCHEMES: [&str; 4] = [
    "file:///etc/passwd",
    "ftp://127.0.0.1/hook",
    "gopher://127.0.0.1:{port}/_POST",
    "unix:/run/docker.sock",
];

/// A resolver whose answers change with the number of queries.
#[derive(Clone, Default)]
struct Names(Arc<AtomicUsize>);

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let asked = self.0.fetch_add(1, Ordering::SeqCst);
        let addresses: &[&str] = match (name.as_str(), asked) {
            ("localhost", _) => &["127.0.0.1", "::1"],
            ("private.example", _) => &["10.1.2.3", "192.168.1.2"],
            ("mapped.example", _) => &["::ffff:127.0.0.1"],
            ("metadata.example" | "metadata.example.", _) => &["169.254.169.254"],
            ("rebinds.example", 0) => &["127.0.0.2", "127.0.0.1"],
            ("rebinds.example", _) => &["127.0.0.2"],
            _ => &[],
        };
        let addresses: Vec<SocketAddr> = addresses
            .iter()
            .map(|one| (one.parse::<IpAddr>().unwrap(), 0).into())
            .collect();
        Box::pin(async move { Ok(Box::new(addresses.into_iter()) as Addrs) })
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn private_addresses_are_unreachable_in_any_notation() {
    let setup = Setup::new().await;
    let port = setup.server.address().port().to_string();
    let vectors = VECTORS.iter().chain(&SCHEMES);
    for vector in vectors.clone() {
        let url = vector.replace("{port}", &port);
        setup.enqueue(vector, &json!({ "url": url })).await;
    }
    let address_policy = AddressPolicy::public().resolver(Names::default());
    let (_, worker) = setup
        .work(each(Webhook::to_each(client(), address_policy).unwrap()))
        .await;
    let all = vectors.count() as i64;
    let refused = async || Ok(count(&setup.client, "discarded").await == all);
    let outcome = eventually(SOON, "all are refused", refused).await;
    let left = "SELECT name, state, coalesce(last_error, '') FROM posthaste.job ORDER BY id";
    for row in setup.client.query(left, &[]).await.unwrap() {
        let (name, state, error): (&str, &str, &str) = (row.get(0), row.get(1), row.get(2));
        let is_reported = error.contains("not a public address") || error.contains("must be http");
        assert!(
            state == "discarded" && is_reported,
            "{name} is {state}: {error}"
        );
    }
    outcome.unwrap();
    assert_eq!(setup.server.taken().len(), 0);
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn host_names_are_checked_on_every_connection() {
    let setup = Setup::new().await;
    let port = setup.server.address().port();
    let beside = Server::at(([127, 0, 0, 2], port).into()).await;
    let address_policy = AddressPolicy::public().allow("127.0.0.1").unwrap();
    let address_policy = address_policy.resolver(Names::default());
    // No connection is reused, so each request resolves the name.
    let webhook = Webhook::to_each(client().pool_max_idle_per_host(0), address_policy).unwrap();
    let (_, worker) = setup.work(each(webhook)).await;
    let url = format!("http://rebinds.example:{port}/hook");
    setup.enqueue("first", &json!({ "url": url })).await;
    all_done(&setup.client).await;
    setup.enqueue("second", &json!({ "url": url })).await;
    let refused = async || Ok(count(&setup.client, "discarded").await == 1);
    eventually(SOON, "the second is refused", refused)
        .await
        .unwrap();
    assert_eq!((setup.server.taken().len(), beside.taken().len()), (1, 0));
    worker.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_wait_while_a_destination_resolves_to_a_private_address() {
    let setup = Setup::new().await;
    let port = setup.server.address().port();
    let address_policy = AddressPolicy::public().resolver(Names::default());
    let url = format!("http://localhost:{port}/hook");
    let webhook = Webhook::with_address_policy(client(), &url, address_policy).unwrap();
    setup.enqueue("m", &json!({})).await;
    let (relay, worker) = setup.work(posthaste_relay::Relay::to(webhook)).await;
    let is_reported = async || {
        let error = relay.status().last_error;
        Ok(error.is_some_and(|error| error.contains("not a public address")))
    };
    eventually(SOON, "the error is reported", is_reported)
        .await
        .unwrap();
    assert_eq!(
        (setup.counted("m").await, setup.server.taken().len()),
        (Some(0), 0)
    );
    worker.stop().await.unwrap();
}
