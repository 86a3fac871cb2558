-- An hour of samples of a shop, for a busy queue and a few quiet ones, instead of its worker's.
DELETE FROM posthaste.sample;
INSERT INTO posthaste.sample
  (span, at, queue, come, done, failed, started, waited, available, running, oldest)
SELECT 1, clock_timestamp() - g * interval '1 minute', name, sum(come) OVER past,
       sum(done) OVER past, sum(failed) OVER past, sum(done + failed) OVER past, 0,
       (weight * (40 + 30 * sin(g / 7.0)))::bigint, (weight * (6 + 3 * sin(g / 5.0)))::bigint,
       (4 + 3 * sin(g / 7.0))::bigint
  FROM (SELECT g, name, weight,
               (weight * (320 + 90 * sin(g / 8.0) + 30 * sin(g * 1.7)))::bigint AS come,
               (weight * (318 + 90 * sin(g / 8.0 + 0.2) + 25 * sin(g * 2.3)))::bigint AS done,
               (weight * (6 + 5 * sin(g / 11.0)))::bigint AS failed
          FROM generate_series(0, 62) g,
               (VALUES ('', 1.0), ('mail', 0.7), ('payments', 0.2), ('reports', 0.1))
                 q (name, weight)) m
WINDOW past AS (PARTITION BY name ORDER BY g DESC);
