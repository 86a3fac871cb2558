//! Captures against real servers.

mod begun_again;
mod copies;
mod destinations;
mod direct;
mod faults;
mod histories;
mod install;
mod pauses;
mod sources;
mod world;
