//! The command, looked at from outside: what it prints, what it exits with, what it leaves in the
//! database and on the disk.

mod command_line;
mod doctor;
mod enqueue;
mod handlers;
mod killed;
mod mails;
mod migrate;
mod operate;
mod pooler;
mod private_postgres;
mod relay;
mod stage;
mod status;
mod stopping;
mod sync;
mod tls;
mod transactions;
mod tree;
mod up;
