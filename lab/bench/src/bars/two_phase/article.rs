//! The seven updates of the published protocol, one after the other. They are fast and lose money
//! after failures; there are no failures here.

use anyhow::{Result, ensure};
use posthaste_elastic::{Client, Effect, Operation, Script};
use serde_json::{Value, json};

use super::ground::{ACCOUNTS, AT_ONCE, BALANCE, Ground, account, at_once, pair};
use super::{LATENCY, RATE};
use crate::rounds::Figures;
use crate::statistics::percentile;
use crate::taint::Watch;

const SCRIPTS: [(&str, &str); 3] = [
    (STATE, include_str!("state.painless")),
    (APPLY, include_str!("apply.painless")),
    (REMOVE, include_str!("remove.painless")),
];
const STATE: &str = "bench-article-state";
const APPLY: &str = "bench-article-apply";
const REMOVE: &str = "bench-article-remove";
/// How often the server retries an update after a concurrent write.
const RETRIES: u32 = 3;
/// The number of documents in one request.
const CHUNK: usize = 500;

/// Runs many transfers at once.
pub(super) async fn transfers(ground: &Ground, count: usize) -> Result<Figures> {
    let indexes = ground.indexes();
    let article = Article::prepared(&ground.client, &indexes, "many", count).await?;
    let watch = Watch::begin()?;
    let (rate, taken) = at_once(count, AT_ONCE, async |at| article.run("many", at).await).await?;
    let figures = Figures::measured_under(watch.finish()?);
    ground.clear(&indexes).await?;
    Ok(figures
        .with(LATENCY, percentile(&taken, 0.5))
        .with("p99_ms", percentile(&taken, 0.99))
        .with(RATE, rate))
}

async fn prepare(client: &Client, indexes: &[String; 2], kind: &str, count: usize) -> Result<()> {
    let keyword = json!({"type": "keyword"});
    let account_fields = json!({"balance": {"type": "long"}, "pending_transactions": keyword});
    let transaction_fields = json!({
        "amount": {"type": "long"}, "src_acct": keyword, "dest_acct": keyword,
        "transaction_state": keyword, "modification_time": {"type": "date"},
    });
    for (index, fields) in indexes.iter().zip([account_fields, transaction_fields]) {
        let definition = json!({
            "settings": {"number_of_replicas": 0},
            "mappings": {"dynamic": "strict", "properties": fields},
        });
        client.create_index(index, &definition).await?;
    }
    for (id, source) in SCRIPTS {
        client.put_script(id, source).await?;
    }
    let [accounts, transactions] = indexes;
    let opened = json!({"balance": BALANCE, "pending_transactions": []});
    let mut all = Vec::new();
    for at in 0..ACCOUNTS {
        all.push(Operation::create(accounts, &account(at), &opened)?);
    }
    for at in 0..count {
        let (from, to) = pair(at);
        let transaction =
            json!({"amount": 1, "src_acct": from, "dest_acct": to, "transaction_state": "created"});
        let id = format!("{kind}{at}");
        all.push(Operation::create(transactions, &id, &transaction)?);
    }
    for some in all.chunks(CHUNK) {
        let outcomes = client.bulk(some).await?;
        ensure!(outcomes.iter().all(Result::is_ok), "not all was created");
    }
    Ok(())
}

/// The accounts and transactions of the protocol.
pub(super) struct Article<'g> {
    client: &'g Client,
    indexes: &'g [String; 2],
}

impl<'g> Article<'g> {
    /// Prepares this many transactions of a kind.
    pub(super) async fn prepared(
        client: &'g Client,
        indexes: &'g [String; 2],
        kind: &str,
        count: usize,
    ) -> Result<Self> {
        prepare(client, indexes, kind, count).await?;
        Ok(Self { client, indexes })
    }

    pub(super) async fn run(&self, kind: &str, at: usize) -> Result<()> {
        let id = &format!("{kind}{at}");
        let (from, to) = pair(at);
        let moved = |amount: i64| json!({"id": id, "amount": amount});
        self.state(id, "created", "pending").await?;
        self.account(&from, APPLY, moved(-1)).await?;
        self.account(&to, APPLY, moved(1)).await?;
        self.state(id, "pending", "committed").await?;
        self.account(&from, REMOVE, moved(-1)).await?;
        self.account(&to, REMOVE, moved(1)).await?;
        self.state(id, "committed", "finished").await
    }

    async fn state(&self, id: &str, from: &str, to: &str) -> Result<()> {
        let params = json!({"from": from, "to": to});
        self.update(&self.indexes[1], id, STATE, params).await
    }

    async fn account(&self, id: &str, script: &str, params: Value) -> Result<()> {
        self.update(&self.indexes[0], id, script, params).await
    }

    async fn update(&self, index: &str, id: &str, script: &str, params: Value) -> Result<()> {
        let script = Script { id: script, params };
        let update = Operation::update(index, id, &script)?.retried(RETRIES);
        let written = self.client.write(&update).await?;
        ensure!(written.effect == Effect::Updated, "{written:?}");
        Ok(())
    }
}
