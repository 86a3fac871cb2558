-- The application's own table in all examples.
CREATE TABLE customer (
    id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name      text NOT NULL,
    remind_at timestamptz NOT NULL
);
