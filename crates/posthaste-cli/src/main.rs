//! The posthaste command.
fn main() {}
