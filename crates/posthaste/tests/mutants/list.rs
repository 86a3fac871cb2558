//! The mutants, and the scenario that detects each; the changes are mutations in the SQL
//! (sql/README.md).

use super::scenario::{
    ADOPTED, BATCH_CLOSED_AGAIN, CLAIM_AND_SETTLE_AT_ONCE, CLOCK_STEPS_BACK, CLOCK_WAS_AHEAD,
    CLOSED_SCHEDULED_SEGMENT, CLOSED_UNCLAIMED, COUNTED, COUNTED_LATE, COUNTED_TURNS,
    DUE_AFTER_PUBLISHING, EXPIRED_AHEAD_OF_TIME, FOREIGN_ACKNOWLEDGEMENT, FRESH_HEARTBEAT,
    FULL_READY_LOG, IN_FLIGHT_AND_RELEASED, LATE_COMMITS, LATE_TO_THE_LOCK, LONG_NAMES,
    LONG_WINDOW, LOST_TRUNCATION, MOVED_TO_OVERFLOW, ONE_INSTANT, ORDERING, REPEATABLE_READ,
    REUSED_NUMBER, SEALED_BEFORE_THE_LOCK, SEALED_BEFORE_THE_ROW, SEALED_UNDER_AN_OPEN_TRANSACTION,
    SITES, SLOW_EMPTY_SCAN, SPLIT_BATCH, SPLITTING_BATCH, STALE_CURSOR_SNAPSHOT, STRESS, Scenario,
    TICK, UNEVEN_SLOT, XID_BEFORE_PROMOTER,
};

/// A broken variant of the store.
pub struct Mutant {
    pub name: &'static str,
    pub scenario: &'static Scenario,
}

macro_rules! mutants {
    ($($name:literal by $scenario:ident;)+) => {
        &[$(Mutant { name: $name, scenario: &$scenario }),+]
    };
}

/// All mutants: first those of claims, then fences, the ready log, and promotion.
pub const MUTANTS: &[Mutant] = mutants! {
    "windows ignore transactions that were in progress" by STRESS;
    // A running xid can be at or beyond xmax and is in no list then. This mutant treats the list of
    // a snapshot as complete.
    "windows ignore xids at or beyond xmax" by STRESS;
    "windows end at xmin" by STRESS;
    "claims take no lane lock" by STRESS;
    "the batch number is drawn outside the lock" by LATE_TO_THE_LOCK;
    "the batch id sequence is cached" by STRESS;
    "claims run in REPEATABLE READ" by REPEATABLE_READ;
    "the answer size ignores job names" by LONG_NAMES;
    "the scan has only two bounds" by LONG_WINDOW;
    "a full batch marks its window as exhausted" by STRESS;
    "a batch cut by bytes marks its window as exhausted" by STRESS;
    "a claim hands out jobs it has just expired" by STRESS;
    "a slow scan moves the cursor without checking again" by SLOW_EMPTY_SCAN;
    "the snapshot is taken before the cursor is read" by STALE_CURSOR_SNAPSHOT;
    "a cursor treats its own transaction as finished" by CLAIM_AND_SETTLE_AT_ONCE;
    "a fence token is reused" by REUSED_NUMBER;
    "close_batches() does not check whether it closed anything" by REUSED_NUMBER;
    "a batch is closed although one of its jobs was closed alone" by SPLIT_BATCH;
    "a batch is closed while one of its jobs is being closed alone" by SPLITTING_BATCH;
    "a job is closed alone after its batch was closed" by BATCH_CLOSED_AGAIN;
    "moving to the overflow closes no rows" by MOVED_TO_OVERFLOW;
    "a batch has no upper end" by STRESS;
    "a retry is closed but not scheduled" by STRESS;
    "a lost claim is not searched in flight" by IN_FLIGHT_AND_RELEASED;
    "rescue does not check the heartbeat again" by FRESH_HEARTBEAT;
    "expiry does not mark closed rows" by EXPIRED_AHEAD_OF_TIME;
    "entering a segment does not check ready_scan" by SEALED_BEFORE_THE_LOCK;
    "enqueue() does not check ready_scan" by SEALED_BEFORE_THE_LOCK;
    // ready_low tells the ready log that a slot is still in use.
    "rotation does not check ready_low" by FULL_READY_LOG;
    "sealing takes no exclusive lock" by SEALED_BEFORE_THE_ROW;
    "enqueue() takes no shared lock" by SEALED_UNDER_AN_OPEN_TRANSACTION;
    "sealing does not check for unclaimed jobs" by STRESS;
    "truncation counts closed rows instead of comparing them" by FOREIGN_ACKNOWLEDGEMENT;
    "truncation does not check for open jobs" by FOREIGN_ACKNOWLEDGEMENT;
    "promotion ignores late commits" by LATE_COMMITS;
    "promotion trusts a snapshot's list of running transactions" by XID_BEFORE_PROMOTER;
    "promotion reads up to the clock instead of the published time" by DUE_AFTER_PUBLISHING;
    "promotion pages by time alone" by ONE_INSTANT;
    "late promotion pages by time alone" by ONE_INSTANT;
    "a scheduled segment is entered without checking again" by CLOSED_SCHEDULED_SEGMENT;
    "a scheduled slot with waiting jobs is truncated" by UNEVEN_SLOT;
    "a scheduled slot is entered again without being emptied" by LOST_TRUNCATION;
    "enqueue() checks only the clock" by CLOCK_STEPS_BACK;
    "the view checks only the clock" by CLOCK_STEPS_BACK;
    "a retry checks only the clock" by CLOCK_STEPS_BACK;
    "a carry-over checks only the clock" by CLOCK_STEPS_BACK;
    "a clock step back continues in the same slot" by CLOCK_WAS_AHEAD;
    "a clock step back is not published" by CLOCK_WAS_AHEAD;
    "each ineffective back-off counts an attempt" by CLOCK_WAS_AHEAD;
    "a retry waits by a clock that was ahead" by CLOCK_WAS_AHEAD;
    "ordering keys are never taken" by ORDERING;
    "turns are lost with their slot" by ORDERING;
    "any job's end ends the turn" by ORDERING;
    "the last job of a key comes first" by ORDERING;
    "a completed job keeps its turn" by ORDERING;
    "a job that begins its turn also keeps waiting" by ORDERING;
    "counting ignores late commits" by COUNTED_LATE;
    "a mark is used before claims have passed it" by COUNTED_LATE;
    "claims after a mark are not subtracted" by COUNTED_LATE;
    "promotion is not counted" by COUNTED;
    "closing an unclaimed job is not counted" by CLOSED_UNCLAIMED;
    "a mark omits open batches" by COUNTED_LATE;
    "scheduled jobs of late commits are not counted" by COUNTED_LATE;
    "turns are not counted" by COUNTED_TURNS;
    "a tick is enqueued twice" by TICK;
    "a tick ignores a concurrent leader" by TICK;
    "site names are ignored" by SITES;
    "any site name matches" by SITES;
    "a cold copy counts as a restart" by SITES;
    "servers without an address count as equal" by SITES;
    "the server's start time is not compared" by SITES;
    "a failover loses the recorded address" by SITES;
    "every address counts as known" by SITES;
    "a new address is not recorded" by SITES;
    "the server's life is not recorded" by SITES;
    "a site refusal is ignored" by SITES;
    "a refused site is not noted" by SITES;
    "a refused site displaces another one" by SITES;
    "a refused worker is registered" by SITES;
    "a process cannot follow its store" by SITES;
    "a process is recognized by its id alone" by SITES;
    "a process is recognized by its start time alone" by SITES;
    "a dead process is recognized" by SITES;
    "adoption ignores a live worker" by ADOPTED;
    "adoption keeps the delivery ids" by ADOPTED;
    "adoption keeps the site" by ADOPTED;
    "adoption keeps the original's workers alive" by ADOPTED;
    "adoption discards nothing" by ADOPTED;
};
