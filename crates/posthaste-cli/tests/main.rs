//! The command, observed from outside: what it prints, what it exits with, what it leaves in the
//! database and on the disk.

mod alerts;
mod capture;
mod command_line;
mod console;
mod container;
mod copies;
mod demo;
mod doctor;
mod enqueue;
mod exporter;
mod faults;
mod handlers;
mod idle_connections;
mod json;
mod killed;
mod logs;
mod mails;
mod migrate;
mod operate;
mod otlp;
mod pooler;
mod private_postgres;
mod relay;
mod secrets;
mod service;
mod stage;
mod status;
mod stopping;
mod sync;
mod tls;
mod top;
mod tree;
mod two_phase;
mod txwatch;
mod up;
