//! How many requests are under way at once: as many as were asked for, or as many as this process
//! may have connections.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Semaphore, SemaphorePermit};

/// The right to a request, which others wait for.
#[derive(Debug)]
pub struct Turns {
    open: Semaphore,
    kept: Mutex<Kept>,
}

#[derive(Debug)]
struct Kept {
    /// So many at once.
    turns: usize,
    /// So many come to nobody any more when they end.
    over: usize,
    /// That they became fewer was said.
    is_said: bool,
}

impl Turns {
    /// At most this many at once.
    pub fn new(requests: usize) -> Self {
        let requests = requests.min(Semaphore::MAX_PERMITS);
        Self {
            open: Semaphore::new(requests),
            kept: Mutex::new(Kept {
                turns: requests,
                over: 0,
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
        !std::mem::replace(&mut kept.is_said, true)
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
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
    async fn turns_become_fewer_than_are_under_way_but_never_none() {
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
