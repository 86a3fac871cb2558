//! Ports for servers that must restart at the same address.

use std::collections::HashSet;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Mutex, PoisonError};

use anyhow::bail;

use crate::shared;

/// Below the kernel's ephemeral range: a client that keeps connecting to a stopped server's port
/// could otherwise be given that port as its local one, connect to itself, and keep the server from
/// starting again.
const PORT_RANGE: std::ops::Range<u16> = 12_000..32_000;

/// Returns a free loopback port that neither this process nor another of its run has returned
/// before.
pub(crate) fn free() -> anyhow::Result<u16> {
    static HANDED_OUT: Mutex<Option<HashSet<u16>>> = Mutex::new(None);
    let mut handed_out = HANDED_OUT.lock().unwrap_or_else(PoisonError::into_inner);
    let handed_out = handed_out.get_or_insert_default();
    for _ in 0..1_000 {
        let port = fastrand::u16(PORT_RANGE);
        if !handed_out.contains(&port)
            && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
            && shared::is_first(&format!("port-{port}"))
        {
            handed_out.insert(port);
            return Ok(port);
        }
    }
    bail!("no free loopback port in {PORT_RANGE:?}")
}
