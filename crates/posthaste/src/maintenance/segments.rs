//! Maintenance of the ready log: rotates, seals and reclaims segments, and moves jobs that block
//! this.

use std::time::{Duration, Instant};

use super::holders::BlockedDuties;
use super::{Maintenance, OVERFLOW_BATCH, attempt};
use crate::store::reconnecting::ReconnectingClient;
use crate::store::{DutyStep, Reclaim, SegmentPositions};

/// Lanes of one queue in a segment after which it is rotated, and the time between two checks.
const MAX_LANES_PER_SEGMENT: i32 = 128;
const LANE_CHECK_INTERVAL: Duration = Duration::from_secs(10);
/// Running jobs moved to `in_flight` in one transaction.
const RUNNING_BATCH: i32 = 200;
/// Batches verified in one transaction.
const VERIFY_BATCH: i32 = 10_000;

#[derive(Default)]
pub(super) struct SegmentUpkeep {
    lanes_at: Option<Instant>,
    verified: VerifiedUpTo,
}

/// The place up to which the oldest segment was verified by the last check.
#[derive(Default)]
struct VerifiedUpTo {
    segment: i64,
    batch: i64,
}

impl SegmentUpkeep {
    /// Rotates, seals and reclaims; if the ready log is full, moves the jobs that block this.
    /// Returns whether anything was done.
    pub(super) async fn maintain_segments(
        &mut self,
        leader: &Maintenance,
        holders: &mut BlockedDuties,
    ) -> bool {
        let link = &leader.duties;
        let bytes = leader.config.segment_bytes;
        // A segment of few jobs may have very many lanes. Every check would probe them until the
        // segment has grown.
        let many = self.lanes_at.is_none_or(|at| Instant::now() >= at);
        if many {
            self.lanes_at = Some(Instant::now() + LANE_CHECK_INTERVAL);
        }
        let rotated = attempt!(link, rotate(bytes, many.then_some(MAX_LANES_PER_SEGMENT)))
            .unwrap_or_default();
        let full = rotated == "full";
        let mut did = rotated != "small";
        let writer = loop {
            match attempt!(link, seal()) {
                Some(DutyStep { did: true, .. }) => did = true,
                step => break step.and_then(|step| step.blocker),
            }
        };
        holders.note_segment_writer(writer.filter(|_| full));
        let Some(segments) = attempt!(link, read_segment_positions()) else {
            return did;
        };
        if segments.ready_low < segments.ready_scan {
            self.reclaim(link, segments, holders).await;
            return true;
        }
        if full {
            let oldest = (segments.ready_scan % 4) as i32;
            attempt!(link, move_to_overflow(oldest, OVERFLOW_BATCH));
        }
        did
    }

    async fn reclaim(
        &mut self,
        link: &ReconnectingClient,
        segments: SegmentPositions,
        holders: &mut BlockedDuties,
    ) {
        if self.verified.segment != segments.ready_low {
            self.verified = VerifiedUpTo {
                segment: segments.ready_low,
                batch: 0,
            };
        }
        match attempt!(link, reclaim(segments.ready_low, VERIFY_BATCH)) {
            Some(Reclaim::Open(batch)) => {
                let stuck = self.verified.batch == batch;
                self.verified.batch = batch;
                // The segment is older than two rotations: its running jobs are moved to a separate
                // table.
                if stuck && segments.ready_current - segments.ready_low >= 2 {
                    attempt!(
                        link,
                        move_running((segments.ready_low % 4) as i32, batch, RUNNING_BATCH)
                    );
                }
            }
            Some(Reclaim::Locked { batch, by }) => {
                self.verified.batch = batch;
                holders.note_lock_holder("reclaim", Some(by));
            }
            Some(Reclaim::Truncated) => {
                holders.note_lock_holder("reclaim", None);
                attempt!(link, forget_lanes());
            }
            Some(Reclaim::Nothing) | None => {}
        }
    }
}
