-- The private database, made once after initdb; the name is the user's.
CREATE DATABASE posthaste
