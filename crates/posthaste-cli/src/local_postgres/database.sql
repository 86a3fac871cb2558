-- Creates the private database after initdb, with the user's name.
CREATE DATABASE posthaste
