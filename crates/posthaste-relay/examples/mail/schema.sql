-- Mails and their states. The worker writes "sending" before it connects, so that a mail which may
-- have been sent never counts as unsent.
--
--   queued ──► sending ──► sent      the server has accepted it
--     ▲          │    └──► failed    the server rejects it for good, or it was tried often enough
--     └──────────┤                   the server did not accept it this time
--                └───────► unknown   the answer was lost, or the worker
CREATE TABLE IF NOT EXISTS mail_deliveries (
  delivery_id uuid PRIMARY KEY,  -- the task's id in the queue, and the mail's Message-ID
  recipient   text NOT NULL,
  subject     text NOT NULL,
  body        text NOT NULL,
  state       text NOT NULL DEFAULT 'queued'
              CHECK (state IN ('queued', 'sending', 'sent', 'failed', 'unknown')),
  attempt     integer NOT NULL DEFAULT 0,
  token       uuid,              -- of the attempt that may record the result
  reason      text,
  changed_at  timestamptz NOT NULL DEFAULT now(),
  looked_at   timestamptz NOT NULL DEFAULT '-infinity',  -- the reconciler's last check
  CHECK ((state = 'sending') = (token IS NOT NULL))
);
CREATE INDEX IF NOT EXISTS mail_deliveries_open ON mail_deliveries (state, looked_at)
  WHERE state <> 'sent';

-- Notifies the reconciler, which need not poll.
CREATE OR REPLACE FUNCTION mail_deliveries_notify() RETURNS trigger LANGUAGE plpgsql AS $f$
BEGIN
  PERFORM pg_notify('mail_deliveries', NEW.delivery_id::text);
  RETURN NULL;
END $f$;
CREATE OR REPLACE TRIGGER mail_deliveries_notify AFTER UPDATE OF state ON mail_deliveries
  FOR EACH ROW WHEN (NEW.state IN ('failed', 'unknown')) EXECUTE FUNCTION mail_deliveries_notify();
