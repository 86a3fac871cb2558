//! The promoter: when parked jobs and the lines of ordering keys are looked at. It sleeps until the next job is due; whoever parks one, lines up or
//! ends a turn rings for it.

use std::time::{Duration, Instant};

use super::attempt;
use crate::engine::Engine;

/// Jobs promoted in one transaction: claims never wait behind more than this.
const PROMOTE: i32 = 5_000;
/// Jobs with ordering keys that line up in one transaction.
const LINE_UP: i32 = 1_000;
/// After somebody lined up or ended, the lines are looked at this often for a second.
const TURNS: Duration = Duration::from_millis(2);
const TURNING: Duration = Duration::from_secs(1);
/// The longest sleep: how late a job may be that rang no bell.
const AHEAD: Duration = Duration::from_secs(4);
/// Asking for the next job that is due may walk rows of an open or rolled-back transaction. When it takes longer than this, it is left for a while.
const SLOW: Duration = Duration::from_millis(20);

pub(super) struct Promoter {
    looked_at: Instant,
    look_at: Instant,
    found_at: Instant,
    turned_at: Option<Instant>,
    /// Until then it is not asked what comes next: a look at each interval costs less.
    blind_until: Instant,
}

impl Promoter {
    pub(super) fn new() -> Self {
        let now = Instant::now();
        Self {
            looked_at: now,
            look_at: now,
            found_at: now,
            turned_at: None,
            blind_until: now,
        }
    }

    /// Completes when somebody parked a job.
    pub(super) async fn rung(&mut self, engine: &Engine) {
        engine.bell.promoter.rung.notified().await;
        let soon = self.looked_at + engine.config.promote_interval;
        self.look_at = soon.min(self.look_at);
    }

    /// Promotes if it is time to; how long nothing is to be done.
    pub(super) async fn turn(&mut self, engine: &Engine) -> Duration {
        if Instant::now() >= self.look_at {
            self.looked_at = Instant::now();
            let pause = self.page(engine).await;
            self.look_at = Instant::now() + pause;
            self.take_turns(engine).await;
        } else if self.is_turning() {
            self.take_turns(engine).await;
        }
        let pause = self.look_at.saturating_duration_since(Instant::now());
        if self.is_turning() {
            pause.min(TURNS)
        } else {
            pause
        }
    }

    async fn take_turns(&mut self, engine: &Engine) {
        if attempt!(&engine.promotion, take_turns(LINE_UP)).is_some_and(|jobs| jobs > 0) {
            self.turned_at = Some(Instant::now());
        }
    }

    fn is_turning(&self) -> bool {
        self.turned_at.is_some_and(|at| at.elapsed() < TURNING)
    }

    /// Promotes what is due, a page of it, and returns how long to pause.
    async fn page(&mut self, engine: &Engine) -> Duration {
        let link = &engine.promotion;
        let shortest = engine.config.promote_interval;
        let asked = Instant::now();
        let ahead = if asked < self.blind_until {
            Duration::ZERO
        } else {
            AHEAD
        };
        let due = attempt!(
            link,
            tell_due(i64::try_from(ahead.as_millis()).unwrap_or(0))
        );
        let took = asked.elapsed();
        if took > SLOW {
            self.blind_until = asked + took * 50;
        }
        let due = match due {
            Some(Some(milliseconds)) => Duration::from_millis(milliseconds.unsigned_abs()),
            Some(None) => AHEAD,
            None => Duration::ZERO,
        };
        // What is due may be of a transaction that ended late.
        let promoted = attempt!(link, promote(PROMOTE, false)).unwrap_or(0);
        // While there is an old generation, something may always be due.
        let carried = if due.is_zero() {
            attempt!(link, promote(PROMOTE, true)).unwrap_or(0)
        } else {
            0
        };
        if promoted.max(carried) > 0 {
            self.found_at = Instant::now();
        }
        if promoted.max(carried) >= i64::from(PROMOTE) {
            return Duration::from_millis(1);
        }
        let sleeper = &engine.bell.promoter;
        let idle = self.found_at.elapsed();
        let sleep = engine.bell.pause(sleeper, idle, AHEAD);
        if !sleeper.is_armed() || ahead.is_zero() {
            return shortest;
        }
        // An eighth of the time since it was armed, in which a transaction that did not see it armed may have committed.
        let sleep = sleep.unwrap_or(AHEAD);
        sleep.min(due).max(shortest)
    }
}
