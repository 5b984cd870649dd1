//! `quadrille serve`: the planner as a page.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, TcpListener};

use clap::Args;
use quadrille_spec::SpecError;

use crate::failure::Failure;
use crate::output::{print_text, remark};
use crate::parse::whole;

/// The planner as a page on this machine: every change of the question is answered by a search, and the page's address holds the whole
/// question. Nothing is read from other machines, and no request reads or writes files.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ServeArguments {
    /// Where to listen; other machines can ask, by this address, where it is none of this machine alone
    #[arg(long, value_name = "ADDRESS", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_parser = address)]
    pub host: IpAddr,
    /// The port; 0: any that is free
    #[arg(long, value_name = "PORT", default_value_t = 8321, value_parser = whole::<u16>(..))]
    pub port: u16,
}

const EXAMPLES: &str = "Examples:
  quadrille serve
  quadrille serve --port 0
  quadrille serve --host 0.0.0.0 --port 80";

/// Reads an address, or the name of this machine that every machine knows.
fn address(text: &str) -> Result<IpAddr, SpecError> {
    if text.eq_ignore_ascii_case("localhost") {
        return Ok(Ipv4Addr::LOCALHOST.into());
    }
    text.parse().map_err(|_| SpecError::Number {
        rule: "an address of this machine in numbers, or localhost".to_owned(),
        remedy: "write e.g. 127.0.0.1, or 0.0.0.0 for all that it has".to_owned(),
    })
}

/// What to type where an address cannot be listened on.
fn remedy(error: &io::Error, port: u16) -> &'static str {
    match error.kind() {
        ErrorKind::AddrNotAvailable => {
            "--host takes an address of this machine: 127.0.0.1, or 0.0.0.0 for all that it has"
        }
        ErrorKind::PermissionDenied => "--port takes one from 1024 on, or 0 for any that is free",
        _ if port == 0 => "try another --host",
        _ => "--port 0 takes one that is free",
    }
}

/// Says where the page is, and serves it until the process is ended.
pub fn run(arguments: &ServeArguments) -> Result<(), Failure> {
    let ServeArguments { host, port } = *arguments;
    let listener = TcpListener::bind((host, port)).map_err(|error| {
        Failure::run(format!("cannot listen on --host {host} --port {port}: {error}; {}", remedy(&error, port)))
    })?;
    let mut address = listener.local_addr().map_err(|error| Failure::run(format!("cannot listen: {error}")))?;
    if !host.is_loopback() {
        remark("warning", "other machines can ask this planner, by the address of this one");
    }
    if host.is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    print_text(format!("the planner is at http://{address}/ until Ctrl-C\n"))?;
    quadrille_serve::serve(listener).map_err(|error| Failure::run(format!("the server has failed: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_localhost_is_one() {
        for own in ["localhost", "Localhost", "127.0.0.1"] {
            assert_eq!(address(own), Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)), "{own}");
        }
        assert_eq!(address("::"), Ok(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED)));
        for wrong in ["", "here", "1.2.3", "localhost:80"] {
            let told = address(wrong).unwrap_err().to_string();
            assert!(told.contains("write e.g. 127.0.0.1"), "{told}");
        }
    }
}
