//! The notifier: wakes sleeping tasks as soon as there is something to do. Notifications are only
//! hints: polling finds what they miss (sql/functions/notify.sql).

mod listener;
pub(crate) mod watch;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_postgres::Notification;
use tokio_util::sync::CancellationToken;

use crate::error::Error;
use crate::parts::notifications::{Notifications, Sleeper};
use crate::parts::poll_pause::NotifyCount;
use crate::parts::queue::{QueueState, Queues};
use crate::retry::Backoff;
use crate::store::reconnecting::ReconnectingClient;
use crate::store::session::Listen;
use listener::Listener;

/// Notifications stay on for this long unless they are renewed, so that workers that died asleep
/// stop being notified.
const LEASE_TIME: Duration = Duration::from_secs(30);
/// Time between two renewals, which also check whether the server still answers.
const RENEW_INTERVAL: Duration = Duration::from_secs(3);
/// Delay after failed attempts to listen.
const RETRY_BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(250),
    cap: Duration::from_secs(60),
};
/// The bit of posthaste.flags that belongs to the leader, whose queue is "".
const LEADER_BIT: i64 = 2;

/// Listens for all queues and the promoter.
pub(crate) struct Notifier {
    pub(crate) queues: Queues,
    pub(crate) notifications: Arc<Notifications>,
    pub(crate) polls: Arc<ReconnectingClient>,
    pub(crate) listen: Listen,
    pub(crate) stopping: CancellationToken,
}

impl Notifier {
    /// Listens until the engine stops, reconnecting after each lost connection.
    pub(crate) async fn run(self) {
        let mut failures = 0u32;
        while !self.stopping.is_cancelled() {
            match listener::open_listener(&self.queues, &self.polls, &self.listen).await {
                Ok(mut listener) => {
                    failures = 0;
                    tracing::debug!("the notifier is listening");
                    self.serve(&mut listener).await;
                }
                Err(error) => {
                    failures += 1;
                    if failures == 1 {
                        tracing::warn!(%error, "the notifier cannot listen; the worker polls");
                    }
                }
            }
            let wait = RETRY_BACKOFF.after(failures, fastrand::f64());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = self.stopping.cancelled() => {}
            }
        }
    }

    /// Serves one connection until it ends. Then forgets which notifications were on, so that every
    /// task polls.
    async fn serve(&self, listener: &mut Listener) {
        let mut wakeups = Wakeups::new(self, listener.bits());
        self.notifications.set_listening(true);
        // The tasks pause without knowing that they can be notified now.
        wakeups.wake_all();
        let ended = wakeups.serve(listener).await;
        self.notifications.set_listening(false);
        for (sleeper, _) in &wakeups.sleepers {
            sleeper.reset();
        }
        match ended {
            Ok(()) => {
                // Other workers of the same queues are notified of this, and turn them on again. If
                // the server does not answer, the lease expires.
                if let Err(error) = listener.turn_off(wakeups.on).await {
                    tracing::debug!(%error, "notifications could not be turned off");
                }
            }
            Err(error) => {
                tracing::info!(%error, "the listening connection ended; reconnecting")
            }
        }
        wakeups.wake_all();
    }
}

/// The sleeping tasks with their bits, and counts of notifications.
struct Wakeups<'a> {
    notifier: &'a Notifier,
    /// Tasks with their bits: the queues in the worker's order, then the promoter.
    sleepers: Vec<(&'a Sleeper, i64)>,
    notifications: HashMap<String, NotifyCount>,
    on: i64,
}

impl<'a> Wakeups<'a> {
    fn new(notifier: &'a Notifier, bits: &[i64]) -> Self {
        let queues = notifier.queues.iter().map(|queue| &queue.sleeper);
        let mut sleepers: Vec<_> = queues.zip(bits.iter().copied()).collect();
        sleepers.push((&notifier.notifications.promoter, LEADER_BIT));
        Self {
            notifier,
            sleepers,
            notifications: HashMap::new(),
            on: 0,
        }
    }

    fn wake_all(&self) {
        for (sleeper, _) in &self.sleepers {
            sleeper.woken.notify_one();
        }
    }

    /// Serves until the engine stops or the connection fails. Statements run one at a time, so
    /// notifications that were turned off are never taken for on: everything that was received
    /// before an answer is read after it.
    async fn serve(&mut self, listener: &mut Listener) -> Result<(), Error> {
        let mut renewal = tokio::time::interval(RENEW_INTERVAL);
        loop {
            tokio::select! {
                () = self.notifier.stopping.cancelled() => return Ok(()),
                notification = listener.next_notification() => {
                    self.handle_notification(listener, notification?).await?;
                }
                () = self.notifier.notifications.wanted.notified() => self.turn_on(listener).await?,
                _ = renewal.tick() => {
                    let now = Instant::now();
                    self.notifications.retain(|_, notifications| !notifications.is_over(now));
                    self.turn_on(listener).await?;
                }
            }
        }
    }

    /// Turns on the wanted notifications and renews those that are on.
    async fn turn_on(&mut self, listener: &Listener) -> Result<(), Error> {
        let mut bits = 0;
        for (sleeper, bit) in &self.sleepers {
            if sleeper.sleep(|sleep| sleep.is_wanted() || sleep.is_on()) {
                bits |= bit;
            }
        }
        match listener.turn_on(bits, LEASE_TIME).await? {
            Some(true) => {}
            // An open transaction is writing the first route. The notifications stay wanted, and
            // are requested again at the next pause.
            Some(false) => return Ok(()),
            None => {
                self.turn_all_off();
                return Ok(());
            }
        }
        self.on |= bits;
        for (sleeper, bit) in &self.sleepers {
            if bits & bit != 0 && !sleeper.is_on() {
                sleeper.sleep(|sleep| sleep.turn_on(Instant::now()));
                // Poll again: transactions that committed before notifications were on did not
                // notify.
                sleeper.woken.notify_one();
            }
        }
        Ok(())
    }

    /// Turns all notifications off: Postgres has little room for notifications left, and
    /// transactions that notify would fail.
    fn turn_all_off(&mut self) {
        if self.on != 0 {
            tracing::warn!(
                "the notification queue of Postgres is filling up; notifications are turned off"
            );
        }
        self.on = 0;
        for (sleeper, _) in &self.sleepers {
            sleeper.sleep(|sleep| sleep.give_up(Instant::now()));
            sleeper.woken.notify_one();
        }
    }

    async fn handle_notification(
        &mut self,
        listener: &Listener,
        notification: Notification,
    ) -> Result<(), Error> {
        match notification.channel() {
            "posthaste" => {
                let queue = notification.payload();
                let ours = |one: &&Arc<QueueState>| *one.name == *queue;
                if queue.is_empty() {
                    self.notifier.notifications.promoter.woken.notify_one();
                } else if let Some(queue) = self.notifier.queues.iter().find(ours) {
                    queue.sleeper.notify();
                }
                if self.is_too_frequent(queue) {
                    listener.turn_off_for(queue).await?;
                }
            }
            _ => self.on_turned_off(notification.payload()),
        }
        Ok(())
    }

    fn is_too_frequent(&mut self, queue: &str) -> bool {
        let now = Instant::now();
        let notifications = match self.notifications.get_mut(queue) {
            Some(notifications) => notifications,
            None => self
                .notifications
                .entry(queue.to_owned())
                .or_insert(NotifyCount::new(now)),
        };
        let limit = self.notifier.notifications.limit();
        let too_many = notifications.count_is_above(limit, now);
        if too_many {
            *notifications = NotifyCount::new(now);
        }
        too_many
    }

    /// Handles notifications that a worker turned off, perhaps this one.
    fn on_turned_off(&mut self, bits: &str) {
        let Ok(bits) = bits.parse::<i64>() else {
            return;
        };
        self.on &= !bits;
        for (sleeper, bit) in &self.sleepers {
            if bits & bit != 0 {
                sleeper.sleep(|sleep| sleep.turn_off(Instant::now()));
                sleeper.woken.notify_one();
            }
        }
    }
}
