//! The addresses that a webhook may connect to. They are checked when the connection is made, so
//! that a name cannot change between the check and its use.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use posthaste::Error;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::{ClientBuilder, Url};

/// IPv4 networks that contain no public addresses of hosts.
const NON_PUBLIC_V4: [Ipv4Net; 17] = [
    ipv4_net([0, 0, 0, 0], 8),
    ipv4_net([10, 0, 0, 0], 8),
    ipv4_net([100, 64, 0, 0], 10),
    ipv4_net([127, 0, 0, 0], 8),
    // Link-local, where clouds serve metadata that includes secrets.
    ipv4_net([169, 254, 0, 0], 16),
    ipv4_net([168, 63, 129, 16], 32),
    ipv4_net([172, 16, 0, 0], 12),
    ipv4_net([192, 0, 0, 0], 24),
    ipv4_net([192, 0, 2, 0], 24),
    ipv4_net([192, 31, 196, 0], 24),
    ipv4_net([192, 88, 99, 0], 24),
    ipv4_net([192, 168, 0, 0], 16),
    ipv4_net([198, 18, 0, 0], 15),
    ipv4_net([198, 51, 100, 0], 24),
    ipv4_net([203, 0, 113, 0], 24),
    ipv4_net([224, 0, 0, 0], 4),
    ipv4_net([240, 0, 0, 0], 4),
];
/// All public IPv6 addresses.
const GLOBAL_V6: Ipv6Net = ipv6_net([0x2000, 0], 3);
/// Networks among them without hosts: protocol assignments (Teredo among them), documentation.
const NON_PUBLIC_V6: [Ipv6Net; 3] = [
    ipv6_net([0x2001, 0], 23),
    ipv6_net([0x2001, 0xdb8], 32),
    ipv6_net([0x3fff, 0], 20),
];
const SIX_TO_FOUR: Ipv6Net = ipv6_net([0x2002, 0], 16);
const NAT64: Ipv6Net = ipv6_net([0x64, 0xff9b], 96);

const fn ipv4_net([a, b, c, d]: [u8; 4], bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, d), bits)
}

const fn ipv6_net([a, b]: [u16; 2], bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), bits)
}

/// The addresses that a [`Webhook`](super::Webhook) may connect to: public ones, and those that are
/// allowed explicitly. The address that is connected to is checked, not the name; an address that
/// contains another (mapped, translated, tunnelled) counts as the inner one.
///
/// ```
/// use posthaste_relay::AddressPolicy;
/// # fn main() -> Result<(), posthaste::Error> {
/// let address_policy = AddressPolicy::public().allow("10.20.0.0/16")?.allow("::1")?;
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct AddressPolicy {
    is_checked: bool,
    allowed: Vec<IpNet>,
    resolver: Arc<dyn Resolve>,
}

impl AddressPolicy {
    /// Allows public addresses only. The client then uses no proxy: a proxy would connect in its
    /// place, unchecked.
    pub fn public() -> Self {
        Self {
            is_checked: true,
            allowed: Vec::new(),
            resolver: Arc::new(SystemResolver),
        }
    }

    /// Allows any address, and a proxy if the client has one: for addresses that only an operator
    /// writes, and for proxies with their own checks.
    pub fn anywhere() -> Self {
        Self {
            is_checked: false,
            ..Self::public()
        }
    }

    /// Also allows an address, or a network such as `10.20.0.0/16`.
    pub fn allow(mut self, network: &str) -> Result<Self, Error> {
        let parsed = parse_network(network);
        let wrong = || Error::invalid("allow", format!("{network:?} is not an address or network"));
        self.allowed.push(parsed.ok_or_else(wrong)?);
        Ok(self)
    }

    /// Sets a resolver in place of the system's. Its results are checked like any others.
    pub fn resolver(self, resolver: impl Resolve + 'static) -> Self {
        let resolver = Arc::new(resolver);
        Self { resolver, ..self }
    }

    /// Limits a client to these addresses, except for addresses in a URL, which
    /// [`check_url`](Self::check_url) checks.
    pub(super) fn restrict_client(&self, client: ClientBuilder) -> ClientBuilder {
        if !self.is_checked {
            return client;
        }
        client.no_proxy().dns_resolver(self.clone())
    }

    /// Checks the address in this URL. A name passes: its addresses are checked when it is
    /// resolved.
    pub(super) fn check_url(&self, url: &Url) -> Result<(), Forbidden> {
        let host = url.host_str().unwrap_or_default();
        let address = host.trim_start_matches('[').trim_end_matches(']').parse();
        match address {
            Ok(address) if !self.admits(address) => Err(Forbidden),
            _ => Ok(()),
        }
    }

    fn admits(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        !self.is_checked
            || is_public(address)
            || self
                .allowed
                .iter()
                .any(|network| network.contains(&address))
    }
}

impl Resolve for AddressPolicy {
    fn resolve(&self, name: Name) -> Resolving {
        let (address_policy, found) = (self.clone(), self.resolver.resolve(name));
        Box::pin(async move {
            let found = found.await?;
            let admitted: Vec<SocketAddr> = found
                .filter(|one| address_policy.admits(one.ip()))
                .collect();
            if admitted.is_empty() {
                return Err(Forbidden.into());
            }
            Ok(Box::new(admitted.into_iter()) as Addrs)
        })
    }
}

impl fmt::Debug for AddressPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AddressPolicy")
            .field("is_checked", &self.is_checked)
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}

/// The error for an address that is not allowed.
#[derive(Debug, thiserror::Error)]
#[error("it is not a public address, and not listed as allowed")]
pub(super) struct Forbidden;

impl Forbidden {
    /// Returns whether it caused a request to fail.
    pub(super) fn is_cause_of(error: &reqwest::Error) -> bool {
        let mut cause = std::error::Error::source(error);
        while let Some(error) = cause {
            if error.is::<Self>() {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

/// The system's resolver.
struct SystemResolver;

impl Resolve for SystemResolver {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found = tokio::net::lookup_host((name.as_str(), 0)).await?;
            let found: Vec<SocketAddr> = found.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => !NON_PUBLIC_V4.iter().any(|one| one.contains(&address)),
        IpAddr::V6(address) => match embedded_ipv4(address) {
            Some(inner) => is_public(IpAddr::V4(inner)),
            None => {
                let is_closed = NON_PUBLIC_V6.iter().any(|one| one.contains(&address));
                GLOBAL_V6.contains(&address) && !is_closed
            }
        },
    }
}

/// Returns the IPv4 address to which packets for this address are forwarded.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let bits = address.to_bits();
    let at = |shift: u32| Ipv4Addr::from_bits((bits >> shift) as u32);
    if NAT64.contains(&address) {
        Some(at(0))
    } else if SIX_TO_FOUR.contains(&address) {
        Some(at(80))
    } else {
        None
    }
}

/// Parses a network, or a single address as one.
fn parse_network(text: &str) -> Option<IpNet> {
    let network = text.parse().ok();
    network.or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from))
}

#[cfg(test)]
mod tests {
    use super::{AddressPolicy, is_public, parse_network};

    fn public(address: &str) -> bool {
        is_public(address.parse::<std::net::IpAddr>().unwrap().to_canonical())
    }

    #[test]
    fn addresses_next_to_blocked_networks_are_public() {
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001:80b::200e",
            "64:ff9b::101:101",
            "2002:101:101::1",
            "::ffff:1.1.1.1",
        ] {
            assert!(public(address), "{address}");
        }
    }

    #[test]
    fn embedded_ipv4_addresses_are_checked() {
        for address in [
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:0:127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "64:ff9b:1::a00:1",
            "2002:7f00:1::",
            "2002:a9fe:a9fe::1",
            "2001:0:4136:e378:8000:63bf:3fff:fdd2",
        ] {
            assert!(!public(address), "{address}");
        }
    }

    #[test]
    fn allowed_networks_accept_networks_and_addresses() {
        let admits = |network: &str, address: &str| {
            let address_policy = AddressPolicy::public().allow(network).unwrap();
            address_policy.admits(address.parse().unwrap())
        };
        assert!(admits("127.0.0.1", "127.0.0.1") && !admits("127.0.0.1", "127.0.0.2"));
        assert!(admits("127.0.0.1", "::ffff:127.0.0.1"));
        assert!(admits("10.0.0.0/8", "10.255.0.1") && !admits("10.0.0.0/9", "10.128.0.0"));
        assert!(admits("fd00::/8", "fd12::1") && !admits("::1", "::2"));
        assert!(admits("0.0.0.0/0", "127.0.0.1") && !admits("0.0.0.0/0", "::1"));
        for wrong in [
            "",
            "localhost",
            "10.0.0.0/33",
            "::/129",
            "10/8",
            "10.0.0.0/",
        ] {
            assert_eq!(parse_network(wrong), None, "{wrong}");
            assert!(AddressPolicy::public().allow(wrong).is_err());
        }
    }
}
