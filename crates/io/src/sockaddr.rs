//! `sockaddr_storage` and back.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Writes `addr`, returns the length the kernel wants to hear.
pub(crate) fn write(addr: &SocketAddr, storage: &mut libc::sockaddr_storage) -> libc::socklen_t {
    match addr {
        SocketAddr::V4(a) => {
            let sin = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: a.port().to_be(),
                sin_addr: in_addr(*a.ip()),
                sin_zero: [0; 8],
            };
            // SAFETY: sockaddr_storage is at least as large as, and aligned for, every sockaddr.
            unsafe { std::ptr::from_mut(storage).cast::<libc::sockaddr_in>().write(sin) };
            size_of::<libc::sockaddr_in>() as libc::socklen_t
        }
        SocketAddr::V6(a) => {
            let sin6 = libc::sockaddr_in6 {
                sin6_family: libc::AF_INET6 as libc::sa_family_t,
                sin6_port: a.port().to_be(),
                sin6_flowinfo: a.flowinfo(),
                sin6_addr: libc::in6_addr { s6_addr: a.ip().octets() },
                sin6_scope_id: a.scope_id(),
            };
            // SAFETY: as above.
            unsafe { std::ptr::from_mut(storage).cast::<libc::sockaddr_in6>().write(sin6) };
            size_of::<libc::sockaddr_in6>() as libc::socklen_t
        }
    }
}

/// Reads what the kernel wrote; `None` for another family or too short a length.
pub(crate) fn read(storage: &libc::sockaddr_storage, len: libc::socklen_t) -> Option<SocketAddr> {
    match i32::from(storage.ss_family) {
        libc::AF_INET if len as usize >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the storage is initialised (zeroed before the kernel wrote), large and
            // aligned enough, and its family says which view holds; every bit pattern is a valid
            // sockaddr_in.
            let sin = unsafe { std::ptr::from_ref(storage).cast::<libc::sockaddr_in>().read() };
            Some(SocketAddrV4::new(ipv4(sin.sin_addr), u16::from_be(sin.sin_port)).into())
        }
        libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let sin6 = unsafe { std::ptr::from_ref(storage).cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(sin6.sin6_addr.s6_addr);
            Some(
                SocketAddrV6::new(ip, u16::from_be(sin6.sin6_port), sin6.sin6_flowinfo, sin6.sin6_scope_id)
                    .into(),
            )
        }
        _ => None,
    }
}

/// An IPv4 address as the kernel has it.
pub(crate) fn in_addr(ip: Ipv4Addr) -> libc::in_addr {
    libc::in_addr { s_addr: u32::from_ne_bytes(ip.octets()) }
}

/// And back.
pub(crate) fn ipv4(a: libc::in_addr) -> Ipv4Addr {
    Ipv4Addr::from(a.s_addr.to_ne_bytes())
}

/// The wildcard address of the family.
pub(crate) fn any(ipv6: bool) -> IpAddr {
    if ipv6 { Ipv6Addr::UNSPECIFIED.into() } else { Ipv4Addr::UNSPECIFIED.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_survive_the_round_trip() {
        for text in ["192.0.2.1:4500", "[2001:db8::1]:500", "[fe80::1%7]:4500"] {
            let addr: SocketAddr = text.parse().unwrap();
            // SAFETY: all zeroes is a valid sockaddr_storage.
            let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
            let len = write(&addr, &mut storage);
            assert_eq!(read(&storage, len), Some(addr));
            assert_eq!(read(&storage, len - 1), None);
        }
    }
}
