CREATE TABLE annotation (
  id   bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  way  text NOT NULL,
  body text NOT NULL
);
