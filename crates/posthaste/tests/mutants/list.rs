//! The mutants: what each one lacks, and who notices.

use super::scenario::{
    ADOPTED, BEATING_WORKER, CLAIM_AND_SETTLE_AT_ONCE, CLOCK_STEPS_BACK, CLOSED_SCHEDULED_SEGMENT,
    CLOSED_UNCLAIMED, COUNTED, COUNTED_LATE, COUNTED_TURNS, EXPIRED_AHEAD_OF_TIME,
    FOREIGN_ACKNOWLEDGEMENT, FULL_READY_LOG, IN_FLIGHT_AND_GIVEN_BACK, LATE_AND_DUE,
    LATE_TO_THE_CURSOR, LATE_TO_THE_LOCK, LONG_NAMES, LONG_WINDOW, LOST_TRUNCATION,
    MOVED_TO_OVERFLOW, ONE_INSTANT, ORDERING, PUBLISHED_BEFORE_LOOKED, PUBLISHED_IN_BETWEEN,
    PUBLISHED_THE_PRESENT_AGAIN, REPEATABLE_READ, REUSED_NUMBER, SEALED_BEFORE_THE_LOCK,
    SEALED_BEFORE_THE_ROW, SEALED_UNDER_AN_OPEN_TRANSACTION, SITES, SLOW_LOOK, SPLIT_BATCH,
    SPLITTING_BATCH, STRESS, Scenario, TICK, UNEVEN_SLOT, WHOLE_BATCH,
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

/// All of them. Those of claims come first, then fences, the ready log, the road.
pub const MUTANTS: &[Mutant] = mutants! {
    "no in-progress-xid probe" by STRESS:
        "WHERE p >= w.at_xid AND pg_visible_in_snapshot(p, w.hi)" => "WHERE false AND \
            pg_visible_in_snapshot(p, w.hi)";

    // A running xid can lie at or beyond xmax and is in no list then. This one believes that a
    // snapshot's list is whole.
    "no tail beyond xmax" by STRESS:
        "FROM posthaste.claim_@k@ WHERE queue = p_queue AND priority = p_priority
    ORDER BY queue DESC, priority DESC, batch DESC LIMIT 1;
  IF NOT FOUND THEN
    w.batch := 0; w.hi := '1:1:'; v_exhausted := true;
  END IF;
  IF v_exhausted THEN
    RETURN posthaste.next_window(w, coalesce(p_now, posthaste.cursor_snapshot()));
  END IF;
  w.is_fresh := false;
  RETURN posthaste.bounded(w);" =>
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
  RETURN posthaste.blind_@k@(posthaste.bounded(w));",
        "CREATE OR REPLACE FUNCTION posthaste.look_@k@(" =>
        "CREATE FUNCTION posthaste.blind_@k@(w posthaste.lane_window) \
RETURNS posthaste.lane_window LANGUAGE plpgsql AS $f$
BEGIN
  IF w.from_id = -1 THEN
    w.from_xid := greatest(w.from_xid, (SELECT c.xmin::text::xid8 FROM posthaste.claim_@k@ c \
    WHERE c.batch = w.batch));
  END IF;
  RETURN w;
END $f$;
CREATE OR REPLACE FUNCTION posthaste.look_@k@(";

    "a window that ends at xmin" by STRESS:
        "v_end xid8 := pg_snapshot_xmax(w.hi);" => "v_end xid8 := pg_snapshot_xmin(w.hi);",
        "r.xid < pg_snapshot_xmax(w.hi)\n" => "r.xid < pg_snapshot_xmin(w.hi)\n";

    "no lane lock" by STRESS:
        "PERFORM posthaste.hold_lane(p_queue, v_priority);" => "PERFORM 1;",
        "v_is_held := pg_try_advisory_xact_lock(1885893475, \
         posthaste.lane_key(p_queue, v_priority));" => "v_is_held := true;";

    "batch number drawn outside the lock" by LATE_TO_THE_LOCK:
        "CONTINUE WHEN NOT posthaste.sees(p_queue, v_priority, p_worker);" =>
        "CONTINUE WHEN NOT posthaste.sees(p_queue, v_priority, p_worker);\n    \
         PERFORM set_config('test.drawn', nextval('posthaste.batch_id')::text, true);",
        "VALUES (nextval('posthaste.batch_id'), p_worker, p_queue, p_priority, p_token" =>
        "VALUES (coalesce(nullif(current_setting('test.drawn', true), '')::bigint, \
         nextval('posthaste.batch_id')), p_worker, p_queue, p_priority, p_token";

    "cached sequence" by STRESS:
        "CREATE SEQUENCE posthaste.batch_id;" => "CREATE SEQUENCE posthaste.batch_id CACHE 50;";

    "claim in REPEATABLE READ" by REPEATABLE_READ:
        "IF current_setting('transaction_isolation') <> 'read committed' THEN\n    \
         RAISE EXCEPTION 'posthaste: claim needs" =>
        "IF false THEN\n    RAISE EXCEPTION 'posthaste: claim needs";

    "names that an answer does not count" by LONG_NAMES:
        "WHERE r.bytes <= p_bytes" => "WHERE true";

    "two-bound scan" by LONG_WINDOW:
        "(r.xid, r.id) > (w.from_xid, w.from_id) AND r.xid < v_end" =>
        "r.xid >= w.from_xid AND (r.xid > w.from_xid OR r.id > w.from_id) AND r.xid < v_end";

    "a full batch exhausts its window" by STRESS:
        "o_n < p_limit AND o_bytes < p_bytes AND" => "o_bytes < p_bytes AND";

    "a batch cut by bytes exhausts its window" by STRESS:
        "o_n < p_limit AND o_bytes < p_bytes AND" => "o_n < p_limit AND";

    "a claim hands out what it has just closed as expired" by STRESS:
        "WHERE NOT p_mixed OR NOT EXISTS (SELECT FROM posthaste.job_done_@k@ a WHERE a.xid = r.xid \
         AND a.id = r.id)" => "";

    "a slow look moves the cursor without a second look" by SLOW_LOOK:
        "IF w.batch = (SELECT n.batch FROM posthaste.window_@k@(p_queue, p_priority, \
         NULL) n) THEN" =>
        "IF true THEN";

    "a look that takes its now before it reads the cursor" by LATE_TO_THE_CURSOR:
        "  w posthaste.lane_window;\n  v_exhausted boolean;" =>
        "  w posthaste.lane_window;\n  v_before pg_snapshot := coalesce(p_now, \
         posthaste.cursor_snapshot());\n  v_exhausted boolean;",
        "coalesce(p_now, posthaste.cursor_snapshot()));\n  END IF;\n  w.is_fresh := false;" =>
            "v_before);\n  END IF;\n  w.is_fresh := false;";

    "a cursor that takes its own transaction for finished" by CLAIM_AND_SETTLE_AT_ONCE:
        "IF own IS NULL OR own >= pg_snapshot_xmax(s) THEN" => "IF true THEN";

    "reused fence" by REUSED_NUMBER:
        "c.batch = p_batch AND c.token = p_token" => "c.batch = p_batch";

    "close_batches() that does not look whether it closed anything" by REUSED_NUMBER:
        "IF v_closed IS NOT TRUE THEN" => "IF v_closed IS NULL THEN";

    "a batch closed as a whole although a job of it was closed by itself" by SPLIT_BATCH:
        "AND NOT EXISTS (SELECT FROM posthaste.batch_split_@k@ s WHERE s.batch = p_batch)\n" =>
            "\n";

    "a batch closed as a whole while a job of it is being closed by itself" by SPLITTING_BATCH:
        "IF NOT pg_try_advisory_xact_lock(1885893477, (p_batch % 2147483648)::integer) THEN" =>
            "IF false THEN";

    "a job closed by itself after its batch was closed as a whole" by WHOLE_BATCH:
        "IF EXISTS (SELECT FROM posthaste.batch_done_@k@ w WHERE w.batch = p_batch)\n     \
         OR NOT EXISTS" => "IF NOT EXISTS";

    "a move to the overflow that closes nothing" by MOVED_TO_OVERFLOW:
        "VALUES (v_batch, 5);" => "SELECT v_batch, 5 WHERE false;";

    "a batch without its upper end" by STRESS:
        "AND c.to_xid > c.low_xid AND r.id <= c.to_id" => "AND c.to_xid > c.low_xid",
        "AND r.id <= CASE WHEN c.low_xid < c.to_xid THEN 9223372036854775807 WHEN c.low_xid = \
         c.to_xid THEN c.to_id ELSE -1 END" =>
        "AND c.low_xid <= c.to_xid";

    "a retry that is closed and not scheduled" by STRESS:
        "WHERE v.kind = 1 OR (v.kind = 8 AND j.crashes = 0);" => "WHERE v.kind = 8 AND j.crashes = \
            0;";

    "a lost claim is not looked for in flight" by IN_FLIGHT_AND_GIVEN_BACK:
        "h.token = p_token AND h.state = 'running' HAVING" => "h.token = p_token AND h.state = \
            'awaiting' HAVING";

    "rescue that does not look at the heartbeat again" by BEATING_WORKER:
        "WHERE id = p_worker AND beat = p_beat;" => "WHERE id = p_worker;";

    "expiry that does not mark what it closed" by EXPIRED_AHEAD_OF_TIME:
        "marked AS (INSERT INTO posthaste.closed_unclaimed_@k@ (xid, id) SELECT xid, \
         id FROM gone)," => "";

    "no ready_scan check" by SEALED_BEFORE_THE_LOCK:
        " AND pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g" => "",
        "IF posthaste.position('posthaste.ready_scan') <= g THEN" => "IF true THEN";

    "no ready_scan check in enqueue()" by SEALED_BEFORE_THE_LOCK:
        "THEN pg_sequence_last_value('posthaste.ready_scan'::regclass) <= c.g END" => "THEN true \
            END";

    // ready_low is what tells the ready log that a slot is still in use.
    "no ready_low check" by FULL_READY_LOG:
        "IF v_current + 1 - pg_sequence_last_value('posthaste.ready_low'::regclass) >= 4 THEN" =>
            "IF false THEN";

    "seal without the exclusive lock" by SEALED_BEFORE_THE_ROW:
        "IF NOT pg_try_advisory_xact_lock(1885893473, v_scan::integer) THEN" => "IF false THEN";

    "enqueue() without the shared lock" by SEALED_UNDER_AN_OPEN_TRANSACTION:
        "AND CASE WHEN pg_try_advisory_xact_lock_shared(1885893473, c.g::integer)" => "AND CASE \
            WHEN true";

    "seal without a look for unclaimed jobs" by STRESS:
        "IF (SELECT l.o_queue FROM posthaste.pending_lane((v_scan % 4)::integer) l) IS NOT NULL \
         THEN" => "IF false THEN";

    "counting instead of comparing" by FOREIGN_ACKNOWLEDGEMENT:
        "WHERE EXISTS (SELECT FROM posthaste.batch_rows_@k@(c.batch, c.token) r\n                  \
         WHERE NOT EXISTS (SELECT FROM posthaste.job_done_@k@ a WHERE a.xid = r.xid AND a.id = \
         r.id))" =>
        "WHERE (SELECT count(*) FROM posthaste.job_done_@k@) < (SELECT sum(o.n) FROM \
         posthaste.claim_@k@ o WHERE NOT EXISTS (SELECT FROM posthaste.batch_done_@k@ w WHERE \
         w.batch = o.batch))";

    "truncation without a look at open jobs" by FOREIGN_ACKNOWLEDGEMENT:
        "IF NOT v_done THEN\n    o_state := 'open';" => "IF false THEN\n    o_state := 'open';";

    "promotion without late commits" by LATE_AND_DUE:
        "v_late := posthaste.late_@k@(c.lo, c.hi, c.lo_bound, c.at_xid);" => "v_late := '{}';";

    "promotion that believes a snapshot's list of running transactions" by PUBLISHED_IN_BETWEEN:
        "r.xid >= greatest(pg_snapshot_xmax(p_lo), p_at) AND r.xid < p_bound" => "false";

    "promotion up to the clock instead of what was published" by PUBLISHED_BEFORE_LOOKED:
        "c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(v_until, c.t_hi) END;" =>
        "c.t_hi := CASE WHEN p_final THEN 'infinity' ELSE greatest(clock_timestamp(), c.t_hi) END;";

    "promotion that pages by time alone" by ONE_INSTANT:
        "WHERE (r.scheduled_at, r.id) > (c.at_due, c.at_id)" => "WHERE r.scheduled_at > c.at_due";

    "late promotion that pages by time alone" by ONE_INSTANT:
        "AND (r.scheduled_at, r.id) > (CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END,
                                           CASE WHEN x = c.at_xid THEN c.at_id ELSE 0 END)" =>
        "AND r.scheduled_at > CASE WHEN x = c.at_xid THEN c.at_due ELSE '-infinity' END";

    "a scheduled segment is entered without a second look" by CLOSED_SCHEDULED_SEGMENT:
        "IF posthaste.position('posthaste.scheduled_current') = g THEN" => "IF true THEN";

    "a scheduled slot is truncated although jobs wait in it" by UNEVEN_SLOT:
        "IF NOT posthaste.is_promoted_@k@() THEN" => "IF false THEN";

    "a scheduled slot is entered again although it was never emptied" by LOST_TRUNCATION:
        "IF posthaste.is_empty(v_other) THEN" => "IF true THEN";

    "an enqueue that asks only the clock" by CLOCK_STEPS_BACK:
        "scheduled_at > moment AND scheduled_at > posthaste.promote_horizon()" => "scheduled_at > \
            moment";

    "a view that asks only the clock" by CLOCK_STEPS_BACK:
        "r.scheduled_at > clock_timestamp() AND r.scheduled_at > (SELECT \
         posthaste.promote_horizon())" => "r.scheduled_at > clock_timestamp()";

    "a retry that asks only the clock" by CLOCK_STEPS_BACK:
        "v.due > v_now AND v.due > (SELECT posthaste.promote_horizon())" => "v.due > v_now";

    "a carry-over that asks only the clock" by CLOCK_STEPS_BACK:
        "w.due > v_now AND w.due > (SELECT posthaste.promote_horizon())" => "w.due > v_now";

    "a step back that goes on in its slot" by PUBLISHED_THE_PRESENT_AGAIN:
        "PERFORM setval('posthaste.scheduled_current', v_current + 1);
  PERFORM setval('posthaste.promote_horizon', greatest(" =>
        "PERFORM setval('posthaste.promote_horizon', greatest(";

    "a step back that is not published" by PUBLISHED_THE_PRESENT_AGAIN:
        "RETURN posthaste.step_back(v_now);" => "RETURN false;";

    "a retry that counts an attempt for each vain back-off" by PUBLISHED_THE_PRESENT_AGAIN:
        "WHEN s.slot < 6 AND v.due > clock_timestamp() THEN j.attempt" =>
        "WHEN false THEN j.attempt";

    "a retry that waits for a clock that was ahead" by PUBLISHED_THE_PRESENT_AGAIN:
        "THEN t_lo + interval '1 hour' ELSE '-infinity' END" =>
        "THEN '-infinity'::timestamptz ELSE '-infinity' END";

    "a key that is never taken" by ORDERING:
        "WHERE NOT EXISTS (SELECT FROM posthaste.stand(k.key) s WHERE NOT s.is_free)" => "WHERE \
            true";

    "turns that are forgotten with their slot" by ORDERING:
        "PERFORM posthaste.keep_turns(@k@);" => "";

    "anybody's end is the end of a turn" by ORDERING:
        "WHERE s.turn = e.turn AND NOT s.is_free" => "WHERE NOT s.is_free";

    "a key whose last job comes first" by ORDERING:
        "ORDER BY r.ordering_key, r.turn LIMIT 1" => "ORDER BY r.ordering_key DESC, r.turn DESC \
            LIMIT 1";

    "a done job that keeps its turn" by ORDERING:
        "WHERE v.kind = 0 AND j.turn IS NOT NULL HAVING" => "WHERE v.kind = 99 AND j.turn IS NOT \
            NULL HAVING";

    "who begins goes on waiting too" by ORDERING:
        "FROM unnest(p_places) u WHERE u.slot = @k@;" => "FROM unnest(p_places) u WHERE false;";

    "counting that forgets late commits" by COUNTED_LATE:
        "FROM unnest(w.late) p, LATERAL (\n          SELECT r.xid, r.id, r.name, r.tag" => "FROM \
            unnest(w.late[1:0]) p, LATERAL (\n          SELECT r.xid, r.id, r.name, r.tag";

    "a mark that claims have not passed" by COUNTED_LATE:
        "SELECT ((c_exhausted OR (max_xid, max_id) <= (c_xid, c_id)) \
         AND posthaste.is_within(hi, c_hi))" => "SELECT (c_exhausted OR (max_xid, \
             max_id) <= (c_xid, c_id))";

    "claims behind a mark that are not subtracted" by COUNTED_LATE:
        "WHERE l.p_run IS NOT NULL AND posthaste.is_claimed" => "WHERE false AND \
            posthaste.is_claimed";

    "promotion that counts nothing" by COUNTED:
        "w(what) GROUP BY 1, 2, 3, 4, 5)," => "w(what) WHERE false GROUP BY 1, 2, 3, 4, 5),";

    "a close of an unclaimed job that counts nothing" by CLOSED_UNCLAIMED:
        "SELECT xid, id, queue, priority, name, tag FROM gone WHERE queue <> '')" => "SELECT xid, \
            id, queue, priority, name, tag FROM gone WHERE false)";

    "open batches that a mark forgets" by COUNTED_LATE:
        "coalesce(array_agg(b.batch), '{}') AS open" => "coalesce((array_agg(b.batch))[1:0], \
            '{}') AS open";

    "scheduled jobs of late commits that are not counted" by COUNTED_LATE:
        "SELECT late.* FROM pg_snapshot_xip(n.lo) p, LATERAL (" => "SELECT late.* FROM (SELECT \
            '1'::xid8 AS p WHERE false) p, LATERAL (";

    "a turn that counts nothing" by COUNTED_TURNS:
        "PERFORM posthaste.count_left(v_next);" => "";

    "a tick that was made already" by TICK:
        "next_at IS NOT DISTINCT FROM p_at FOR UPDATE" => "true FOR UPDATE";

    "a tick that somebody else is making" by TICK:
        "next_at IS NOT DISTINCT FROM p_at FOR UPDATE SKIP LOCKED;" => "next_at IS NOT DISTINCT \
            FROM p_at;";

    "a name that decides nothing" by SITES:
        "THEN p_known = p_here" => "THEN true";

    "a site that is any name's" by SITES:
        "ELSE p_known IS NULL AND p_here IS NULL AND p_is_known_address END" =>
            "ELSE p_is_known_address END";

    "a cold copy that counts as restarted" by SITES:
        "THEN p_is_known_address OR p_is_same_endpoint" => "THEN true";

    "servers without an address of their own that are alike" by SITES:
        "coalesce(s.endpoint = posthaste.endpoint(), false)" =>
            "s.endpoint IS NOT DISTINCT FROM posthaste.endpoint()";

    "a start that nobody compares" by SITES:
        "coalesce(l.is_same_life AND s.started = pg_postmaster_start_time(), false)" =>
            "coalesce(l.is_same_life, false)";

    "an address that is forgotten by a failover" by SITES:
        "s.addresses && p_addresses OR '{}' IN" => "false OR '{}' IN";

    "an address that is always known" by SITES:
        "s.addresses && p_addresses OR '{}' IN" => "true OR '{}' IN";

    "a new address that is not recorded" by SITES:
        "addresses = (p_addresses
                       ||" => "addresses = (s.addresses ||";

    "a life that is not recorded" by SITES:
        "started = pg_postmaster_start_time(), life = v_life," =>
            "started = pg_postmaster_start_time(),";

    "a refusal that nobody heeds" by SITES:
        "    IF v_refused IS NOT NULL THEN
      UPDATE posthaste.site" => "    IF false THEN
      UPDATE posthaste.site";

    "a refusal that nobody reads" by SITES:
        "SET refused = v_refused, refused_at" => "SET refused_at";

    "a refused worker that is registered" by SITES:
        "    DELETE FROM posthaste.worker WHERE id = o_worker;" => "";

    "a process that cannot follow its store" by SITES:
        "WHEN p_is_running OR p_was_admitted THEN true" => "WHEN p_is_running THEN true";

    "a process that follows by its number alone" by SITES:
        "w.id = p_worker AND w.started_at = p_registered AND" => "w.id = p_worker AND";

    "a process that follows by its start alone" by SITES:
        "w.id = p_worker AND w.started_at = p_registered AND" => "w.started_at = p_registered AND";

    "a process that follows after its death" by SITES:
        "w.started_at = p_registered AND w.stopped_at IS NULL)" => "w.started_at = p_registered)";

    "an adoption while a worker lives" by ADOPTED:
        "IF v_living IS NOT NULL AND NOT p_force THEN" => "IF false THEN";

    "an adoption that keeps the delivery ids" by ADOPTED:
        "  PERFORM posthaste.begin_epoch(greatest(pg_sequence_last_value('posthaste.known_id'\
         ::regclass),
                                         posthaste.claimed_id()) + 1);
  DELETE FROM posthaste.site;" => "  DELETE FROM posthaste.site;";

    "an adoption that keeps the site" by ADOPTED:
        "  DELETE FROM posthaste.site;
  PERFORM posthaste.note_site(p_site, p_addresses);
  IF p_discard" => "  IF p_discard";

    "an adoption that lets the original's workers live" by ADOPTED:
        "  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
  DELETE FROM posthaste.leader;" => "  DELETE FROM posthaste.leader;";

    "an adoption that discards nothing" by ADOPTED:
        "    o_discarded := posthaste.discard_unfinished();" => "    o_discarded := 1;";
};
