//! Captures against real servers.

mod begun_again;
mod copies;
mod destinations;
mod direct;
mod failover;
mod faults;
mod histories;
mod independence;
mod install;
mod options;
mod pauses;
mod routes;
mod sources;
mod timelines;
mod world;
