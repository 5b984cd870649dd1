//! By which names this server may be asked.
//!
//! A page of elsewhere can have its own name lead to this machine ("DNS rebinding"): a browser then takes the answers for that
//! page's. Such a request says that name as its host.

use std::net::IpAddr;

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::HOST;
use axum::middleware::Next;
use axum::response::Response;

use crate::refusal;

/// Serves requests to this machine alone.
pub(crate) async fn check(State(bound): State<IpAddr>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
    match host {
        Some(host) if is_own(host, bound) => next.run(request).await,
        _ => refusal(
            StatusCode::MISDIRECTED_REQUEST,
            "this server is asked as localhost or by the address at which it listens",
        ),
    }
}

/// Whether a host with or without a port is this machine: `localhost`, its loopback, or the address that is `bound`; of a server that
/// listens at all addresses any, since an address is nobody's name.
fn is_own(host: &str, bound: IpAddr) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|digit| digit.is_ascii_digit()) => name,
        _ => host,
    };
    let address = match name.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']').and_then(|address| address.parse().ok()).map(IpAddr::V6),
        None => name.parse().ok().map(IpAddr::V4),
    };
    match address {
        Some(address) => address.is_loopback() || address == bound || bound.is_unspecified(),
        None => name.eq_ignore_ascii_case("localhost"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_this_machine_or_not() {
        let own = |host: &str, bound: &str| is_own(host, bound.parse().unwrap());
        for host in ["localhost", "LocalHost:8321", "127.0.0.1", "127.0.0.1:8321", "[::1]", "[::1]:80"] {
            assert!(own(host, "127.0.0.1"), "{host}");
        }
        for host in [
            "",
            ":80",
            "evil.example",
            "evil.example:8321",
            "localhost.evil.example",
            "192.168.1.5",
            "::1",
            "[::1",
            "localhost:x",
        ] {
            assert!(!own(host, "127.0.0.1"), "{host}");
        }
        assert!(own("192.168.1.5:8321", "192.168.1.5") && !own("192.168.1.6", "192.168.1.5"));
        assert!(own("192.168.1.5", "0.0.0.0") && own("[2001:db8::1]:80", "::") && !own("this-machine", "0.0.0.0"));
    }
}
