//! The way to etcd: a client with a certificate that the etcd CA signs in memory, and the hosts that
//! may be members.

use std::sync::Arc;
use std::time::Duration;

use halite_errors::chain;
use halite_etcd::{Access, Changes, Client, Gate, Host, Members, RealPace};
use halite_pillar::declaration::Declaration;
use halite_pillar::role::Role;
use halite_proto::pki::PrivateKey;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

use crate::app::App;
use crate::ca::{Cas, Profile};
use crate::declared::{Snapshot, in_background};
use crate::refusal::Refusal;
use crate::store::Millis;

/// The port of clients, and the port of the other members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// How long a certificate is used; it is valid for a day.
const RENEW_AFTER: Millis = 12 * 60 * 60 * 1000;

/// Declared members from which on etcd is asked before a host is worked on: one or two cannot miss
/// one.
const GATE_FROM: usize = 3;
/// Time that an ordered job waits until etcd can miss its next host.
const GATE_LIMIT: Duration = Duration::from_secs(300);
/// The pause between two questions.
const GATE_PAUSE: Duration = Duration::from_millis(250);

/// Makes and keeps the client.
pub struct Etcd {
    app: Arc<App>,
    current: Mutex<Option<Current>>,
    gate_from: usize,
    gate_limit: Duration,
}

struct Current {
    /// Digest of what the client was made for: other members or another CA need another client.
    made_for: [u8; 32],
    made: Millis,
    members: Arc<dyn Members>,
}

impl Etcd {
    /// No client yet.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            current: Mutex::default(),
            gate_from: GATE_FROM,
            gate_limit: GATE_LIMIT,
        }
    }

    /// Uses these members, whatever is declared, and asks them before each host with the role: for
    /// tests.
    #[cfg(test)]
    pub(crate) fn of_members(
        app: Arc<App>,
        members: Arc<dyn Members>,
        gate_limit: Duration,
    ) -> Self {
        let current = Current {
            made_for: [0; 32],
            made: Millis::MAX,
            members,
        };
        Self {
            app,
            current: Mutex::new(Some(current)),
            gate_from: 1,
            gate_limit,
        }
    }

    /// Uses these members, whatever is declared, and lets no job wait for them: for tests.
    #[cfg(test)]
    pub(crate) fn without_gate(app: Arc<App>, members: Arc<dyn Members>) -> Self {
        Self {
            gate_from: usize::MAX,
            ..Self::of_members(app, members, Duration::ZERO)
        }
    }

    /// True when the work on this host can cost etcd its quorum: it has a member or an API server,
    /// and three or more hosts have the role.
    #[must_use]
    pub fn needs_gate(&self, declaration: &Declaration, name: &str) -> bool {
        let members = declaration
            .nodes
            .values()
            .filter(|node| node.has(Role::Etcd));
        let node = declaration.nodes.get(name);
        let works_on =
            node.is_some_and(|node| node.has(Role::Etcd) || node.has(Role::ControlPlane));
        works_on && members.count() >= self.gate_from
    }

    /// Waits until the members can miss that of a host.
    ///
    /// # Errors
    /// They cannot within the limit, or the client cannot be made.
    pub async fn allow_missing(&self, snapshot: &Snapshot, name: &str) -> Result<Gate, Refusal> {
        let members = self.members(snapshot).await?;
        let pace = RealPace::new(GATE_PAUSE);
        let changes = Changes {
            members: members.as_ref(),
            pace: &pace,
            limit: self.gate_limit,
        };
        let gate = changes.allow_missing(name).await;
        gate.map_err(|error| Refusal::internal(chain(&error)))
    }

    /// The members of the declared cluster.
    ///
    /// # Errors
    /// The certificate cannot be made. Whether a member answers is another matter.
    pub async fn members(&self, snapshot: &Snapshot) -> Result<Arc<dyn Members>, Refusal> {
        let failed = |error: &dyn std::error::Error| {
            Refusal::internal(format!("cannot make the client of etcd: {}", chain(error)))
        };
        let urls = client_urls(snapshot.declaration(), None);
        let ca = self.app.cas.certificate_pem("etcd");
        let ca = ca.map_err(|error| failed(&error))?.to_owned();
        let made_for = Sha256::digest(format!("{urls:?}\n{ca}")).into();
        let now = self.app.clock.now();
        let mut current = self.current.lock().await;
        if let Some(current) = current.as_ref()
            && (current.made == Millis::MAX
                || (current.made_for == made_for && now - current.made < RENEW_AFTER))
        {
            return Ok(Arc::clone(&current.members));
        }
        let cas = Arc::clone(&self.app.cas);
        let client = in_background(move || {
            let access = access(&cas, ca, now)?;
            Client::new(urls, &access).map_err(|error| failed(&error))
        });
        let members: Arc<dyn Members> = Arc::new(client.await?);
        *current = Some(Current {
            made_for,
            made: now,
            members: Arc::clone(&members),
        });
        Ok(members)
    }
}

/// A client for one use, without the master: of the declared members, that of one host first.
///
/// # Errors
/// The certificate cannot be made. Whether a member answers is another matter.
pub fn client(
    declaration: &Declaration,
    cas: &Cas,
    now: Millis,
    first: Option<&str>,
) -> Result<Client, Refusal> {
    let failed = |error: &dyn std::error::Error| {
        Refusal::internal(format!("cannot make the client of etcd: {}", chain(error)))
    };
    let ca = cas
        .certificate_pem("etcd")
        .map_err(|error| failed(&error))?;
    let access = access(cas, ca.to_owned(), now)?;
    let urls = client_urls(declaration, first);
    Client::new(urls, &access).map_err(|error| failed(&error))
}

/// A certificate without names: etcd compares those that a client's has with where it comes from.
fn access(cas: &Cas, ca: String, now: Millis) -> Result<Access, Refusal> {
    let failed = |error: &dyn std::error::Error| {
        Refusal::internal(format!(
            "cannot make the certificate for etcd: {}",
            chain(error)
        ))
    };
    let key = PrivateKey::generate().map_err(|error| failed(&error))?;
    let request = key
        .request("halite-master")
        .map_err(|error| failed(&error))?;
    let profile = Profile {
        common_name: "halite-master".to_owned(),
        client_auth: true,
        days: 1,
        ..Profile::default()
    };
    let issued = cas.sign("etcd", &request, &profile, now);
    let issued = issued.map_err(|error| failed(&error))?;
    Ok(Access {
        ca,
        certificate: issued.certificate_pem,
        key: key.to_pem(),
    })
}

/// The addresses of all hosts that may have a member, those first that have one, before them one host.
fn client_urls(declaration: &Declaration, first: Option<&str>) -> Vec<String> {
    let mut hosts: Vec<((bool, bool), String)> = Vec::new();
    for node in declaration
        .nodes
        .values()
        .filter(|node| node.has(Role::Etcd))
    {
        let is_other = first != Some(node.metadata.name.as_str());
        let Some(address) = node.control_plane() else {
            continue;
        };
        hosts.push((
            (is_other, !node.is_member()),
            format!("https://{address}:{CLIENT_PORT}"),
        ));
    }
    hosts.sort_by_key(|(order, _)| *order);
    hosts.into_iter().map(|(_, url)| url).collect()
}

/// The declared host of this name, as a member.
///
/// # Errors
/// It is not declared, has not the role, or has no address yet.
pub fn member_host(declaration: &Declaration, name: &str) -> Result<Host, Refusal> {
    let node = declaration.nodes.get(name);
    let node = node.ok_or_else(|| Refusal::not_found(format!("{name} is not declared")))?;
    if !node.has(Role::Etcd) {
        return Err(Refusal::invalid(format!("{name} has not the role etcd")));
    }
    let address = node.control_plane().ok_or_else(|| {
        Refusal::invalid(format!(
            "{name} has no control-plane address yet; enrol it first"
        ))
    })?;
    Ok(Host {
        name: name.to_owned(),
        peer_url: format!("https://{address}:{PEER_PORT}"),
    })
}
