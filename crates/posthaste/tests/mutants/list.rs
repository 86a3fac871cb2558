//! The mutants: the change of each, and the scenario that detects it.

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
use super::script::Edits;

/// A broken variant of the store.
pub struct Mutant {
    pub name: &'static str,
    pub edits: Edits<'static>,
    pub scenario: &'static Scenario,
}

macro_rules! mutants {
    ($($name:literal by $scenario:ident: $($from:literal => $to:literal),+;)+) => {
        &[$(Mutant { name: $name, edits: &[$(($from, $to)),+], scenario: &$scenario }),+]
    };
}

/// All mutants: first those of claims, then fences, the ready log, and promotion.
pub const MUTANTS: &[Mutant] = mutants! {
    "windows ignore transactions that were in progress" by STRESS:
        "WHERE p >= w.at_xid AND pg_visible_in_snapshot(p, w.hi)" => "WHERE false AND \
            pg_visible_in_snapshot(p, w.hi)";

    // A running xid can be at or beyond xmax and is in no list then. This mutant treats the list of
    // a snapshot as complete.
    "windows ignore xids at or beyond xmax" by STRESS:
        "FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.with_bounds(w);" =>
        "FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.blind_@k@(posthaste.next_window(w, coalesce(p_now, \
    posthaste.cursor_snapshot())));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.blind_@k@(posthaste.with_bounds(w));",
        "CREATE OR REPLACE FUNCTION posthaste.window_has_rows_@k@(" =>
        "CREATE FUNCTION posthaste.blind_@k@(w posthaste.lane_window) \
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  IF w.from_id = -1 THEN
    w.from_xid := greatest(w.from_xid, (SELECT c.xmin::text::xid8 FROM posthaste.claim_@k@ c \
    WHERE c.batch = w.batch));
  END IF;
  RETURN w;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.window_has_rows_@k@(";

    "windows end at xmin" by STRESS:
        "v_end xid8 := pg_snapshot_xmax(w.hi);" => "v_end xid8 := pg_snapshot_xmin(w.hi);",
        "r.xid < pg_snapshot_xmax(w.hi)\n" => "r.xid < pg_snapshot_xmin(w.hi)\n";

    "claims take no lane lock" by STRESS:
        "PERFORM posthaste.hold_lane(p_queue, v_priority);" => "PERFORM 1;",
        "v_is_held := pg_try_advisory_xact_lock(1885893475, \
         posthaste.lane_key(p_queue, v_priority));" => "v_is_held := true;";

    "the batch number is drawn outside the lock" by LATE_TO_THE_LOCK:
        "CONTINUE WHEN NOT posthaste.lane_has_work(p_queue, v_priority, p_worker);" =>
        "CONTINUE WHEN NOT posthaste.lane_has_work(p_queue, v_priority, p_worker);\n    \
         PERFORM set_config('test.drawn', nextval('posthaste.batch_id')::text, true);",
        "VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token" =>
        "VALUES (coalesce(nullif(current_setting('test.drawn', true), '')::bigint, \
         nextval('posthaste.batch_id')), p_worker, p_queue, p_priority, p_token";

    "the job id sequence is cached" by STRESS:
        "CREATE SEQUENCE posthaste.batch_id;" => "CREATE SEQUENCE posthaste.batch_id CACHE 50;";

    "claims run in REPEATABLE READ" by REPEATABLE_READ:
        "IF current_setting('transaction_isolation') <> 'read committed' THEN\n    \
         RAISE EXCEPTION 'posthaste: claim needs" =>
        "IF false THEN\n    RAISE EXCEPTION 'posthaste: claim needs";

    "the answer size ignores job names" by LONG_NAMES:
        "WHERE r.bytes <= p_bytes" => "WHERE true";

    "the scan has only two bounds" by LONG_WINDOW:
        "(r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end" =>
        "r.xid >= w.from_xid AND (r.xid > w.from_xid OR r.id > w.from_id) AND r.xid < v_end";

    "a full batch marks its window as exhausted" by STRESS:
        "o_n < p_limit AND o_bytes < p_bytes AND" => "o_bytes < p_bytes AND";

    "a batch cut by bytes marks its window as exhausted" by STRESS:
        "o_n < p_limit AND o_bytes < p_bytes AND" => "o_n < p_limit AND";

    "a claim hands out jobs it has just expired" by STRESS:
        "WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_@k@ a WHERE a.xid = r.xid \
         AND a.id = r.id)" => "";

    "a slow scan moves the cursor without checking again" by SLOW_EMPTY_SCAN:
        "IF w.batch = (SELECT n.batch FROM posthaste.window_@k@(p_queue, p_priority, \
         NULL) n) THEN" =>
        "IF true THEN";

    "the snapshot is taken before the cursor is read" by STALE_CURSOR_SNAPSHOT:
        "  w posthaste.lane_window;\n  v_exhausted boolean;" =>
        "  w posthaste.lane_window;\n  v_before pg_snapshot := coalesce(p_now, \
         posthaste.cursor_snapshot());\n  v_exhausted boolean;",
        "coalesce(p_now, posthaste.cursor_snapshot()));\n  END IF;\n  w.is_fresh := false;" =>
            "v_before);\n  END IF;\n  w.is_fresh := false;";

    "a cursor treats its own transaction as finished" by CLAIM_AND_SETTLE_AT_ONCE:
        "IF own IS NULL OR own >= pg_snapshot_xmax(s) THEN" => "IF true THEN";

    "a fence token is reused" by REUSED_NUMBER:
        "c.batch = p_batch AND c.token = p_token" => "c.batch = p_batch";

    "close_batches() does not check whether it closed anything" by REUSED_NUMBER:
        "IF v_closed IS NOT TRUE THEN" => "IF v_closed IS NULL THEN";

    "a batch is closed although one of its jobs was closed alone" by SPLIT_BATCH:
        "AND NOT EXISTS (SELECT FROM posthaste.batch_split_@k@ s WHERE s.batch = p_batch)\n" =>
            "\n";

    "a batch is closed while one of its jobs is being closed alone" by SPLITTING_BATCH:
        "IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN" =>
            "IF false THEN";

    "a job is closed alone after its batch was closed" by BATCH_CLOSED_AGAIN:
        "IF EXISTS (SELECT FROM posthaste.batch_done_@k@ w WHERE w.batch = p_batch)\n     \
         OR NOT EXISTS" => "IF NOT EXISTS";

    "moving to the overflow closes no rows" by MOVED_TO_OVERFLOW:
        "VALUES (v_batch, 5);" => "SELECT v_batch, 5 WHERE false;";

    "a batch has no upper end" by STRESS:
        "AND c.to_xid > c.low_xid AND r.id <= c.to_id" => "AND c.to_xid > c.low_xid",
        "AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807 WHEN c.low_xid = \
         c.to_xid THEN c.to_id ELSE -1 END" =>
        "AND c.low_xid <= c.to_xid";

    "a retry is closed but not scheduled" by STRESS:
        "WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);" => "WHERE v.kind = 8 AND j.crashes = \
            0;";

    "a lost claim is not searched in flight" by IN_FLIGHT_AND_RELEASED:
        "h.token = p_token AND h.state = 'running' HAVING" => "h.token = p_token AND h.state = \
            'awaiting' HAVING";

    "rescue does not check the heartbeat again" by FRESH_HEARTBEAT:
        "WHERE id = p_worker AND beat = p_beat;" => "WHERE id = p_worker;";

    "expiry does not mark closed rows" by EXPIRED_AHEAD_OF_TIME:
        "marked AS (INSERT INTO posthaste.closed_unclaimed_@k@ (xid, id) SELECT xid, \
         id FROM gone)," => "";

    "entering a segment does not check ready_scan" by SEALED_BEFORE_THE_LOCK:
        " AND pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g" => "",
        "IF posthaste.position('posthaste.ready_scan') <= g THEN" => "IF true THEN";

    "enqueue() does not check ready_scan" by SEALED_BEFORE_THE_LOCK:
        "THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END" => "THEN true \
            END";

    // ready_low tells the ready log that a slot is still in use.
    "rotation does not check ready_low" by FULL_READY_LOG:
        "IF v_current + 1 - pg_sequence_last_value('posthaste.ready_low'::regclass) >= 4 THEN" =>
            "IF false THEN";

    "sealing takes no exclusive lock" by SEALED_BEFORE_THE_ROW:
        "IF NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer) THEN" => "IF false THEN";

    "enqueue() takes no shared lock" by SEALED_UNDER_AN_OPEN_TRANSACTION:
        "AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)" => "AND CASE \
            WHEN true";

    "sealing does not check for unclaimed jobs" by STRESS:
        "IF (SELECT l.o_queue FROM posthaste.pending_lane((v_scan % 4)::integer) l) IS NOT NULL \
         THEN" => "IF false THEN";

    "truncation counts closed rows instead of comparing them" by FOREIGN_ACKNOWLEDGEMENT:
        "WHERE EXISTS (SELECT FROM posthaste.batch_rows_@k@(c.batch, c.token) r\n                  \
         WHERE NOT EXISTS (SELECT FROM posthaste.job_done_@k@ a WHERE a.xid = r.xid AND a.id = \
         r.id))" =>
        "WHERE (SELECT count(*) FROM posthaste.job_done_@k@) < (SELECT sum(o.n) FROM \
         posthaste.claim_@k@ o WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_@k@ w WHERE \
         w.batch = o.batch))";

    "truncation does not check for open jobs" by FOREIGN_ACKNOWLEDGEMENT:
        "IF NOT v_done THEN\n    o_state := 'open';" => "IF false THEN\n    o_state := 'open';";

    "promotion ignores late commits" by LATE_COMMITS:
        "v_late := posthaste.late_transactions_@k@(c.lo, c.hi, c.lo_bound, c.at_xid);" =>
            "v_late := '{}';";

    "promotion trusts a snapshot's list of running transactions" by XID_BEFORE_PROMOTER:
        "r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound" => "false";

    "promotion reads up to the clock instead of the published time" by DUE_AFTER_PUBLISHING:
        "c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;" =>
        "c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(clock_timestamp(), c.t_hi) END;";

    "promotion pages by time alone" by ONE_INSTANT:
        "WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id)" => "WHERE r.scheduled_at > c.at_due";

    "late promotion pages by time alone" by ONE_INSTANT:
        "AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END,
                                           CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)" =>
        "AND r.scheduled_at > CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END";

    "a scheduled segment is entered without checking again" by CLOSED_SCHEDULED_SEGMENT:
        "IF posthaste.position('posthaste.scheduled_current') = g THEN" => "IF true THEN";

    "a scheduled slot with waiting jobs is truncated" by UNEVEN_SLOT:
        "IF NOT posthaste.is_promoted_@k@() THEN" => "IF false THEN";

    "a scheduled slot is entered again without being emptied" by LOST_TRUNCATION:
        "IF posthaste.is_empty(v_other) THEN" => "IF true THEN";

    "enqueue() checks only the clock" by CLOCK_STEPS_BACK:
        "scheduled_at > moment AND scheduled_at > posthaste.promote_horizon()" => "scheduled_at > \
            moment";

    "the view checks only the clock" by CLOCK_STEPS_BACK:
        "r.scheduled_at > clock_timestamp() AND r.scheduled_at > (SELECT \
         posthaste.promote_horizon())" => "r.scheduled_at > clock_timestamp()";

    "a retry checks only the clock" by CLOCK_STEPS_BACK:
        "v.due > v_now AND v.due > (SELECT posthaste.promote_horizon())" => "v.due > v_now";

    "a carry-over checks only the clock" by CLOCK_STEPS_BACK:
        "w.due > v_now AND w.due > (SELECT posthaste.promote_horizon())" => "w.due > v_now";

    "a clock step back continues in the same slot" by CLOCK_WAS_AHEAD:
        "PERFORM setval('posthaste.scheduled_current', v_current + 1);
  PERFORM setval('posthaste.promote_horizon', greatest(" =>
        "PERFORM setval('posthaste.promote_horizon', greatest(";

    "a clock step back is not published" by CLOCK_WAS_AHEAD:
        "RETURN posthaste.return_to_earlier_segment(v_now);" => "RETURN false;";

    "each ineffective back-off counts an attempt" by CLOCK_WAS_AHEAD:
        "WHEN s.slot < 6 AND v.due > clock_timestamp() THEN j.attempt" =>
        "WHEN false THEN j.attempt";

    "a retry waits by a clock that was ahead" by CLOCK_WAS_AHEAD:
        "THEN t_lo + interval '1 hour' ELSE '-infinity' END" =>
        "THEN '-infinity'::timestamptz ELSE '-infinity' END";

    "ordering keys are never taken" by ORDERING:
        "NOT EXISTS (SELECT FROM posthaste.ordering_position(k.key) s WHERE NOT s.is_free)" =>
        "true";

    "turns are lost with their slot" by ORDERING:
        "PERFORM posthaste.carry_over_turns(@k@);" => "";

    "any job's end ends the turn" by ORDERING:
        "WHERE s.turn = e.turn AND NOT s.is_free" => "WHERE NOT s.is_free";

    "the last job of a key comes first" by ORDERING:
        "ORDER BY r.ordering_key, r.turn LIMIT 1" => "ORDER BY r.ordering_key DESC, r.turn DESC \
            LIMIT 1";

    "a completed job keeps its turn" by ORDERING:
        "WHERE v.kind = 0 AND j.turn IS NOT NULL HAVING" => "WHERE v.kind = 99 AND j.turn IS NOT \
            NULL HAVING";

    "a job that begins its turn also keeps waiting" by ORDERING:
        "FROM unnest(p_places) u WHERE u.slot = @k@;" => "FROM unnest(p_places) u WHERE false;";

    "counting ignores late commits" by COUNTED_LATE:
        "FROM unnest(w.late) p, LATERAL (\n          SELECT r.xid, r.id, r.name, r.tag" => "FROM \
            unnest(w.late[1:0]) p, LATERAL (\n          SELECT r.xid, r.id, r.name, r.tag";

    "a mark is used before claims have passed it" by COUNTED_LATE:
        "SELECT ((c_exhausted OR (max_xid, max_id) <= (c_xid, c_id)) \
         AND posthaste.is_subset(hi, c_hi))" => "SELECT (c_exhausted OR (max_xid, \
             max_id) <= (c_xid, c_id))";

    "claims after a mark are not subtracted" by COUNTED_LATE:
        "WHERE l.p_run IS NOT NULL AND posthaste.is_claimed" => "WHERE false AND \
            posthaste.is_claimed";

    "promotion is not counted" by COUNTED:
        "w(what) GROUP BY 1, 2, 3, 4, 5)," => "w(what) WHERE false GROUP BY 1, 2, 3, 4, 5),";

    "closing an unclaimed job is not counted" by CLOSED_UNCLAIMED:
        "SELECT xid, id, queue, priority, name, tag FROM gone WHERE queue <> '')" => "SELECT xid, \
            id, queue, priority, name, tag FROM gone WHERE false)";

    "a mark omits open batches" by COUNTED_LATE:
        "coalesce(array_agg(b.batch), '{}') AS open" => "coalesce((array_agg(b.batch))[1:0], \
            '{}') AS open";

    "scheduled jobs of late commits are not counted" by COUNTED_LATE:
        "SELECT late.* FROM pg_snapshot_xip(n.lo) p, LATERAL (" => "SELECT late.* FROM (SELECT \
            '1'::xid8 AS p WHERE false) p, LATERAL (";

    "turns are not counted" by COUNTED_TURNS:
        "PERFORM posthaste.count_left(v_next);" => "";

    "a tick is enqueued twice" by TICK:
        "next_at IS NOT DISTINCT FROM p_at FOR UPDATE" => "true FOR UPDATE";

    "a tick ignores a concurrent leader" by TICK:
        "next_at IS NOT DISTINCT FROM p_at FOR UPDATE SKIP LOCKED;" => "next_at IS NOT DISTINCT \
            FROM p_at;";

    "site names are ignored" by SITES:
        "THEN p_known = p_here" => "THEN true";

    "any site name matches" by SITES:
        "ELSE p_known IS NULL AND p_here IS NULL AND p_is_known_address END" =>
            "ELSE p_is_known_address END";

    "a cold copy counts as a restart" by SITES:
        "THEN p_is_known_address OR p_is_same_endpoint" => "THEN true";

    "servers without an address count as equal" by SITES:
        "coalesce(s.endpoint = posthaste.endpoint(), false)" =>
            "s.endpoint IS NOT DISTINCT FROM posthaste.endpoint()";

    "the server's start time is not compared" by SITES:
        "coalesce(l.is_same_life AND s.started = pg_postmaster_start_time(), false)" =>
            "coalesce(l.is_same_life, false)";

    "a failover loses the recorded address" by SITES:
        "s.addresses && p_addresses OR '{}' IN" => "false OR '{}' IN";

    "every address counts as known" by SITES:
        "s.addresses && p_addresses OR '{}' IN" => "true OR '{}' IN";

    "a new address is not recorded" by SITES:
        "addresses = (p_addresses
                       ||" => "addresses = (s.addresses ||";

    "the server's life is not recorded" by SITES:
        "started = pg_postmaster_start_time(), life = v_life," =>
            "started = pg_postmaster_start_time(),";

    "a site refusal is ignored" by SITES:
        "    IF v_refused IS NOT NULL THEN" => "    IF false THEN";

    "a refused site is not noted" by SITES:
        "      PERFORM posthaste.note_refused(posthaste.site_label(p_site, p_addresses));" => "";

    "a refused site displaces another one" by SITES:
        "                    WHERE k.label <> p_label" => "                    WHERE false";

    "a refused worker is registered" by SITES:
        "    DELETE FROM posthaste.worker WHERE id = o_worker;" => "";

    "a process cannot follow its store" by SITES:
        "WHEN p_is_running OR p_was_admitted THEN true" => "WHEN p_is_running THEN true";

    "a process is recognized by its id alone" by SITES:
        "w.id = p_worker AND w.started_at = p_registered AND" => "w.id = p_worker AND";

    "a process is recognized by its start time alone" by SITES:
        "w.id = p_worker AND w.started_at = p_registered AND" => "w.started_at = p_registered AND";

    "a dead process is recognized" by SITES:
        "w.started_at = p_registered AND w.stopped_at IS NULL)" => "w.started_at = p_registered)";

    "adoption ignores a live worker" by ADOPTED:
        "IF v_living IS NOT NULL AND NOT p_force THEN" => "IF false THEN";

    "adoption keeps the delivery ids" by ADOPTED:
        "  PERFORM posthaste.begin_epoch(greatest(pg_sequence_last_value('posthaste.known_id'\
         ::regclass),
                                         posthaste.max_claimed_id()) + 1);
  DELETE FROM posthaste.site;" => "  DELETE FROM posthaste.site;";

    "adoption keeps the site" by ADOPTED:
        "  DELETE FROM posthaste.site;
  PERFORM posthaste.record_site(p_site, p_addresses);
  IF p_discard" => "  IF p_discard";

    "adoption keeps the original's workers alive" by ADOPTED:
        "  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
  DELETE FROM posthaste.leader;" => "  DELETE FROM posthaste.leader;";

    "adoption discards nothing" by ADOPTED:
        "    o_discarded := posthaste.discard_unfinished();" => "    o_discarded := 1;";
};
