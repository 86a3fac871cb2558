-- Jobs of a shop in every state, schedules, a failing relay, and an index.
SELECT posthaste.enqueue('mail.send', jsonb_build_object('to', g, 'template', 'receipt'),
                         queue => 'mail', tag => 'receipts')
  FROM generate_series(1, 40) g;
SELECT posthaste.enqueue('mail.bounce', jsonb_build_object('to', g, 'api_key', 'k-' || g),
                         queue => 'mail', max_attempts => 1)
  FROM generate_series(1, 12) g;
SELECT posthaste.enqueue('charge.capture', jsonb_build_object('order', 9900 + g, 'cents', g * 250),
                         queue => 'payments', tag => 'order ' || 9900 + g)
  FROM generate_series(1, 8) g;
SELECT posthaste.enqueue('parcel.hand_over', '{"parcel": 31}', queue => 'parcels');
SELECT posthaste.enqueue('report.build', '{"month": "2026-10"}', queue => 'reports');
SELECT posthaste.enqueue('invoice.print', jsonb_build_object('invoice', 7000 + g),
                         queue => 'printing', ordering_key => 'customer ' || g % 2)
  FROM generate_series(1, 14) g;
SELECT posthaste.enqueue('mail.remind', jsonb_build_object('to', g), queue => 'mail',
                         scheduled_at => now() + g * interval '25 minutes')
  FROM generate_series(1, 9) g;
SELECT posthaste.pause('printing'), posthaste.limit_rate('payments', 90, '1 minute', 3),
       posthaste.keep('mail', '2 days');
INSERT INTO posthaste.dead
  (id, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes,
   crashes, state, queue, name, tag, last_error, kwargs)
SELECT nextval('posthaste.job_id'), now() - interval '2 hours', now() - interval '2 hours',
       now() - interval '1 hour', 0, 0, 25, 14, 0, 'expired', 'mail', 'mail.code', '', NULL,
       jsonb_build_object('to', g)
  FROM generate_series(1, 3) g;
INSERT INTO posthaste.in_flight
  (id, until, enqueued_at, scheduled_at, expires_at, priority, attempt, max_attempts, kwargs_bytes,
   crashes, state, queue, name, tag, last_error, kwargs)
VALUES (nextval('posthaste.job_id'), now() + interval '1 hour', now() - interval '5 minutes',
        now() - interval '5 minutes', 'infinity', 0, 2, 25, 2, 2, 'quarantined', 'pictures',
        'picture.scale', '', 'its worker died while it had the job', '{}');
INSERT INTO posthaste.periodic (name, schedule, time_zone, job, kwargs, queue, next_at)
VALUES ('nightly report', '30 3 1 1 *', 'Europe/Berlin', 'report.build', '{"kind": "daily"}',
        'reports', now() + interval '6 hours'),
       ('weekly invoices', '0 6 * * 1', 'UTC', 'invoice.print', '{}', 'printing',
        now() + interval '3 days');
SELECT posthaste.sync('page', '7', interval '0'), posthaste.sync('page', '8', interval '1 day');
INSERT INTO posthaste.worker (name, queues) VALUES ('relay-1', '{webhooks}');
SELECT posthaste.enqueue('order.paid', '{"order": 9911}', queue => 'webhooks');
INSERT INTO posthaste.relay
  (slot, worker, queue, route, destination, state, accepted, rejected, retried, unavailable,
   down_since, last_error, rejections, failures)
SELECT (SELECT posthaste.volume('relay')), w.id, 'webhooks', 'to the shop',
       'webhook https://shop.example/hooks', 'down', 1204, 2, 31, 45,
       clock_timestamp() - interval '12 minutes', 'connection refused', '{"410 Gone": 2}', '{}'
  FROM posthaste.worker w WHERE w.name = 'relay-1';
