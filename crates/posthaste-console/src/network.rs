//! Addresses from which a proxy asks. No IO.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address, or all that begin alike.
///
/// ```
/// use posthaste_console::Network;
///
/// let network: Network = "10.20.0.0/16".parse()?;
/// assert!(network.contains([10, 20, 3, 4].into()));
/// assert!(!network.contains([10, 21, 3, 4].into()));
/// assert!("0.0.0.0/0".parse::<Network>().is_err(), "everybody is no network");
/// # Ok::<(), posthaste_console::NotANetwork>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    start: IpAddr,
    bits: u8,
}

/// What was given is neither an address nor a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be an address such as 10.0.0.7, or a network such as 10.20.0.0/16")]
pub struct NotANetwork;

impl Network {
    /// Whether this address is one of it. An address of IPv4 is itself also in the clothes of IPv6.
    pub fn contains(self, address: IpAddr) -> bool {
        match (self.start, address.to_canonical()) {
            (IpAddr::V4(start), IpAddr::V4(address)) => {
                let shift = 32_u32.saturating_sub(self.bits.into());
                let is = |one: u32| one.checked_shr(shift).unwrap_or_default();
                is(start.to_bits()) == is(address.to_bits())
            }
            (IpAddr::V6(start), IpAddr::V6(address)) => {
                let shift = 128_u32.saturating_sub(self.bits.into());
                let is = |one: u128| one.checked_shr(shift).unwrap_or_default();
                is(start.to_bits()) == is(address.to_bits())
            }
            _ => false,
        }
    }

    /// Whether nothing is set behind the part that counts: else somebody meant something else.
    fn is_whole(self) -> bool {
        let zeros = match self.start {
            IpAddr::V4(start) => start.to_bits().trailing_zeros() + u32::from(self.bits) >= 32,
            IpAddr::V6(start) => start.to_bits().trailing_zeros() + u32::from(self.bits) >= 128,
        };
        zeros && self.bits > 0
    }
}

impl FromStr for Network {
    type Err = NotANetwork;

    fn from_str(text: &str) -> Result<Self, NotANetwork> {
        let (start, bits) = match text.split_once('/') {
            Some((start, bits)) => (start, Some(bits.parse::<u8>().map_err(|_| NotANetwork)?)),
            None => (text, None),
        };
        let start: IpAddr = start.parse().map_err(|_| NotANetwork)?;
        let most = if start.is_ipv4() { 32 } else { 128 };
        let network = Self {
            start,
            bits: bits.unwrap_or(most),
        };
        let is_mapped = start != start.to_canonical();
        let is_good = network.bits <= most && network.is_whole() && !is_mapped;
        is_good.then_some(network).ok_or(NotANetwork)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let most = if self.start.is_ipv4() { 32 } else { 128 };
        match self.bits == most {
            true => self.start.fmt(f),
            false => write!(f, "{}/{}", self.start, self.bits),
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
