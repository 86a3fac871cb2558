//! Limits the requests in flight: to the configured number, or to the connections that this process
//! can open.

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Permits for requests.
#[derive(Debug)]
pub struct Turns {
    open: Semaphore,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// The configured number of permits.
    wanted: usize,
    /// The current number of permits.
    turns: usize,
    /// Permits that are to be retired instead of released.
    to_retire: usize,
    /// Requests that found a file descriptor since the number changed.
    found: usize,
    /// Whether the reduction was logged.
    is_said: bool,
}

/// After this many rounds of requests that each found a file descriptor, one permit is added.
const ROUNDS_PER_PERMIT: usize = 8;

impl Turns {
    /// Allows at most this many requests at once.
    pub fn new(requests: usize) -> Self {
        let requests = requests.min(Semaphore::MAX_PERMITS);
        Self {
            open: Semaphore::new(requests),
            counts: Mutex::new(Counts {
                wanted: requests,
                turns: requests,
                to_retire: 0,
                found: 0,
                is_said: false,
            }),
        }
    }

    /// Waits for a permit, which is released when it is dropped.
    pub async fn next(&self) -> Option<SemaphorePermit<'_>> {
        loop {
            let turn = self.open.acquire().await.ok()?;
            let mut counts = self.counts();
            if counts.to_retire == 0 {
                return Some(turn);
            }
            counts.to_retire -= 1;
            turn.forget();
        }
    }

    /// Reduces the limit because a request found no file descriptor: to seven eighths of the other
    /// requests in flight, because the rest of the process needs descriptors too; never below one.
    /// Returns `true` the first time.
    pub fn lower(&self) -> bool {
        let mut counts = self.counts();
        let all = counts.turns + counts.to_retire;
        let others = all.saturating_sub(self.open.available_permits() + 1);
        let fewer = (others - others / 8).clamp(1, counts.turns);
        counts.to_retire += counts.turns - fewer;
        counts.to_retire -= self.open.forget_permits(counts.to_retire);
        counts.turns = fewer;
        counts.found = 0;
        !std::mem::replace(&mut counts.is_said, true)
    }

    /// Records that a request found a file descriptor. After a reduction this adds one permit after
    /// a while, up to the configured number: the cause of the shortage may be gone. If it is not,
    /// one request in eight rounds finds none.
    pub fn found(&self) {
        let mut counts = self.counts();
        if counts.turns == counts.wanted {
            return;
        }
        counts.found += 1;
        if counts.found < counts.turns.saturating_mul(ROUNDS_PER_PERMIT) {
            return;
        }
        counts.found = 0;
        counts.turns += 1;
        counts.is_said &= counts.turns < counts.wanted;
        match counts.to_retire.checked_sub(1) {
            Some(to_retire) => counts.to_retire = to_retire,
            None => self.open.add_permits(1),
        }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    /// Returns how many permits are left.
    async fn left(turns: &Turns) -> usize {
        let mut held = Vec::new();
        while turns.open.available_permits() > turns.counts().to_retire {
            held.push(turns.next().await.unwrap());
        }
        held.len()
    }

    #[tokio::test]
    async fn concurrency_shrinks_below_requests_in_flight_but_not_to_zero() {
        let turns = Turns::new(usize::MAX);
        let mut under_way = Vec::new();
        for _ in 0..100 {
            under_way.push(turns.next().await.unwrap());
        }
        // Thirty-six requests find none; each later one sees fewer others in flight.
        for _ in 0..36 {
            assert_eq!(turns.lower(), under_way.len() == 100);
            under_way.pop();
        }
        under_way.clear();
        assert_eq!(left(&turns).await, 56);
        for _ in 0..3 {
            let _alone = turns.next().await.unwrap();
            assert!(!turns.lower());
        }
        assert_eq!(left(&turns).await, 1);
    }
}
