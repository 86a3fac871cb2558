//! The state that a relay's consumer and its tasks share.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use posthaste::consumer::Delivery;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::destination::contract::Destination;
use crate::engine::buffer::SendBuffer;
use crate::engine::lease::Lease;
use crate::engine::options::Options;
use crate::engine::receiver_queues::ReceiverQueues;
use crate::engine::recent_reasons::RecentReasons;
use crate::engine::references::References;
use crate::store::status::RelayStatus;

/// Jobs that found the destination down are checked again after this.
pub(crate) const RESCHEDULED_FOR: Duration = Duration::from_secs(1);

/// What the consumer and its tasks share.
pub(crate) struct Shared {
    pub(super) name: String,
    pub(super) destination: Arc<dyn Destination>,
    pub(super) options: Options,
    pub(super) allowed: Vec<String>,
    pub(super) references: Option<References>,
    pub(super) buffer: Mutex<SendBuffer>,
    pub(super) lease: Mutex<Lease>,
    pub(super) arrived: Notify,
    /// Notified when there is room again.
    pub(super) room: Arc<Notify>,
    /// Nothing is to be begun any more.
    pub(super) stopping: CancellationToken,
    /// Set when sends in flight must end now.
    pub(super) aborted: CancellationToken,
    /// The destination will never take anything again.
    pub(super) gone: CancellationToken,
    /// Why nothing could be sent to it when it was started.
    pub(super) misconfiguration: OnceLock<String>,
    pub(super) status: Mutex<RelayStatus>,
    pub(super) receiver_queues: Mutex<ReceiverQueues>,
    /// Why messages were not taken, as the log has it.
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

    /// Whether a job may be sent now: if the relay is ordered, another one may be sending.
    pub(super) fn may_send(&self) -> bool {
        self.lease().may_send(Instant::now())
    }

    /// Nothing more is sent or claimed until the lease was asked for again.
    pub(super) fn suspend_lease(&self) {
        let mut lease = self.lease.lock();
        lease.end(Instant::now());
    }

    /// From now on the lease is this one; what is in memory and another's is given back. Returns
    /// the one before.
    pub(super) fn set_lease(&self, lease: Lease) -> Lease {
        let mut held = self.lease.lock();
        let before = std::mem::replace(&mut *held, lease);
        drop(held);
        let is_lost = |one: &Delivery| lease.has_lost(one.ticket.worker());
        let lost = self.buffer().remove(is_lost);
        lost.into_iter().for_each(|one| one.ticket.give_back());
        // The one that waits for the lease checks again.
        self.arrived.notify_one();
        self.room.notify_one();
        before
    }

    /// Notified when nothing more is to be begun: an ordered relay sends what is in memory first,
    /// because what is given back loses its place. Where nothing can be sent any more it loses it
    /// anyway.
    pub(super) fn over(&self) -> &CancellationToken {
        match self.options.ordered && !self.gone.is_cancelled() {
            true => &self.aborted,
            false => &self.stopping,
        }
    }

    pub(super) fn give_back_waiting(&self) {
        let waiting = self.buffer().clear();
        waiting.into_iter().for_each(|one| one.ticket.give_back());
    }
}
