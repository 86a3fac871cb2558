//! Addresses of trusted proxies. No IO.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

/// An address, or all addresses with the same prefix.
///
/// ```
/// use posthaste_console::Network;
///
/// let network: Network = "10.20.0.0/16".parse()?;
/// assert!(network.contains([10, 20, 3, 4].into()));
/// assert!(!network.contains([10, 21, 3, 4].into()));
/// assert!("0.0.0.0/0".parse::<Network>().is_err(), "everybody is not a network");
/// # Ok::<(), posthaste_console::NotANetwork>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network(IpNet);

/// The error for a text that is neither an address nor a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be an address such as 10.0.0.7, or a network such as 10.20.0.0/16")]
pub struct NotANetwork;

impl Network {
    /// Returns whether it contains this address. An IPv4-mapped IPv6 address counts as IPv4.
    pub fn contains(self, address: IpAddr) -> bool {
        self.0.contains(&address.to_canonical())
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let network = text.parse().ok();
        let network = network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
        let network: IpNet = network.ok_or(NotANetwork)?;
        let start = network.addr();
        // A bit that is set after the prefix is a typing error.
        let is_good =
            network.prefix_len() > 0 && start == network.network() && start == start.to_canonical();
        is_good.then_some(Self(network)).ok_or(NotANetwork)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.prefix_len() == self.0.max_prefix_len() {
            true => self.0.addr().fmt(f),
            false => self.0.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(text: &str) -> Network {
        text.parse().unwrap()
    }

    #[test]
    fn networks_match_by_prefix() {
        for (text, inside, outside) in [
            ("10.0.0.7", "10.0.0.7", "10.0.0.8"),
            ("10.0.0.0/8", "10.255.255.255", "11.0.0.0"),
            ("10.0.0.0/31", "::ffff:10.0.0.1", "::10.0.0.1"),
            ("128.0.0.0/1", "255.1.1.1", "127.1.1.1"),
            ("fd00::/8", "fd12::1", "fe80::1"),
            ("::1", "::1", "127.0.0.1"),
        ] {
            assert!(network(text).contains(inside.parse().unwrap()), "{text}");
            assert!(!network(text).contains(outside.parse().unwrap()), "{text}");
            assert_eq!(network(text).to_string(), text);
        }
    }

    #[test]
    fn rejects_the_whole_internet_and_malformed_networks() {
        for text in [
            "",
            "/",
            "10.0.0.0/",
            "/8",
            "10.0.0.0/33",
            "10.0.0.0/-1",
            "::/129",
            "0.0.0.0/0",
            "::/0",
            "10.1.2.3/8",
            "fd00::1/8",
            "10.0.0",
            "proxy.example",
            "::ffff:10.0.0.1",
            " ::1",
        ] {
            assert_eq!(text.parse::<Network>(), Err(NotANetwork), "{text}");
        }
    }
}
