//! The sources of connections that share limits: a host, or a network of IPv6.

use std::net::{IpAddr, Ipv6Addr};

/// Returns the part of an address that identifies a client: all of it, but only the network of IPv6, as one machine has
/// all addresses of its /64 (RFC 4291 section 2.5.1).
#[must_use]
pub fn client_source(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(from) => Ipv6Addr::from_bits(from.to_bits() >> 64 << 64).into(),
        from => from,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allowed_addresses_are_hosts_or_networks() {
        for (from, of) in [
            ("127.0.0.7", "127.0.0.7"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
            ("::1", "::"),
        ] {
            let parsed = |text: &str| text.parse::<IpAddr>().unwrap();
            assert_eq!(client_source(parsed(from)), parsed(of), "{from}");
        }
    }
}
