//! `ctl kubeconfig`: the access to the Kubernetes API from an operator's own machine, and a
//! certificate for it. Kubernetes cannot revoke a certificate, so it is valid for a short time
//! only.

use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use halite_api::{Kubeconfig, KubeconfigList, Time};
use halite_core::app::App;
use halite_core::ca::{Issued, KUBERNETES, Profile};
use halite_core::clock::rfc3339;
use halite_core::declared::Snapshot;
use halite_core::refusal::Refusal;
use halite_errors::chain;
use halite_fleet::compile;
use halite_fleet::compile::RequestedStates as States;
use halite_fleet::jobs::{Jobs, target};
use halite_names::check_subdomain;
use halite_pillar::declaration::Declaration;
use halite_pillar::view::{API_PORT, api_addresses};
use halite_proto::ids::MinionId;
use halite_proto::v1;
use halite_states::low::Chunk;
use halite_states::shipped::{API_SERVER_CERTIFICATE, CONTROL_PLANE_CERTIFICATES};
use halite_store::{Certificate, KUBECONFIG};
use serde_json::Value;

/// The group of kubeadm's `admin.conf`.
const GROUP: &str = "kubeadm:cluster-admins";
/// The longest time without `force`. A certificate cannot be revoked: before it expires, only a
/// rotation of the Kubernetes CA makes it invalid.
const LONGEST_SECONDS: u64 = 30 * 24 * 60 * 60;

/// A request in words, for the audit.
#[must_use]
pub fn words(request: &v1::KubeconfigRequest) -> String {
    match request.server.as_str() {
        "" => format!("for {} s", request.ttl_seconds),
        // The request may contain any text.
        server => {
            let server: String = server.chars().take(80).collect();
            format!("for {} s at {server}", request.ttl_seconds)
        }
    }
}

/// The access to the API for a client outside of the cluster's hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiWay {
    /// `https://HOST:PORT`.
    pub server: String,
    /// The name in the server's certificate, if the certificate does not contain the host in
    /// `server`.
    pub tls_server_name: String,
}

/// The access to the API through the requested `HOST` or `HOST:PORT`; without one, through the VIP
/// or the first API server.
///
/// # Errors
/// The host is invalid or is in no API server's certificate, or no cluster is declared yet.
pub async fn way(app: &App, jobs: &Jobs, requested: &str) -> Result<ApiWay, Refusal> {
    let snapshot = jobs.declarations().in_force().await?;
    let declaration = snapshot.declaration();
    let addresses = api_addresses(declaration).map_err(|error| Refusal::invalid(chain(&error)))?;
    let vip = declaration.cluster.api_server.vip;
    let requested = match requested {
        "" => None,
        text => Some(Server::parse(text)?),
    };
    // The first one is the VIP, if there is one. It is in the certificate only if an operator has
    // requested it; the API's own name always is.
    let by_default = |port: u16| {
        let best = addresses.first().copied().map(IpAddr::from);
        best.map(|host| ApiWay {
            server: url(&host.to_string(), port),
            tls_server_name: declaration.cluster.endpoint(),
        })
    };
    let by_default = match &requested {
        None => by_default(API_PORT),
        Some(server) if vip.is_some_and(|vip| server.is(vip.into())) => by_default(server.port),
        Some(_) => None,
    };
    if let Some(way) = by_default {
        return Ok(way);
    }
    let requested = requested.ok_or_else(|| Refusal::internal("the API has no address"))?;
    let names = certified(app, &snapshot).await?;
    if !names.iter().any(|name| requested.matches(name)) {
        return Err(Refusal::invalid(format!(
            "cannot make a kubeconfig for {}: it is not in the certificate of the API server, which has {}; name one of \
             these, or add it to apiServer.certSANs of the cluster document and run ctl highstate",
            requested.host,
            names.into_iter().collect::<Vec<_>>().join(", "),
        )));
    }
    Ok(ApiWay {
        server: url(&requested.host, requested.port),
        tls_server_name: String::new(),
    })
}

/// A certificate that an operator requests.
#[derive(Debug, Clone, Copy)]
pub struct KubeconfigRequest<'a> {
    /// The request, PEM.
    pub csr_pem: &'a str,
    /// The lifetime, from now.
    pub ttl_seconds: u64,
    /// `true` if it may be valid for more than 30 days.
    pub force: bool,
}

/// Signs a Kubernetes certificate for an operator.
///
/// # Errors
/// The request is invalid, the time is too long, the CA ends before it, or the store fails.
pub async fn sign(
    app: &App,
    operator: &str,
    wanted: KubeconfigRequest<'_>,
) -> Result<Issued, Refusal> {
    let KubeconfigRequest {
        csr_pem,
        ttl_seconds,
        force,
    } = wanted;
    let failed = |error: halite_core::ca::CaError| Refusal::invalid(chain(&error));
    let now = app.clock.now();
    let limit = app.cas.not_after(KUBERNETES).map_err(failed)?;
    let ends = i64::try_from(ttl_seconds)
        .ok()
        .and_then(|ttl| (now / 1000).checked_add(ttl));
    let ends = match ends {
        _ if ttl_seconds == 0 => {
            return Err(Refusal::invalid(
                "cannot make a kubeconfig for 0 s: give a --ttl such as 8h",
            ));
        }
        _ if ttl_seconds > LONGEST_SECONDS && !force => {
            return Err(Refusal::invalid(
                "cannot make a kubeconfig for more than 30 days: it works until its end, also when its operator is revoked; \
                 give a shorter --ttl, or --force",
            ));
        }
        Some(ends) if ends <= limit => ends,
        _ => {
            return Err(Refusal::invalid(format!(
                "cannot make a kubeconfig for {ttl_seconds} s: the CA of Kubernetes ends on {}; give a shorter --ttl",
                rfc3339(limit.saturating_mul(1000))
            )));
        }
    };
    let profile = Profile {
        common_name: operator.to_owned(),
        organization: vec![GROUP.to_owned()],
        client_auth: true,
        ends: Some(ends),
        ..Profile::default()
    };
    let issued = app
        .cas
        .sign(KUBERNETES, csr_pem, &profile, now)
        .map_err(failed)?;
    app.store
        .put_certificate(&Certificate {
            serial: issued.serial.clone(),
            ca: KUBERNETES.to_owned(),
            subject: issued.subject.clone(),
            owner: format!("operator:{operator}"),
            job: None,
            tag: KUBECONFIG.to_owned(),
            created: now,
            not_after: issued.not_after.saturating_mul(1000),
            pem: issued.certificate_pem.clone(),
        })
        .await?;
    tracing::info!(operator, ends, "kubeconfig signed");
    Ok(issued)
}

/// The certificates of kubeconfigs that have not expired, newest first. None of them can be
/// revoked.
///
/// # Errors
/// The store fails.
pub async fn list(app: &App) -> Result<KubeconfigList, Refusal> {
    let now = app.clock.now();
    let issued = app.store.kubeconfigs().await?;
    let valid = issued.iter().filter(|issued| issued.not_after > now);
    let kubeconfig = |issued: &Certificate| {
        let operator = issued.owner.strip_prefix("operator:");
        Kubeconfig {
            operator: operator.unwrap_or(&issued.owner).to_owned(),
            created: Time::from_millis(issued.created),
            expires: Time::from_millis(issued.not_after),
            serial: issued.serial.clone(),
        }
    };
    Ok(KubeconfigList {
        kubeconfigs: valid.map(kubeconfig).collect(),
    })
}

fn url(host: &str, port: u16) -> String {
    match host.parse() {
        Ok(IpAddr::V6(address)) => format!("https://[{address}]:{port}"),
        _ => format!("https://{host}:{port}"),
    }
}

/// The requested host and port.
#[derive(Debug, PartialEq, Eq)]
struct Server {
    host: String,
    port: u16,
}

impl Server {
    fn parse(text: &str) -> Result<Self, Refusal> {
        let bare = text.strip_prefix("https://").unwrap_or(text);
        let bare = bare.strip_suffix('/').unwrap_or(bare);
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Ok(Self::new(&address.to_string(), API_PORT));
        }
        if let Ok(address) = bare.parse::<SocketAddr>()
            && address.port() != 0
        {
            return Ok(Self::new(&address.ip().to_string(), address.port()));
        }
        let name = bare.to_ascii_lowercase();
        let (host, port) = match name.split_once(':') {
            None => (name.as_str(), Some(API_PORT)),
            Some((host, port)) => (host, port.parse().ok().filter(|port| *port != 0)),
        };
        match port {
            // A number is not a name: a number that did not parse as an address is mistyped.
            Some(port) if check_subdomain(host).is_ok() && !is_numeric(host) => {
                Ok(Self::new(host, port))
            }
            _ => Err(Refusal::invalid(format!(
                "cannot make a kubeconfig for {:?}: give an address or a name, with a port if it is not {API_PORT}, for \
                 example 192.0.2.10 or api.example.com:443",
                text.chars().take(80).collect::<String>()
            ))),
        }
    }

    fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
        }
    }

    fn is(&self, address: IpAddr) -> bool {
        self.host.parse() == Ok(address)
    }

    /// Returns whether a name or address in a certificate matches this host.
    fn matches(&self, certified: &str) -> bool {
        if let Ok(address) = certified.parse() {
            return self.is(address);
        }
        match certified.strip_prefix("*.") {
            // A wildcard stands for one label, as in TLS libraries (RFC 6125, 6.4.3).
            Some(parent) => {
                let rest = self.host.split_once('.').map(|(_, rest)| rest);
                rest.is_some_and(|rest| rest.eq_ignore_ascii_case(parent))
            }
            None => self.host.eq_ignore_ascii_case(certified),
        }
    }
}

fn is_numeric(host: &str) -> bool {
    let last = host.rsplit('.').next().unwrap_or_default();
    last.bytes().all(|byte| byte.is_ascii_digit())
}

/// The names and addresses in the certificates of the API servers that have joined, as declared by
/// their states.
async fn certified(app: &App, snapshot: &Arc<Snapshot>) -> Result<BTreeSet<String>, Refusal> {
    let mut names = BTreeSet::new();
    for host in api_servers(snapshot.declaration())? {
        let grains = target::grains(app, &host).await?;
        let wanted = States::Sls(vec![CONTROL_PLANE_CERTIFICATES.to_owned()]);
        let snapshot = Arc::clone(snapshot);
        let compiled = compile::in_background(snapshot, host, grains, wanted).await?;
        let serving = |chunk: &&Chunk| chunk.name == API_SERVER_CERTIFICATE;
        let chunks = compiled.low.chunks.iter().filter(serving);
        for argument in
            chunks.flat_map(|chunk| ["sans_dns", "sans_ip"].map(|key| chunk.args.get(key)))
        {
            let values = argument.and_then(Value::as_array).into_iter().flatten();
            names.extend(values.filter_map(Value::as_str).map(str::to_owned));
        }
    }
    Ok(names)
}

fn api_servers(declaration: &Declaration) -> Result<Vec<MinionId>, Refusal> {
    let planes = (declaration.nodes.iter()).filter(|(_, node)| node.serves_api());
    planes
        .map(|(name, _)| name.as_str().parse().map_err(Refusal::from))
        .collect()
}

#[cfg(test)]
#[path = "kubeconfig_tests.rs"]
mod tests;
