//! The command that a new host runs.

use halite_core::app::App;
use halite_core::ca::SITE;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::pki::sha256_hex;
use halite_proto::v1::NewNode;

/// The port of the bundle's web server.
const BUNDLE_PORT: u16 = 4551;

/// A new node in the audit log: name, address and roles of its own, if they are given.
pub(super) fn named(node: &NewNode) -> String {
    let mut text = node.name.clone();
    if !node.address.is_empty() {
        text = format!("{text}={}", node.address);
    }
    if !node.roles.is_empty() {
        text = format!("{text}({})", node.roles.join(","));
    }
    text
}

/// The command to run on the new host, as root; several lines. A bare host trusts no CA, so the
/// command fetches the CA of the bundle's web server without verifying the server, compares the CA
/// with the digest that it contains, and uses nothing before that. It fetches the script over TLS
/// that only this CA verifies: `--cacert` alone leaves Debian's directory of CAs in use, which the
/// empty `--capath` replaces. The master's own CA is in the script, so the token is without its
/// digest. During a promotion the script still names the previous master, so the command names this
/// one.
///
/// The token is in a here-document: every user of the host can read command lines, and servers and
/// proxies log URLs. The steps are joined by `&&`, because a shell ignores `set -e` in the
/// conditions of other commands.
pub(super) fn command(app: &App, name: &str, token: &str) -> Result<String, Refusal> {
    let site = app
        .cas
        .certificate_pem(SITE)
        .map_err(|error| Refusal::internal(chain(&error)))?;
    let master = app
        .config
        .endpoints()
        .into_iter()
        .next()
        .unwrap_or_default();
    let host = master
        .rsplit_once(':')
        .map_or(master.as_str(), |(host, _)| host);
    let token = token.rsplit_once('.').map_or(token, |(short, _)| short);
    let digest = sha256_hex(served(site).as_bytes());
    Ok(format!(
        "(D=$(mktemp -d) && cd $D && export no_proxy=\\* U=https://{host}:{BUNDLE_PORT} && \
         curl -m9 -kfsSO $U/ca && echo \"{digest}  ca\" | sha256sum -c && \
         curl -fsSO --cacert ca --capath . $U/join && sh join {name} --master {master}) <<E\n{token}\nE"
    ))
}

/// A certificate in the bytes that `file.managed` writes.
fn served(pem: &str) -> String {
    match pem.strip_suffix('\n') {
        Some(_) => pem.to_owned(),
        None => format!("{pem}\n"),
    }
}
