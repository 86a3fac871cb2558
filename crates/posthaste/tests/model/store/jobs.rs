//! Changes to one job where it is stored: it becomes due or expires; operators confirm, cancel and
//! redrive it.

use posthaste::__private::Event;
use posthaste::State;

use super::{ModelResult, Store, expect};
use crate::model::book::Book;
use crate::model::step::Step;

impl Store {
    pub(super) async fn touch(&mut self, step: &Step, book: &mut Book) -> ModelResult {
        use State::{
            Available, Awaiting, Blocked, Cancelled, Dead, Discarded, Expired, Quarantined,
            Retrying, Scheduled,
        };
        let kept = [Dead, Discarded, Expired, Cancelled];
        let (job, jobs) = match step {
            Step::Due { job } => (job, book.in_state(&[Scheduled, Retrying])),
            Step::Expire { job } => {
                let waiting = [
                    Scheduled,
                    Blocked,
                    Available,
                    Retrying,
                    Awaiting,
                    Quarantined,
                ];
                (job, book.in_state(&waiting))
            }
            Step::Overdue { job } => (job, book.in_state(&[Awaiting])),
            Step::Redrive { job } => (job, book.in_state(&kept)),
            Step::Confirm { job } | Step::Cancel { job } => {
                (job, book.jobs.keys().copied().collect())
            }
            _ => return Ok(()),
        };
        if jobs.is_empty() {
            return Ok(());
        }
        let id = jobs[job.index(jobs.len())];
        match step {
            Step::Confirm { .. } => {
                let sql = "SELECT posthaste.confirm(posthaste.delivery_id($1))";
                expect(self.ask(sql, &[&id]).await?, true)?;
                book.confirmed(id);
            }
            Step::Cancel { .. } => {
                let answer: Option<String> =
                    self.ask("SELECT posthaste.cancel($1)", &[&id]).await?;
                if answer.is_none() || !book.may_be_running(id) {
                    expect(answer.as_deref(), book.cancelled(id))?;
                }
            }
            Step::Redrive { .. } => {
                let sql = "SELECT posthaste.redrive(ARRAY[$1::bigint])";
                expect(self.rows(sql, &[&id]).await?.len() == 1, book.redriven(id))?;
            }
            Step::Due { .. } => {
                self.come(id).await?;
                book.due(id);
            }
            Step::Expire { .. } => {
                self.pass(id).await?;
                book.happens(id, Event::Expired);
            }
            _ => {
                let now = "UPDATE posthaste.in_flight SET until = clock_timestamp() WHERE id = $1";
                self.rows(now, &[&id]).await?;
                let _: i64 = self.ask("SELECT posthaste.retry_overdue(100)", &[]).await?;
                book.failed(id, false);
            }
        }
        Ok(())
    }

    /// Makes a scheduled job due by changing the job, not the clock. A job that was promoted before
    /// stays where it is.
    async fn come(&mut self, id: i64) -> ModelResult {
        let sql = "UPDATE posthaste.store s SET scheduled_at = clock_timestamp() WHERE s.id = $1
            AND s.slot >= 6
            AND s.xid = (SELECT max(t.xid) FROM posthaste.store t WHERE t.id = $1 AND t.slot >= 6)";
        self.rows(sql, &[&id]).await?;
        let _: bool = self.ask("SELECT posthaste.publish_horizon()", &[]).await?;
        for is_old in [true, false] {
            let sql = "SELECT posthaste.promote(100, $1)";
            while self.ask::<i64>(sql, &[&is_old]).await? > 0 {}
        }
        Ok(())
    }

    /// Lets the promoter follow a clock that is ahead, so that all jobs come early; then sets the
    /// clock back, and later jobs wait again.
    pub(super) async fn step_back(&mut self, book: &mut Book) -> ModelResult {
        self.one_scheduled_slot().await?;
        let ahead = "SELECT setval('posthaste.promote_horizon',
            (extract(epoch FROM clock_timestamp() + interval '2 hours') * 1000000)::bigint)";
        self.rows(ahead, &[]).await?;
        let sql = "SELECT posthaste.promote(1000, false)";
        while self.ask::<i64>(sql, &[]).await? > 0 {}
        for id in book.in_state(&[State::Scheduled, State::Retrying]) {
            book.due(id);
        }
        expect(
            self.ask("SELECT posthaste.publish_horizon()", &[]).await?,
            true,
        )?;
        let ahead = "SELECT posthaste.promote_horizon() > clock_timestamp()";
        expect(self.ask(ahead, &[]).await?, false)
    }

    /// Carries over the jobs of an older slot, and empties the slot.
    async fn one_scheduled_slot(&mut self) -> ModelResult {
        let sql = "SELECT posthaste.promote(1000, true)";
        while self.ask::<i64>(sql, &[]).await? > 0 {}
        let tidy = "SELECT o_state FROM posthaste.tidy_scheduled(1000000)";
        let _: String = self.ask(tidy, &[]).await?;
        expect(self.ask(tidy, &[]).await?, String::from("none"))
    }

    /// Expires a waiting job, and runs the duty that finds it.
    async fn pass(&mut self, id: i64) -> ModelResult {
        for table in ["store", "in_flight"] {
            let sql =
                format!("UPDATE posthaste.{table} SET expires_at = '2000-01-01' WHERE id = $1");
            self.rows(&sql, &[&id]).await?;
        }
        for slot in 0..8i32 {
            let _: i64 = self
                .ask("SELECT posthaste.expire($1, 100)", &[&slot])
                .await?;
        }
        let _: i64 = self.ask("SELECT posthaste.retry_overdue(100)", &[]).await?;
        Ok(())
    }
}
