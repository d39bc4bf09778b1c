//! The command that a new host runs.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use halite_core::app::App;
use halite_core::ca::SITE;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_proto::v1::NewNode;

/// The port of the bundle's web server.
const BUNDLE_PORT: u16 = 4551;

/// A new node in the audit log: name and address, if one is given.
pub(super) fn named(node: &NewNode) -> String {
    match node.address.as_str() {
        "" => node.name.clone(),
        address => format!("{}={address}", node.name),
    }
}

/// The command to run on the new host. It contains the CA of the bundle's web server, because a
/// bare host trusts no CA, and curl can pin only leaf keys. The token is a variable of the script
/// and not an argument of a process: every user of the host can read command lines.
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
    let site = STANDARD.encode(site);
    Ok(format!(
        "C=$(mktemp) && echo {site} | base64 -d >$C && curl -fsS --noproxy '*' --cacert $C https://{host}:{BUNDLE_PORT}/enrol.sh \
         | HALITE_TOKEN={token} sh -s -- --master {master} --name {name}"
    ))
}
