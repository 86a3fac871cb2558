//! The actions of workers: they claim, close jobs, lose claims, and die.

use std::collections::{BTreeMap, BTreeSet};

use posthaste::State;
use proptest::sample::Index;
use tokio_postgres::types::ToSql;
use uuid::Uuid;

use super::{ModelResult, QUEUES, Store, expect};
use crate::model::book::{Book, Hand, Job};
use crate::model::step::Close;

impl Store {
    /// Claims; returns whether any job came. Claimed jobs must be available, and of the first lane;
    /// and jobs must come while any is available.
    pub(super) async fn claim(
        &mut self,
        worker: usize,
        queue: usize,
        most: i32,
        book: &mut Book,
    ) -> ModelResult<bool> {
        let token = Uuid::new_v4();
        let sql = "SELECT slot, batch, id, attempt, priority FROM posthaste.claim($1, ARRAY[0, 1], \
                   $2, $3, $4, 1 << 24)";
        let id = self.workers[worker];
        let rows = self
            .rows(sql, &[&QUEUES[queue], &id, &token, &most])
            .await?;
        let available = book.available(queue, State::Available);
        if rows.is_empty() != available.is_empty() || rows.len() > most as usize {
            return Err(format!("{} came of {available:?}", rows.len()));
        }
        let first = available.iter().map(|id| book.jobs[id].priority).min();
        let mut hands: BTreeMap<(i16, i64), Vec<i64>> = BTreeMap::new();
        for (at, row) in rows.iter().enumerate() {
            let id: i64 = row.get(2);
            let job = &book.jobs[&id];
            if !available.contains(&id) {
                return Err(format!("{id} came, which is {job:?}"));
            }
            expect((row.get(3), row.get(4)), (job.attempt, job.priority))?;
            if at == 0 {
                expect(Some(job.priority), first)?;
            }
            hands.entry((row.get(0), row.get(1))).or_default().push(id);
        }
        for ((slot, batch), given) in hands {
            book.claimed(hand(self.workers[worker], slot, batch, token, given));
        }
        Ok(!rows.is_empty())
    }

    pub(super) async fn claim_quarantined(
        &mut self,
        worker: usize,
        queue: usize,
        book: &mut Book,
    ) -> ModelResult {
        let now =
            "UPDATE posthaste.in_flight SET until = clock_timestamp() WHERE state = 'quarantined'";
        self.rows(now, &[]).await?;
        let token = Uuid::new_v4();
        let sql = "SELECT slot, batch, id FROM posthaste.claim_quarantined($1, $2, $3)";
        let id = self.workers[worker];
        let rows = self.rows(sql, &[&QUEUES[queue], &id, &token]).await?;
        let quarantined = book.available(queue, State::Quarantined);
        expect(rows.len(), quarantined.len().min(1))?;
        for row in rows {
            let id: i64 = row.get(2);
            if !quarantined.contains(&id) {
                return Err(format!("{id} came, of {quarantined:?}"));
            }
            book.claimed(hand(
                self.workers[worker],
                row.get(0),
                row.get(1),
                token,
                vec![id],
            ));
        }
        Ok(())
    }

    pub(super) async fn settle(
        &mut self,
        hand: Index,
        some: u8,
        how: Close,
        book: &mut Book,
    ) -> ModelResult {
        if book.hands.is_empty() {
            return Ok(());
        }
        let at = hand.index(book.hands.len());
        let Hand {
            slot,
            batch,
            token,
            given,
            ..
        } = book.hands[at].clone();
        let chosen = given.into_iter().enumerate();
        let ids: Vec<i64> = chosen
            .filter(|(nth, _)| some >> (nth % 8) & 1 == 1)
            .map(|(_, id)| id)
            .collect();
        if ids.is_empty() {
            return Ok(());
        }
        let mut kinds: Vec<i16> = Vec::new();
        let mut attempts: Vec<i32> = Vec::new();
        for id in &ids {
            let Job { attempt, most, .. } = book.jobs[id];
            let counted = attempt + 1;
            let is_last = most.is_some_and(|most| counted >= most);
            let (kind, attempt) = match how {
                Close::Done => (0, attempt),
                Close::Fail { .. } if is_last => (2, counted),
                Close::Fail { .. } => (1, counted),
                Close::Snooze { .. } => (1, attempt),
                Close::Discard => (2, counted),
                Close::Await => (4, attempt),
                Close::GiveBack => (8, attempt),
            };
            kinds.push(kind);
            attempts.push(attempt);
        }
        let state = if how == Close::Discard {
            "discarded"
        } else {
            "dead"
        };
        let is_later = matches!(
            how,
            Close::Fail { later: true } | Close::Snooze { later: true } | Close::Await
        );
        let hours = i32::from(is_later);
        let sql = "SELECT posthaste.settle($1, $2, $3, $4::bigint[], $5, $6, NULL,
              array_fill(now() + $7::integer * interval '1 hour',
                ARRAY[cardinality($4::bigint[])]), array_fill($8::text,
                ARRAY[cardinality($4::bigint[])]),
              array_fill('an error'::text, ARRAY[cardinality($4::bigint[])]))";
        let values: [&(dyn ToSql + Sync); 8] = [
            &slot, &batch, &token, &ids, &kinds, &attempts, &hours, &state,
        ];
        let ours: Vec<i64> = self.ask(sql, &values).await?;
        let mut expected = BTreeSet::new();
        for id in ids {
            if book.settled(at, id, how) {
                expected.insert(id);
            }
        }
        expect(BTreeSet::from_iter(ours), expected)
    }

    /// As workers do: only if no job has a key.
    pub(super) async fn close_batches(&mut self, hand: Index, book: &mut Book) -> ModelResult {
        if book.hands.is_empty() {
            return Ok(());
        }
        let at = hand.index(book.hands.len());
        let hand = book.hands[at].clone();
        let is_keyed = |job: &Job| job.key.is_some() || job.ordering_key.is_some();
        if hand.given.iter().any(|id| is_keyed(&book.jobs[id])) {
            return Ok(());
        }
        let sql = "SELECT posthaste.close_batches(ARRAY[$1::smallint], ARRAY[$2::bigint], \
                   ARRAY[$3::uuid], ARRAY[$4::integer])";
        let jobs = i32::try_from(hand.given.len()).unwrap_or(0);
        let left: Vec<i32> = self
            .ask(sql, &[&hand.slot, &hand.batch, &hand.token, &jobs])
            .await?;
        let is_whole = self.is_whole(&hand).await?;
        expect(left.is_empty(), is_whole)?;
        if is_whole {
            for id in &hand.given {
                book.settled(at, *id, Close::Done);
            }
        }
        Ok(())
    }

    /// Whether it can be closed by one row.
    async fn is_whole(&mut self, hand: &Hand) -> Result<bool, String> {
        if hand.slot < 0 || hand.is_split {
            return Ok(false);
        }
        // A batch over jobs that were closed before it was claimed is settled job by job.
        let sql = format!(
            "SELECT n FROM posthaste.claim_{} WHERE batch = $1",
            hand.slot
        );
        let jobs: i32 = self.ask(&sql, &[&hand.batch]).await?;
        Ok(usize::try_from(jobs) == Ok(hand.given.len()))
    }

    pub(super) async fn reschedule(
        &mut self,
        hand: Index,
        later: bool,
        book: &mut Book,
    ) -> ModelResult {
        if book.hands.is_empty() {
            return Ok(());
        }
        let at = hand.index(book.hands.len());
        let hand = book.hands[at].clone();
        if hand.slot < 0 {
            return Ok(());
        }
        let sql = "SELECT posthaste.reschedule($1, $2, $3, $4, $5::integer * interval '1 hour', \
                   'an error')";
        let jobs = i32::try_from(hand.given.len()).unwrap_or(0);
        let hours = i32::from(later);
        let is_done: bool = self
            .ask(sql, &[&hand.slot, &hand.batch, &hand.token, &jobs, &hours])
            .await?;
        let is_whole = self.is_whole(&hand).await?;
        expect(is_done, is_whole)?;
        if is_whole {
            for id in &hand.given {
                book.settled(at, *id, Close::Snooze { later });
            }
        }
        Ok(())
    }

    pub(super) async fn return_claim(&mut self, hand: Index, book: &mut Book) -> ModelResult {
        if book.hands.is_empty() {
            return Ok(());
        }
        let Hand { worker, token, .. } = book.hands[hand.index(book.hands.len())];
        let sql = "SELECT posthaste.return_claim($1, $2)";
        let given: i64 = self.ask(sql, &[&worker, &token]).await?;
        let mut expected = 0;
        for hand in 0..book.hands.len() {
            if book.hands[hand].token == token {
                for id in book.hands[hand].open.clone() {
                    expected += i64::from(book.settled(hand, id, Close::GiveBack));
                }
            }
        }
        expect(given, expected)
    }

    pub(super) async fn kill(&mut self, worker: usize, book: &mut Book) -> ModelResult {
        let id = self.workers[worker];
        let sql = "SELECT posthaste.rescue($1, 0)";
        let _: i64 = self.ask(sql, &[&id]).await?;
        book.worker_died(id);
        self.workers[worker] = self.register().await?;
        Ok(())
    }
}

fn hand(worker: i64, slot: i16, batch: i64, token: Uuid, given: Vec<i64>) -> Hand {
    Hand {
        worker,
        slot,
        batch,
        token,
        open: given.iter().copied().collect(),
        given,
        is_split: false,
    }
}
