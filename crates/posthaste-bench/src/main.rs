//! Breaks queues on purpose and measures posthaste against them.
fn main() {}
