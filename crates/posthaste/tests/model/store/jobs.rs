//! What happens to one job where it lies: its time comes, or is over; people confirm, cancel and redrive it.

use posthaste::{Event, State};

use super::{Store, Told, expect};
use crate::model::book::Book;
use crate::model::step::Step;

impl Store {
    pub(super) async fn touch(&mut self, step: &Step, book: &mut Book) -> Told {
        use State::{
            Awaiting, Cancelled, Claimable, Dead, Discarded, Expired, Retrying, Scheduled, Suspect,
            Waiting,
        };
        let kept = [Dead, Discarded, Expired, Cancelled];
        let (job, jobs) = match step {
            Step::Due { job } => (job, book.in_state(&[Scheduled, Retrying])),
            Step::Expire { job } => {
                let waiting = [Scheduled, Waiting, Claimable, Retrying, Awaiting, Suspect];
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
                let sql = "SELECT posthaste.done(posthaste.delivery_id($1))";
                expect(self.ask(sql, &[&id]).await?, true)?;
                book.confirmed(id);
            }
            Step::Cancel { .. } => {
                let said: Option<String> = self.ask("SELECT posthaste.cancel($1)", &[&id]).await?;
                if said.is_none() || !book.may_be_running(id) {
                    expect(said.as_deref(), book.cancelled(id))?;
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
                let now = "UPDATE posthaste.held SET until = clock_timestamp() WHERE id = $1";
                self.rows(now, &[&id]).await?;
                let _: i64 = self.ask("SELECT posthaste.overdue(100)", &[]).await?;
                book.failed(id, false);
            }
        }
        Ok(())
    }

    /// The time of a parked job has come: the clock is not turned, the job is. What was promoted before keeps its place.
    async fn come(&mut self, id: i64) -> Told {
        let sql = "UPDATE posthaste.store s SET scheduled_at = clock_timestamp() WHERE s.id = $1 AND s.slot >= 6
            AND s.xid = (SELECT max(t.xid) FROM posthaste.store t WHERE t.id = $1 AND t.slot >= 6)";
        self.rows(sql, &[&id]).await?;
        let _: bool = self.ask("SELECT posthaste.tell_due()", &[]).await?;
        for is_old in [true, false] {
            let sql = "SELECT posthaste.promote(100, $1)";
            while self.ask::<i64>(sql, &[&is_old]).await? > 0 {}
        }
        Ok(())
    }

    /// The time of a job that waits is over, and whose duty that is finds it.
    async fn pass(&mut self, id: i64) -> Told {
        for table in ["store", "held"] {
            let sql =
                format!("UPDATE posthaste.{table} SET expires_at = '2000-01-01' WHERE id = $1");
            self.rows(&sql, &[&id]).await?;
        }
        for slot in 0..8i32 {
            let _: i64 = self
                .ask("SELECT posthaste.expire($1, 100)", &[&slot])
                .await?;
        }
        let _: i64 = self.ask("SELECT posthaste.overdue(100)", &[]).await?;
        Ok(())
    }
}
