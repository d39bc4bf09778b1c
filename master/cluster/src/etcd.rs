//! Access to etcd: a client with a certificate that the etcd CA signs in memory, and the hosts that
//! may be members; or the endpoints of an external etcd, with the operator's certificate.

use std::sync::Arc;
use std::time::Duration;

use halite_core::app::App;
use halite_core::ca::{Cas, Profile};
use halite_core::declared::{Snapshot, in_background};
use halite_core::due::NextReport;
use halite_core::refusal::{Refusal, RefusalKind};
use halite_errors::chain;
use halite_etcd::{
    Access, Changes, Client, Gate, MemberHost, Members, Moment, Pace, RealPace, Wait,
};
use halite_pillar::declaration::Declaration;
use halite_pillar::role::Role;
use halite_proto::pki::PrivateKey;
use halite_store::Millis;
use sha2::{Digest as _, Sha256};
use tokio::sync::Mutex;

/// The port of clients, and the port of the other members.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
/// The time for which a certificate is used; it is valid for a day.
const RENEW_AFTER: Millis = 12 * 60 * 60 * 1000;

/// The default prefix of Kubernetes' keys, and the key below it whose value has the cluster's CA.
const PREFIX: &str = "/registry";
const ROOT_CA: &str = "configmaps/kube-system/kube-root-ca.crt";
/// The prefix of a value that the API server has encrypted.
const ENCRYPTED: &[u8] = b"k8s:enc:";

/// The number of declared members from which etcd is asked before work on a host: with one or two,
/// no member may be missing.
const GATE_FROM: usize = 3;
/// The timeout of an ordered job that waits until etcd can do without its next host.
const GATE_LIMIT: Duration = Duration::from_secs(300);
/// The interval between two queries.
const GATE_PAUSE: Duration = Duration::from_millis(250);

/// Creates the client and caches it.
pub struct Etcd {
    app: Arc<App>,
    current: Mutex<Option<Current>>,
    gate_from: usize,
    gate_limit: Duration,
}

struct Current {
    /// Digest of the client's configuration: other members or another CA need another client.
    made_for: [u8; 32],
    made: Millis,
    members: Arc<dyn Members>,
}

impl Etcd {
    /// Creates the access without a client.
    #[must_use]
    pub fn new(app: Arc<App>) -> Self {
        Self {
            app,
            current: Mutex::default(),
            gate_from: GATE_FROM,
            gate_limit: GATE_LIMIT,
        }
    }

    /// Uses these members, whatever is declared, and asks them before each host with the role. For
    /// tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn of_members(app: Arc<App>, members: Arc<dyn Members>, gate_limit: Duration) -> Self {
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

    /// Uses these members, whatever is declared, and lets no job wait for them. For tests.
    #[cfg(any(test, feature = "testing"))]
    pub fn without_gate(app: Arc<App>, members: Arc<dyn Members>) -> Self {
        Self {
            gate_from: usize::MAX,
            ..Self::of_members(app, members, Duration::ZERO)
        }
    }

    /// Returns whether work on this host can cost etcd its quorum: it has a member or an API
    /// server, and three or more hosts have the role.
    #[must_use]
    pub fn needs_gate(&self, declaration: &Declaration, name: &str) -> bool {
        let node = declaration.nodes.get(name);
        let works_on =
            node.is_some_and(|node| node.has(Role::Etcd) || node.has(Role::ControlPlane));
        works_on && self.can_miss_one(declaration)
    }

    /// Returns whether enough members are declared that one of them may be missing.
    #[must_use]
    pub fn can_miss_one(&self, declaration: &Declaration) -> bool {
        let nodes = declaration.nodes.values();
        nodes.filter(|node| node.has(Role::Etcd)).count() >= self.gate_from
    }

    /// Waits until the members can do without a host's member, and reports the wait every ten
    /// seconds.
    ///
    /// # Errors
    /// The members cannot within the limit, or the client cannot be created.
    pub async fn allow_missing(
        &self,
        snapshot: &Snapshot,
        name: &str,
        report: &(dyn Fn(&Wait) + Send + Sync),
    ) -> Result<Gate, Refusal> {
        let members = self.members(snapshot).await?;
        let pace = GatePace {
            real: RealPace::new(GATE_PAUSE),
            due: NextReport::default(),
            report,
        };
        let changes = Changes {
            members: members.as_ref(),
            pace: &pace,
            limit: self.gate_limit,
            prefer: None,
        };
        let gate = changes.allow_missing(name).await;
        gate.map_err(|error| Refusal::internal(chain(&error)))
    }

    /// The members of the declared cluster, for changing them.
    ///
    /// # Errors
    /// etcd is external, or the certificate cannot be made.
    pub async fn own_members(&self, snapshot: &Snapshot) -> Result<Arc<dyn Members>, Refusal> {
        if snapshot.declaration().cluster.external_etcd().is_some() {
            return Err(Refusal::conflict(
                "etcd is external (etcd.placement), so this cluster cannot change its members; change them where they run",
            ));
        }
        self.members(snapshot).await
    }

    /// Asks each endpoint of an external etcd for its members, which requires a quorum.
    ///
    /// # Errors
    /// The endpoints that do not answer, all in one report; or etcd has the data of another
    /// cluster.
    pub async fn external_answers(&self, snapshot: &Snapshot) -> Result<String, Refusal> {
        let way = Way::to(snapshot.declaration(), &self.app.cas, None)?;
        let Some(access) = way.external else {
            return Ok("etcd is this cluster's own".to_owned());
        };
        let mut problems = Vec::new();
        for url in &way.urls {
            let client =
                Client::new(vec![url.clone()], &access).map_err(|error| no_client(&error))?;
            if let Err(error) = client.list().await {
                problems.push(format!("  {url}: {}", chain(&error)));
            }
        }
        if !problems.is_empty() {
            return Err(Refusal::new(
                RefusalKind::Unavailable,
                format!(
                    "cannot use the external etcd: {} of its {} endpoints do not answer, or refuse the certificate of \
                     etcd.external.clientSecret:\n{}\nbring them up, or correct etcd.external of the cluster document",
                    problems.len(),
                    way.urls.len(),
                    problems.join("\n")
                ),
            ));
        }
        let count = way.urls.len();
        let client = Client::new(way.urls, &access).map_err(|error| no_client(&error))?;
        self.refuse_another(snapshot, &client).await?;
        Ok(format!("{count} endpoints of the external etcd answer"))
    }

    /// Refuses an etcd in which another Kubernetes cluster stores its objects: each cluster would
    /// take the other's objects for its own.
    async fn refuse_another(&self, snapshot: &Snapshot, client: &Client) -> Result<(), Refusal> {
        let arguments = &snapshot.declaration().cluster.api_server.extra_args;
        let prefix = arguments
            .get("etcd-prefix")
            .map_or(PREFIX, |prefix| prefix.last());
        let prefix = prefix.trim_matches('/');
        let found = client.get(format!("/{prefix}/{ROOT_CA}").as_bytes()).await;
        let found = found.map_err(|error| {
            Refusal::new(
                RefusalKind::Unavailable,
                format!("cannot read the external etcd: {}", chain(&error)),
            )
        })?;
        let Some(found) = found.filter(|found| !found.starts_with(ENCRYPTED)) else {
            return Ok(());
        };
        let own = self.app.cas.certificates("kubernetes");
        let mut own = own.map_err(|error| no_client(&error))?.into_iter();
        let found = String::from_utf8_lossy(&found);
        if own.any(|certificate| found.contains(certificate.trim())) {
            return Ok(());
        }
        Err(Refusal::conflict(format!(
            "cannot use the external etcd: /{prefix} contains the objects of a Kubernetes cluster with another CA; use a separate \
             etcd, or a separate prefix: `apiServer: {{extraArgs: {{etcd-prefix: /{}}}}}`",
            snapshot.cluster()
        )))
    }

    /// The members of the declared cluster.
    ///
    /// # Errors
    /// The certificate cannot be created. Unreachable members are not an error here.
    pub async fn members(&self, snapshot: &Snapshot) -> Result<Arc<dyn Members>, Refusal> {
        let mut way = Way::to(snapshot.declaration(), &self.app.cas, None)?;
        let made_for = way.digest();
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
            let access = way.access(&cas, now)?;
            Client::new(way.urls, &access).map_err(|error| no_client(&error))
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

/// Uses the real time; a wait is reported every ten seconds.
struct GatePace<'a> {
    real: RealPace,
    due: NextReport,
    report: &'a (dyn Fn(&Wait) + Send + Sync),
}

impl Pace for GatePace<'_> {
    fn now(&self) -> Duration {
        self.real.now()
    }

    fn pause(&self) -> Moment<'_> {
        self.real.pause()
    }

    fn report<'a>(&'a self, wait: &'a Wait) -> Moment<'a> {
        if self.due.take(wait.since) {
            (self.report)(wait);
        }
        Box::pin(std::future::ready(()))
    }
}

fn no_client(error: &dyn std::error::Error) -> Refusal {
    Refusal::internal(format!("cannot make the client of etcd: {}", chain(error)))
}

/// The addresses of the members, and the parameters of the connection.
struct Way {
    urls: Vec<String>,
    /// The CA of the members.
    ca: String,
    /// The client that the operator provided for an external etcd.
    external: Option<Access>,
}

impl Way {
    fn to(declaration: &Declaration, cas: &Cas, first: Option<&str>) -> Result<Self, Refusal> {
        let cluster = &declaration.cluster;
        let Some(external) = cluster.external_etcd() else {
            let ca = cas.certificate_pem("etcd");
            return Ok(Self {
                urls: client_urls(declaration, first),
                ca: ca.map_err(|error| no_client(&error))?.to_owned(),
                external: None,
            });
        };
        let client = cluster.external_client().ok_or_else(|| {
            Refusal::invalid(format!(
                "the secret {} has no client certificate and key for the external etcd",
                external.client_secret
            ))
        })?;
        Ok(Self {
            urls: external.endpoints.clone(),
            ca: external.ca.clone(),
            external: Some(Access {
                ca: external.ca.clone(),
                certificate: client.certificate,
                key: client.key,
            }),
        })
    }

    /// A digest of everything on which the client depends.
    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        digest.update(format!("{:?}\n{}\n", self.urls, self.ca));
        if let Some(Access {
            certificate, key, ..
        }) = &self.external
        {
            digest.update(format!("{certificate}\n{key}"));
        }
        digest.finalize().into()
    }

    /// The client's certificate: the operator's, or one that is signed now.
    fn access(&mut self, cas: &Cas, now: Millis) -> Result<Access, Refusal> {
        match self.external.take() {
            Some(access) => Ok(access),
            None => access(cas, self.ca.clone(), now),
        }
    }
}

/// A client for one use, without the master, of the declared members, starting with one host's
/// member.
///
/// # Errors
/// The certificate cannot be created. Unreachable members are not an error here.
pub fn client(
    declaration: &Declaration,
    cas: &Cas,
    now: Millis,
    first: Option<&str>,
) -> Result<Client, Refusal> {
    let mut way = Way::to(declaration, cas, first)?;
    let access = way.access(cas, now)?;
    Client::new(way.urls, &access).map_err(|error| no_client(&error))
}

/// Creates a certificate without names, because etcd compares a client certificate's names with the
/// client's address.
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

/// The addresses of all hosts that may have a member: first the host `first`, then those with a
/// member.
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
/// The host is not declared, does not have the role, or has no address yet.
pub fn member_host(declaration: &Declaration, name: &str) -> Result<MemberHost, Refusal> {
    let node = declaration.nodes.get(name);
    let node = node.ok_or_else(|| Refusal::not_found(format!("{name} is not declared")))?;
    if !node.has(Role::Etcd) {
        return Err(Refusal::invalid(format!(
            "{name} does not have the role etcd"
        )));
    }
    let address = node.control_plane().ok_or_else(|| {
        Refusal::invalid(format!(
            "{name} has no control-plane address yet; enrol it first"
        ))
    })?;
    Ok(MemberHost {
        name: name.to_owned(),
        peer_url: format!("https://{address}:{PEER_PORT}"),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex as StdMutex;

    use super::*;

    #[test]
    fn a_gate_that_waits_says_so_every_ten_seconds() {
        let said = StdMutex::new(Vec::new());
        let report = |wait: &Wait| said.lock().unwrap().push(wait.since.as_secs());
        let pace = GatePace {
            real: RealPace::new(GATE_PAUSE),
            due: NextReport::default(),
            report: &report,
        };
        for second in 0..25 {
            let wait = Wait {
                until: "etcd can miss cp-2".to_owned(),
                because: "2 of 3 serve".to_owned(),
                since: Duration::from_secs(second),
                limit: GATE_LIMIT,
            };
            drop(pace.report(&wait));
        }
        assert_eq!(*said.lock().unwrap(), [10, 20]);
    }
}
