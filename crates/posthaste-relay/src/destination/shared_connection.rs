//! A connection that opens on demand, is shared by many batches, and is dropped after an ambiguous
//! result.

use std::ops::Deref;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::OnceCell;

type ConnectionSlot<T> = Arc<OnceCell<Arc<T>>>;

/// Holds the open connection, if there is one.
pub(crate) struct SharedConnection<T>(Mutex<ConnectionSlot<T>>);

/// The use of a connection by one batch or request. Unless it finishes cleanly, no other use of
/// that connection begins: a future that was dropped midway may have left unread answers.
pub(crate) struct ConnectionGuard<'a, T> {
    link: &'a SharedConnection<T>,
    slot: ConnectionSlot<T>,
    connection: Arc<T>,
    is_over: bool,
}

impl<T> Default for SharedConnection<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T> SharedConnection<T> {
    /// Returns the open connection while it is alive, else a new one. Concurrent callers wait for
    /// the same connection attempt.
    pub(crate) async fn open<E>(
        &self,
        is_alive: impl FnOnce(&T) -> bool,
        connect: impl AsyncFnOnce() -> Result<T, E>,
    ) -> Result<ConnectionGuard<'_, T>, E> {
        let slot = self.usable_slot(is_alive);
        let opened = slot.get_or_try_init(async || connect().await.map(Arc::new));
        let connection = Arc::clone(opened.await?);
        Ok(ConnectionGuard {
            link: self,
            slot,
            connection,
            is_over: false,
        })
    }

    fn usable_slot(&self, is_alive: impl FnOnce(&T) -> bool) -> ConnectionSlot<T> {
        let mut slot = self.slot();
        if slot.get().is_some_and(|one| !is_alive(one)) {
            *slot = ConnectionSlot::default();
        }
        Arc::clone(&slot)
    }

    fn slot(&self) -> MutexGuard<'_, ConnectionSlot<T>> {
        self.0.lock()
    }
}

impl<T> ConnectionGuard<'_, T> {
    /// Records that every request was answered.
    pub(crate) fn finish_cleanly(mut self) {
        self.is_over = true;
    }
}

impl<T> Deref for ConnectionGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.connection
    }
}

impl<T> Drop for ConnectionGuard<'_, T> {
    fn drop(&mut self) {
        let mut slot = self.link.slot();
        if !self.is_over && Arc::ptr_eq(&slot, &self.slot) {
            *slot = ConnectionSlot::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{ConnectionGuard, SharedConnection};

    #[derive(Default)]
    struct Opener {
        link: SharedConnection<u32>,
        opened: AtomicU32,
    }

    impl Opener {
        async fn open(&self, is_alive: bool) -> ConnectionGuard<'_, u32> {
            let connect =
                async || Ok::<u32, Infallible>(self.opened.fetch_add(1, Ordering::Relaxed) + 1);
            let Ok(open) = self.link.open(|_| is_alive, connect).await;
            open
        }
    }

    #[tokio::test]
    async fn a_connection_is_shared_until_a_use_fails() {
        let opener = Opener::default();
        let (first, second) = (opener.open(true).await, opener.open(true).await);
        assert_eq!((*first, *second), (1, 1));
        first.finish_cleanly();
        assert_eq!(*opener.open(true).await, 1, "this one did not end well");
        let third = opener.open(true).await;
        assert_eq!(*third, 2);
        // The first connection may be broken, which does not affect the connection that others now
        // use.
        drop(second);
        third.finish_cleanly();
        let fourth = opener.open(true).await;
        assert_eq!(*fourth, 2);
        fourth.finish_cleanly();
        assert_eq!(*opener.open(false).await, 3, "one that is gone is not used");
    }
}
