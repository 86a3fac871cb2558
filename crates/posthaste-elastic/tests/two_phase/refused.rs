//! Requests that are refused before anything is written, with the rule.

use posthaste_elastic::two_phase::{Coordinator, Failure, Transaction};
use serde_json::json;

use super::fake::{Marks, fake};
use super::{coordinator, opened, state};
use crate::support;

#[tokio::test]
async fn impossible_transactions_are_refused_before_any_write() {
    let Some(coordinator) = coordinator("refused").await else {
        return;
    };
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let nobody = Transaction::transfer("t", "a", "nobody", 1).unwrap();
    for result in [
        coordinator.run(&nobody).await,
        coordinator.create_transaction(&nobody).await,
    ] {
        let result = result.unwrap_err();
        assert!(!result.may_have_moved_by_this_call());
        assert!(matches!(result, Failure::Missing(name) if name == "nobody"));
    }
    assert_eq!(state(&coordinator, "t").await, None);
    let first = Transaction::transfer("t", "a", "b", 1).unwrap();
    let other = Transaction::transfer("t", "a", "b", 2).unwrap();
    coordinator.create_transaction(&first).await.unwrap();
    coordinator.create_transaction(&first).await.unwrap();
    for result in [
        coordinator.create_transaction(&other).await,
        coordinator.run(&other).await,
    ] {
        assert!(matches!(result, Err(Failure::Different(_))), "{result:?}");
    }
    coordinator.run(&first).await.unwrap();
    coordinator.run(&first).await.unwrap();
    let result = coordinator.roll_back("t").await;
    assert!(matches!(result, Err(Failure::Committed)), "{result:?}");
    let result = coordinator.resume("unknown").await;
    assert!(matches!(result, Err(Failure::Absent(_))), "{result:?}");
    for wrong in ["", "a b", "a/b"] {
        let result = coordinator.open(wrong, 1).await.unwrap_err();
        assert!(
            result.to_string().contains("[A-Za-z0-9_-]{1,64}"),
            "{result}"
        );
    }
    for wrong in [-1, (1 << 53) + 1] {
        let result = coordinator.open("c", wrong).await.unwrap_err();
        assert!(result.to_string().contains("2^53"), "{result}");
    }
    assert_eq!(coordinator.document("c").await.unwrap(), None);
}

#[tokio::test]
async fn rejects_indexes_without_mapping_or_replica_setting() {
    let Some(client) = support::opensearch("unfit") else {
        return;
    };
    let transfer = Transaction::transfer("t", "a", "b", 1).unwrap();
    let refused = |name: &'static str, definition: Option<serde_json::Value>| {
        let (client, transfer) = (client.clone(), transfer.clone());
        async move {
            if let Some(definition) = definition {
                client.create_index(name, &definition).await.unwrap();
            }
            let transactions = format!("{name}-transactions");
            let coordinator = Coordinator::new(client.clone(), name, &transactions);
            let result = coordinator.run(&transfer).await.unwrap_err();
            assert!(matches!(result, Failure::Misconfigured(_)), "{result:?}");
            assert!(!client.index_exists(&transactions).await.unwrap());
            result.to_string()
        }
    };
    assert!(refused("unfit-none", None).await.contains("does not exist"));
    let loose = json!({"settings": {"number_of_replicas": 0}, "mappings": {}});
    assert!(refused("unfit-loose", Some(loose)).await.contains("strict"));
    let alone = json!({"settings": {"number_of_replicas": 1}});
    let result = refused("unfit-alone", Some(alone)).await;
    assert!(result.contains("wait_for_active_shards"), "{result}");
    let expands = json!({"settings": {"number_of_replicas": 0, "auto_expand_replicas": "0-1"}});
    let result = refused("unfit-expands", Some(expands)).await;
    assert!(result.contains("auto_expand_replicas"), "{result}");
    let late = json!({"settings": {"number_of_replicas": 0, "translog": {"durability": "async"}}});
    let result = refused("unfit-late", Some(late)).await;
    assert!(result.contains("translog.durability"), "{result}");
    let words = json!({"settings": {"number_of_replicas": 0},
        "mappings": {"dynamic": "strict", "properties": {"balance": {"type": "keyword"}}}});
    let result = refused("unfit-words", Some(words)).await;
    assert!(result.contains("a different mapping"), "{result}");
    // Preparation leaves an existing index unchanged, and refuses it.
    let other = Coordinator::new(client.clone(), "unfit-words", "unfit-other-transactions");
    let result = other.prepare(0).await.unwrap_err().to_string();
    assert!(result.contains("a different mapping"), "{result}");
    let made = client.index_exists("unfit-other-transactions").await;
    assert!(!made.unwrap(), "nothing is made before all is judged");
    // One of the two is not enough.
    let whole = Coordinator::new(client.clone(), "unfit-whole", "unfit-whole-transactions");
    whole.prepare(0).await.unwrap();
    let half = Coordinator::new(client.clone(), "unfit-whole", "unfit-half-transactions");
    let result = half.run(&transfer).await.unwrap_err().to_string();
    assert!(
        result.contains("unfit-half-transactions does not exist"),
        "{result}"
    );
    let swapped = Coordinator::new(client, "unfit-whole-transactions", "unfit-whole");
    let result = swapped.run(&transfer).await.unwrap_err().to_string();
    assert!(result.contains("a different mapping"), "{result}");
}

#[tokio::test]
async fn rejects_unassignable_replicas_before_creating_the_index() {
    let Some(client) = support::opensearch("placeless") else {
        return;
    };
    let coordinator = Coordinator::new(client.clone(), "placeless", "placeless-transactions");
    let begun = std::time::Instant::now();
    let result = coordinator.prepare(1).await.unwrap_err();
    assert!(matches!(result, Failure::Misconfigured(_)), "{result:?}");
    let result = result.to_string();
    assert!(
        result.contains("--replicas 0") && result.contains("second node"),
        "{result}"
    );
    assert!(
        begun.elapsed() < std::time::Duration::from_secs(10),
        "it waited"
    );
    assert!(!client.index_exists("placeless").await.unwrap());
    coordinator.prepare(0).await.unwrap();
    // Existing indexes without replicas need no second node, regardless of the requested replicas.
    coordinator.prepare(1).await.unwrap();
}

#[tokio::test]
async fn an_auto_created_index_rejects_transactions() {
    let (fake, coordinator) = fake(3, Marks::Compared).await;
    opened(&coordinator, &[("a", 10), ("b", 0)]).await;
    let transfer = |id| Transaction::transfer(id, "a", "b", 1).unwrap();
    coordinator.run(&transfer("before")).await.unwrap();
    let client = coordinator.client();
    client.delete_index("transactions").await.unwrap();
    let result = coordinator.run(&transfer("t")).await.unwrap_err();
    assert!(
        matches!(result, Failure::Open(_)),
        "it wrote something: {result:?}"
    );
    let result = result.to_string();
    assert!(
        result.contains("the index transactions has replicas"),
        "{result}"
    );
    let a = fake.document("documents", "a").unwrap().source.unwrap();
    assert_eq!((&a["balance"], &a["holds"]), (&json!(9), &json!([])));
    for result in [
        coordinator.run(&transfer("u")).await,
        coordinator.create_transaction(&transfer("u")).await,
        coordinator.open("c", 1).await.map(drop),
    ] {
        assert!(
            matches!(result, Err(Failure::Misconfigured(_))),
            "{result:?}"
        );
    }
    client.delete_index("transactions").await.unwrap();
    coordinator.prepare(0).await.unwrap();
    client.delete_index("transactions").await.unwrap();
    let result = coordinator.create_transaction(&transfer("v")).await;
    assert!(matches!(result, Err(Failure::Open(_))), "{result:?}");
    client.delete_index("transactions").await.unwrap();
    coordinator.prepare(0).await.unwrap();
    client.delete_index("documents").await.unwrap();
    let result = coordinator.run(&transfer("w")).await;
    let Err(Failure::Misconfigured(why)) = result else {
        panic!("{result:?}");
    };
    assert!(why.contains("documents does not exist"), "{why}");
    assert!(fake.document("transactions", "w").is_none());
}
