-- Sites: whether a process may work on this store, or it is a copy of another site's.
--
-- A physical copy has everything of the original except the server it runs on. So the store records
-- the names and addresses by which it is reached, and the last identity of its server.

-- The decision. p_known and p_here: the configured names of the store's site and of the process's.
-- p_is_known_address: the process connects by an address recorded in the store. p_is_running: the
-- server is the one recorded last, and has run since. p_is_same_life: it was at most stopped
-- cleanly, which is also true of a cold copy. p_is_same_endpoint: the server's own address is the
-- same. p_was_admitted: the process was admitted before, and is still alive.
--
-- If both have names, the names decide. Without names, a known address is sufficient, whichever
-- server it leads to, because servers are replaced. So is an earlier admission of the process. If
-- only one has a name, an address proves less: a crashed or promoted server may be a copy whose
-- user gave it a name, or forgot that the original has one.
CREATE OR REPLACE FUNCTION posthaste.is_own_site(
  p_known text, p_here text, p_is_known_address boolean, p_is_running boolean,
  p_is_same_life boolean, p_is_same_endpoint boolean, p_was_admitted boolean)
RETURNS boolean LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE
    -- mutant: site names are ignored: WHEN p_known IS NOT NULL AND p_here IS NOT NULL THEN true
    -- bug: a copy of a store may work (insert): WHEN true THEN true
    WHEN p_known IS NOT NULL AND p_here IS NOT NULL THEN p_known = p_here
    -- mutant: a process cannot follow its store: WHEN p_is_running THEN true
    WHEN p_is_running OR p_was_admitted THEN true
    -- mutant: a cold copy counts as a restart: WHEN p_is_same_life THEN true
    WHEN p_is_same_life THEN p_is_known_address OR p_is_same_endpoint
    -- mutant: any site name matches: ELSE p_is_known_address END
    ELSE p_known IS NULL AND p_here IS NULL AND p_is_known_address END
$f$;

-- The server's own address and port as this session sees them; NULL for loopback, which every
-- machine has.
CREATE OR REPLACE FUNCTION posthaste.endpoint() RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE WHEN NOT inet_server_addr() <<= '127.0.0.0/8' AND inet_server_addr() <> '::1'
              THEN concat(host(inet_server_addr()), ':', inet_server_port()) END
$f$;

-- Whether this process registered here and has lived since: its row has the start time that only it
-- received, and it was not declared dead. A promoted server has the row; an adopted copy has ended
-- it.
CREATE OR REPLACE FUNCTION posthaste.was_admitted(p_worker bigint, p_registered timestamptz)
RETURNS boolean LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT EXISTS (SELECT FROM posthaste.worker w
                  -- mutant: a process is recognized by its id alone:
                  --   | WHERE w.id = p_worker AND w.stopped_at IS NULL)
                  -- mutant: a process is recognized by its start time alone:
                  --   | WHERE w.started_at = p_registered AND w.stopped_at IS NULL)
                  -- mutant: a dead process is recognized:
                  --   | WHERE w.id = p_worker AND w.started_at = p_registered)
                  WHERE w.id = p_worker AND w.started_at = p_registered AND w.stopped_at IS NULL)
$f$;

-- Why a process of this site may not work here; NULL if it may. p_worker, p_registered: from its
-- last registration.
CREATE OR REPLACE FUNCTION posthaste.site_refusal(
  p_site text, p_addresses text[], p_worker bigint DEFAULT NULL,
  p_registered timestamptz DEFAULT NULL)
RETURNS text LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT format('%s owns this store, not %s', posthaste.site_label(s.name, s.addresses),
                posthaste.site_label(p_site, p_addresses))
    FROM posthaste.site s, LATERAL (SELECT
      s.life = pg_sequence_last_value('posthaste.life'::regclass) AS is_same_life OFFSET 0) l
   -- A pool may not know its address: that proves no copy.
   WHERE NOT posthaste.is_own_site(s.name, p_site,
           -- mutant: a failover loses the recorded address:
           --   | false OR '{}' IN (s.addresses, p_addresses),
           -- mutant: every address counts as known: true OR '{}' IN (s.addresses, p_addresses),
           s.addresses && p_addresses OR '{}' IN (s.addresses, p_addresses),
           -- mutant: the server's start time is not compared: coalesce(l.is_same_life, false),
           coalesce(l.is_same_life AND s.started = pg_postmaster_start_time(), false),
           -- mutant: servers without an address count as equal:
           --   | coalesce(l.is_same_life, false),
           --   | s.endpoint IS NOT DISTINCT FROM posthaste.endpoint(),
           coalesce(l.is_same_life, false), coalesce(s.endpoint = posthaste.endpoint(), false),
           posthaste.was_admitted(p_worker, p_registered))
     -- A template of databases in which nothing was worked belongs to no site.
     AND (posthaste.recorded_identity())[4] = (posthaste.current_identity())[4]
$f$;

CREATE OR REPLACE FUNCTION posthaste.site_label(p_site text, p_addresses text[])
RETURNS text LANGUAGE sql IMMUTABLE
SET search_path = pg_catalog, pg_temp AS $f$
  SELECT CASE WHEN p_site IS NULL
              THEN format('the site at %s', array_to_string(p_addresses[1:3], ', '))
              ELSE format('the site "%s"', p_site) END
$f$;

-- Notes that a process of this site waits here. Each site has a note, written every ten seconds at
-- most; the last 16 sites of the last minute keep theirs.
CREATE OR REPLACE FUNCTION posthaste.note_refused(p_label text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $f$
  UPDATE posthaste.site s
     SET (refused, refused_at) = (
           SELECT array_agg(n.label), array_agg(n.noted_at)
             FROM (SELECT p_label, clock_timestamp() UNION ALL
                   SELECT k.label, k.noted_at
                     FROM unnest(s.refused, s.refused_at) k(label, noted_at)
                    -- mutant: a refused site displaces another one: WHERE false
                    WHERE k.label <> p_label
                      AND k.noted_at > clock_timestamp() - interval '1 min'
                    ORDER BY 2 DESC LIMIT 16) n(label, noted_at))
   WHERE NOT EXISTS (SELECT FROM unnest(s.refused, s.refused_at) k(label, noted_at)
                      WHERE k.label = p_label
                        AND k.noted_at > clock_timestamp() - interval '10 s')
$f$;

-- Ensures that a process of this site may work here, as posthaste.check_identity() does, and
-- updates the recorded site. Returns why not, and records that.
CREATE OR REPLACE FUNCTION posthaste.enter_site(
  p_site text, p_addresses text[], p_thorough boolean DEFAULT false,
  p_worker bigint DEFAULT NULL, p_registered timestamptz DEFAULT NULL)
RETURNS text LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_refused text;
  v_is_template boolean;
BEGIN
  PERFORM posthaste.reset_replica_role();
  IF NOT posthaste.needs_rebase(false) THEN
    v_refused := posthaste.site_refusal(p_site, p_addresses, p_worker, p_registered);
    -- mutant: a site refusal is ignored: IF false THEN
    IF v_refused IS NOT NULL THEN
      -- mutant: a refused site is not noted:
      PERFORM posthaste.note_refused(posthaste.site_label(p_site, p_addresses));
      RETURN v_refused;
    END IF;
    v_is_template :=
      (posthaste.recorded_identity())[4] IS DISTINCT FROM (posthaste.current_identity())[4];
  END IF;
  PERFORM posthaste.check_identity(p_thorough);
  IF v_is_template THEN
    DELETE FROM posthaste.site;
  END IF;
  PERFORM posthaste.position('posthaste.flags'), posthaste.record_site(p_site, p_addresses);
  RETURN NULL;
END $f$;

-- Writes only changes. Of many addresses the most recently used are kept: one that is used again
-- moves to the front before others can displace it.
CREATE OR REPLACE FUNCTION posthaste.record_site(p_site text, p_addresses text[])
RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_life bigint := pg_sequence_last_value('posthaste.life'::regclass);
BEGIN
  UPDATE posthaste.site s
     -- mutant: the server's life is not recorded:
     --   | SET name = coalesce(p_site, s.name), started = pg_postmaster_start_time(),
     SET name = coalesce(p_site, s.name), started = pg_postmaster_start_time(), life = v_life,
         endpoint = coalesce(posthaste.endpoint(), s.endpoint),
         -- mutant: a new address is not recorded: addresses = (s.addresses
         addresses = (p_addresses
                       || ARRAY(SELECT a FROM unnest(s.addresses) WITH ORDINALITY k(a, n)
                                 WHERE a <> ALL (p_addresses) ORDER BY n))[1:32]
   WHERE s.name IS DISTINCT FROM coalesce(p_site, s.name) OR s.life <> v_life
      OR s.started <> pg_postmaster_start_time() OR NOT s.addresses[1:16] @> p_addresses
      OR s.endpoint IS DISTINCT FROM coalesce(posthaste.endpoint(), s.endpoint);
  IF NOT EXISTS (SELECT FROM posthaste.site) THEN
    INSERT INTO posthaste.site (name, addresses, started, life, endpoint)
    VALUES (p_site, p_addresses, pg_postmaster_start_time(), v_life, posthaste.endpoint())
    ON CONFLICT DO NOTHING;
  END IF;
END $f$;

-- Takes the store over for this site, permanently. Jobs enqueued from now on get delivery ids that
-- the original does not use; so do those enqueued since the copy was made, as far as its leader had
-- recorded the drawn ids. Refuses while a worker is alive, unless p_force is set. p_discard ends
-- all waiting jobs. Returns the label of the previous site, and the number of discarded jobs.
CREATE OR REPLACE FUNCTION posthaste.adopt(
  p_site text, p_addresses text[], p_force boolean DEFAULT false,
  p_discard boolean DEFAULT false, OUT o_from text, OUT o_discarded bigint)
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_living text;
BEGIN
  SELECT posthaste.site_label(s.name, s.addresses) INTO o_from FROM posthaste.site s;
  PERFORM posthaste.require_triggers();
  IF posthaste.needs_rebase() THEN
    PERFORM posthaste.reject_restored_store();
  END IF;
  PERFORM posthaste.position('posthaste.flags'), posthaste.wait_for_disk();
  IF p_discard THEN
    PERFORM posthaste.lock_store();
  END IF;
  LOCK TABLE posthaste.worker IN SHARE ROW EXCLUSIVE MODE;
  SELECT format('%s (%s)', w.id, w.name) INTO v_living FROM posthaste.worker w
   WHERE w.stopped_at IS NULL AND w.identity = posthaste.session_identity()
     AND w.seen_at BETWEEN clock_timestamp() - interval '1 min'
                       AND clock_timestamp() + interval '1 min' LIMIT 1;
  -- mutant: adoption ignores a live worker: IF false THEN
  IF v_living IS NOT NULL AND NOT p_force THEN
    RAISE EXCEPTION 'posthaste: worker % is running', v_living
      USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Stop all workers first. A killed worker counts as running for one minute.';
  END IF;
  -- mutant: adoption keeps the original's workers alive:
  UPDATE posthaste.worker SET stopped_at = clock_timestamp() WHERE stopped_at IS NULL;
  DELETE FROM posthaste.leader;
  UPDATE posthaste.store_identity
     SET identity = posthaste.current_identity(), since = clock_timestamp();
  -- mutant: adoption keeps the delivery ids (2 lines):
  PERFORM posthaste.begin_epoch(greatest(pg_sequence_last_value('posthaste.known_id'::regclass),
                                         posthaste.max_claimed_id()) + 1);
  -- mutant: adoption keeps the site (2 lines):
  DELETE FROM posthaste.site;
  PERFORM posthaste.record_site(p_site, p_addresses);
  IF p_discard THEN
    -- mutant: adoption discards nothing: o_discarded := 1;
    o_discarded := posthaste.discard_unfinished();
  END IF;
END $f$;

-- Removes every unfinished job and returns their number; the caller has called
-- posthaste.lock_store(). Dead jobs, history and totals stay.
CREATE OR REPLACE FUNCTION posthaste.discard_unfinished() RETURNS bigint LANGUAGE plpgsql
SET jit = off SET search_path = pg_catalog, pg_temp AS $f$
DECLARE
  v_jobs bigint;
BEGIN
  -- Ends of turns are rows too.
  SELECT count(*) INTO v_jobs FROM (
    -- repeat: slots 0..7
    SELECT u.queue, u.priority FROM posthaste.unfinished_0() u UNION ALL
    -- end
    SELECT h.queue, h.priority FROM posthaste.in_flight h) j WHERE j.queue <> '' OR j.priority = 0;
  DELETE FROM posthaste.in_flight;
  DELETE FROM posthaste.unique_key;
  PERFORM posthaste.truncate_slots(), posthaste.reset_cursors(), posthaste.recount();
  RETURN v_jobs;
END $f$;
