//! How many requests are under way at once: as many as were asked for, or as many as this process
//! may have connections.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The right to a request, which others wait for.
#[derive(Debug)]
pub struct Turns {
    open: Semaphore,
    kept: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// How many were asked for.
    wanted: usize,
    /// How many there are at once.
    turns: usize,
    /// How many of them come to nobody any more when they end.
    over: usize,
    /// How many found a file descriptor since the number changed.
    found: usize,
    /// That they became fewer was said.
    is_said: bool,
}

/// After this many rounds in which each found a file descriptor there is a turn more.
const ROUNDS: usize = 8;

impl Turns {
    /// At most this many at once.
    pub fn new(requests: usize) -> Self {
        let requests = requests.min(Semaphore::MAX_PERMITS);
        Self {
            open: Semaphore::new(requests),
            kept: Mutex::new(Counts {
                wanted: requests,
                turns: requests,
                over: 0,
                found: 0,
                is_said: false,
            }),
        }
    }

    /// Waits for one, which ends when it is dropped.
    pub async fn next(&self) -> Option<SemaphorePermit<'_>> {
        loop {
            let turn = self.open.acquire().await.ok()?;
            let mut kept = self.kept();
            if kept.over == 0 {
                return Some(turn);
            }
            kept.over -= 1;
            turn.forget();
        }
    }

    /// One of those under way found no file descriptor: from now on there are fewer than the others
    /// are, by an eighth, which others in the process need as well; never less than one. True the
    /// first time.
    pub fn lower(&self) -> bool {
        let mut kept = self.kept();
        let all = kept.turns + kept.over;
        let others = all.saturating_sub(self.open.available_permits() + 1);
        let fewer = (others - others / 8).clamp(1, kept.turns);
        kept.over += kept.turns - fewer;
        kept.over -= self.open.forget_permits(kept.over);
        kept.turns = fewer;
        kept.found = 0;
        !std::mem::replace(&mut kept.is_said, true)
    }

    /// One of those under way found a file descriptor. Where they had become fewer there is one
    /// more after a while, up to as many as were asked for: what took the descriptors may be gone.
    /// If it is not, one request in eight rounds finds none.
    pub fn found(&self) {
        let mut kept = self.kept();
        if kept.turns == kept.wanted {
            return;
        }
        kept.found += 1;
        if kept.found < kept.turns.saturating_mul(ROUNDS) {
            return;
        }
        kept.found = 0;
        kept.turns += 1;
        kept.is_said &= kept.turns < kept.wanted;
        match kept.over.checked_sub(1) {
            Some(over) => kept.over = over,
            None => self.open.add_permits(1),
        }
    }

    fn kept(&self) -> MutexGuard<'_, Counts> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::Turns;

    /// How many there are at once.
    async fn left(turns: &Turns) -> usize {
        let mut held = Vec::new();
        while turns.open.available_permits() > turns.kept().over {
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
        // Thirty-six find none; those that come after them are fewer than the others were.
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
