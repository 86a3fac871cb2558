//! Requests about whole indexes: aliases, mappings, and blocked writes.

use posthaste_elastic::{AliasChange, Client, ErrorKind, Operation};
use serde_json::{Value, json};

use crate::support::{created, fake, kind, opensearch, put};

hold! {
    aliases_can_be_switched_between_indexes,
    alias_changes_are_conditional_on_their_current_target,
    writes_through_an_alias_create_no_index,
    indexes_blocked_by_the_disk_watermark_reject_each_write,
    mappings_grow_without_changing_existing_fields,
    the_number_of_data_nodes_is_reported,
}

async fn aliases_can_be_switched_between_indexes(client: Client) {
    for index in ["aliased-1", "aliased-2"] {
        assert!(!client.index_exists(index).await.unwrap());
        created(&client, index).await;
        assert!(!client.create_index(index, &json!({})).await.unwrap());
    }
    assert!(client.resolve_alias("aliased").await.unwrap().is_empty());
    client.switch_alias("aliased", "aliased-1").await.unwrap();
    client.write(&put("aliased", "a", 1)).await.unwrap();
    client.switch_alias("aliased", "aliased-2").await.unwrap();
    assert_eq!(
        client.resolve_alias("aliased").await.unwrap(),
        ["aliased-2"]
    );
    assert!(client.get("aliased", "a").await.unwrap().is_none());
    assert!(client.get("aliased-1", "a").await.unwrap().is_some());
    let described = client.describe_index("aliased").await.unwrap().unwrap();
    assert_eq!(described["mappings"]["dynamic"], "strict");
    assert_eq!(
        kind(client.delete_index("aliased").await),
        ErrorKind::Refused
    );
    assert!(client.delete_index("aliased-1").await.unwrap());
    assert!(!client.delete_index("aliased-1").await.unwrap());
    assert_eq!(
        kind(client.delete_index("aliased*").await),
        ErrorKind::Invalid
    );
    assert_eq!(
        kind(client.switch_alias("aliased", "aliased-1").await),
        ErrorKind::NoIndex
    );
    assert_eq!(
        client.resolve_alias("aliased").await.unwrap(),
        ["aliased-2"]
    );
}

async fn alias_changes_are_conditional_on_their_current_target(client: Client) {
    for index in ["moved-1", "moved-2", "moved-3"] {
        created(&client, index).await;
    }
    client.switch_alias("moved", "moved-1").await.unwrap();
    client.switch_alias("moved-next", "moved-2").await.unwrap();
    let (alias, next) = ("moved", "moved-next");
    let changes = |from| {
        let index = "moved-2";
        [
            AliasChange::Remove { alias, index: from },
            AliasChange::Add { alias, index },
            AliasChange::Remove { alias: next, index },
        ]
    };
    let outcome = client.change_aliases(&changes("moved-3")).await;
    assert_eq!(kind(outcome), ErrorKind::Missing);
    assert_eq!(client.resolve_alias(alias).await.unwrap(), ["moved-1"]);
    assert_eq!(client.resolve_alias(next).await.unwrap(), ["moved-2"]);
    client.change_aliases(&changes("moved-1")).await.unwrap();
    assert_eq!(client.resolve_alias(alias).await.unwrap(), ["moved-2"]);
    assert!(client.resolve_alias(next).await.unwrap().is_empty());
    let outcome = client.change_aliases(&changes("moved-1")).await;
    assert_eq!(kind(outcome), ErrorKind::Missing);
}

async fn writes_through_an_alias_create_no_index(client: Client) {
    let write = || put("by-alias", "a", 1).by_alias();
    let outcome = client.write(&write()).await;
    assert_eq!(kind(outcome), ErrorKind::NoIndex);
    assert!(!client.index_exists("by-alias").await.unwrap());
    created(&client, "by-alias-1").await;
    client.switch_alias("by-alias", "by-alias-1").await.unwrap();
    client.write(&write()).await.unwrap();
    let outcome = client.write(&put("by-alias-1", "a", 2).by_alias()).await;
    assert_eq!(kind(outcome), ErrorKind::NoIndex);
}

async fn indexes_blocked_by_the_disk_watermark_reject_each_write(client: Client) {
    created(&client, "closed").await;
    let closed = |closed: Value| json!({"index": {"blocks": {"read_only_allow_delete": closed}}});
    client
        .put_settings("closed", &closed(json!(true)))
        .await
        .unwrap();
    let error = client.write(&put("closed", "a", 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Blocked);
    assert!(error.may_pass() && !error.may_have_been_done());
    client
        .put_settings("closed", &closed(Value::Null))
        .await
        .unwrap();
    client.write(&put("closed", "a", 1)).await.unwrap();
}

async fn mappings_grow_without_changing_existing_fields(client: Client) {
    created(&client, "grown").await;
    let several = json!({"several": [{"name": "x"}, {"name": "y"}]});
    let several = Operation::index("grown", "a", &several).unwrap();
    assert_eq!(kind(client.write(&several).await), ErrorKind::Refused);
    let field = json!({"properties": {"name": {"type": "keyword"}}});
    let more = json!({"properties": {"several": field}});
    client.put_mapping("grown", &more).await.unwrap();
    client.write(&several).await.unwrap();
    client.refresh("grown").await.unwrap();
    for (name, count) in [("x", 1), ("y", 1), ("z", 0)] {
        let query = json!({"terms": {"several.name": [name]}});
        let found = client.count("grown", Some(&query)).await.unwrap();
        assert_eq!(found, count, "{name}");
    }
    let other = json!({"properties": {"n": {"type": "keyword"}}});
    let refused = client.put_mapping("grown", &other).await;
    assert_eq!(kind(refused), ErrorKind::Refused);
}

async fn the_number_of_data_nodes_is_reported(client: Client) {
    assert_eq!(client.data_nodes().await.unwrap(), 1);
}
