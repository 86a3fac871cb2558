//! The state shared by a relay's consumer and its tasks.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posthaste::consumer::Delivery;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::destination::contract::Destination;
use crate::engine::buffer::SendBuffer;
use crate::engine::lease::Lease;
use crate::engine::options::RelayOptions;
use crate::engine::receiver_queues::ReceiverQueues;
use crate::engine::recent_reasons::RecentReasons;
use crate::engine::references::References;
use crate::store::status::RelayStatus;

/// Delay of jobs that found the destination down.
pub(crate) const RESCHEDULE_DELAY: Duration = Duration::from_secs(1);

/// The state shared by the consumer and its tasks.
pub(crate) struct Shared {
    pub(super) name: String,
    pub(super) destination: Arc<dyn Destination>,
    pub(super) options: RelayOptions,
    pub(super) allowed: Vec<String>,
    pub(super) references: Option<References>,
    pub(super) buffer: Mutex<SendBuffer>,
    pub(super) lease: Mutex<Lease>,
    pub(super) arrived: Notify,
    /// Notified when the buffer has room again.
    pub(super) room: Arc<Notify>,
    /// Cancelled when no more work may begin.
    pub(super) stopping: CancellationToken,
    /// Cancelled when sends in flight must end now.
    pub(super) aborted: CancellationToken,
    /// Cancelled when the destination can never accept a message again.
    pub(super) gone: CancellationToken,
    /// The reason why the destination could not be used at the start.
    pub(super) misconfiguration: OnceLock<String>,
    pub(super) status: Mutex<RelayStatus>,
    pub(super) receiver_queues: Mutex<ReceiverQueues>,
    /// Recently logged reasons why messages were not accepted.
    pub(super) logged_reasons: Mutex<RecentReasons>,
}

impl Shared {
    pub(super) fn buffer(&self) -> parking_lot::MutexGuard<'_, SendBuffer> {
        self.buffer.lock()
    }

    pub(super) fn status(&self) -> parking_lot::MutexGuard<'_, RelayStatus> {
        self.status.lock()
    }

    pub(super) fn receiver_queues(&self) -> parking_lot::MutexGuard<'_, ReceiverQueues> {
        self.receiver_queues.lock()
    }

    pub(super) fn logged_reasons(&self) -> parking_lot::MutexGuard<'_, RecentReasons> {
        self.logged_reasons.lock()
    }

    pub(super) fn lease(&self) -> Lease {
        *self.lease.lock()
    }

    /// Returns whether a job may be sent now: another ordered relay may be sending.
    pub(super) fn may_send(&self) -> bool {
        self.lease().may_send(Instant::now())
    }

    /// Stops sending and claiming until the lease is requested again.
    pub(super) fn suspend_lease(&self) {
        let mut lease = self.lease.lock();
        lease.expire(Instant::now());
    }

    /// Replaces the lease, and gives back the buffered jobs that now belong to another relay.
    /// Returns the previous lease.
    pub(super) fn set_lease(&self, lease: Lease) -> Lease {
        let mut held = self.lease.lock();
        let before = std::mem::replace(&mut *held, lease);
        drop(held);
        let is_lost = |one: &Delivery| lease.has_lost(one.ticket.worker());
        let lost = self.buffer().remove(is_lost);
        lost.into_iter().for_each(|one| one.ticket.give_back());
        // The task that waits for the lease checks again.
        self.arrived.notify_one();
        self.room.notify_one();
        before
    }

    /// Returns the token that is cancelled when no more work may begin. An ordered relay first
    /// sends the buffered jobs, because jobs that it gives back lose their place. If nothing can be
    /// sent any more they lose it anyway.
    pub(super) fn end_token(&self) -> &CancellationToken {
        match self.options.ordered && !self.gone.is_cancelled() {
            true => &self.aborted,
            false => &self.stopping,
        }
    }

    pub(super) fn give_back_waiting(&self) {
        let waiting = self.buffer().take_all();
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }
}
