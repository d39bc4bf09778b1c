//! `halite.preflight`: the checks of an added host, before any change there. The minion collects
//! the facts; the master knows the other hosts, and judges.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::join_all;
use halite_core::ca::{CaError, KUBERNETES, SITE};
use halite_core::declared::Snapshot;
use halite_core::due::SAY;
use halite_errors::chain;
use halite_etcd::Pace as _;
use halite_fleet::jobs::Unanswered;
use halite_fleet::jobs::target::grains;
use halite_host_reports::health;
use halite_host_reports::health::HostHealth;
use halite_names::NodeName;
use halite_pillar::declaration::Declaration;
use halite_pillar::etcd::Placement;
use halite_pillar::masters;
use halite_pillar::node::Node;
use halite_pillar::role::Role;
use halite_pillar::view::{API_PORT, has_proxies};
use halite_preflight::checks::{Finding, Verdict};
use halite_preflight::{
    Added, ClusterPart, ExistingCluster, FUNCTION, HostRequirements, Interface, NodeFacts,
    OtherHost, Peer, Planes, Question, VirtualAddress, checks,
};
use halite_proto::ids::MinionId;
use halite_states::args::Args;
use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::pace::StepPace;
use super::roles_step::roles;
use super::step_runner::{StepOutcome, StepRunner, failed};

/// The time for the facts: a slow disk is measured for some ten seconds. A restarted minion forgets
/// the question, so it is asked again.
const FACTS: Duration = Duration::from_secs(25);
const ATTEMPTS: u32 = 3;
/// The time for a minion to reconnect.
const RECONNECT: Duration = Duration::from_secs(30);
/// The time for the other hosts' answers.
const OTHERS: Duration = Duration::from_secs(3);
/// The ports of etcd members for clients and for the others, and of bundle servers.
const CLIENT_PORT: u16 = 2379;
const PEER_PORT: u16 = 2380;
const BUNDLE_PORT: u16 = 4551;

impl StepRunner<'_> {
    /// Checks the host; a problem that is not ignored by name fails the step. With `roles`, a host
    /// is checked before it gets these roles.
    pub(super) async fn preflight(
        &self,
        chunk: &Chunk,
        index: usize,
    ) -> Result<StepOutcome, Failure> {
        let name = Args::new(chunk).required("node")?;
        if self.run.test {
            return Ok((Map::new(), format!("a real run checks {name}")));
        }
        let snapshot = self.jobs.declarations().load().await.map_err(failed)?;
        let nodes = &snapshot.declaration().nodes;
        let (name, node) = nodes
            .get_key_value(name.as_str())
            .ok_or_else(|| Failure::new(format!("{name} is not declared")))?;
        let given = match chunk.args.contains_key("roles") {
            true => Some(roles(chunk)?),
            false => None,
        };
        let mut warnings = match &given {
            Some(given) => {
                let allowed = self.jobs.declarations().allow_roles(name, given).await;
                allowed.map_err(failed)?
            }
            None => Vec::new(),
        };
        let gets = node_with(node, given.as_deref());
        let facts = self.facts(&snapshot, name, node, &gets);
        let facts = self.answered(index, name, facts).await?;
        let mut findings = checks::run(&facts);
        checks::ignore(&mut findings, &Args::new(chunk).list("ignore")?);
        let count = findings.len();
        self.recorder.note(index, "checks", json!(count)).await?;
        warnings.extend(lines(&findings, false));
        if !warnings.is_empty() {
            let note = json!(warnings);
            self.recorder.note(index, "warnings", note).await?;
        }
        if checks::passed(&findings) {
            return Ok((Map::new(), format!("{count} checks of {name}")));
        }
        let problems = lines(&findings, true).join("\n");
        let (not_ready, command) = match given {
            Some(_) => ("is not ready for these roles", "ctl node roles"),
            None => ("is not ready to join", "ctl node add"),
        };
        Err(Failure::new(format!(
            "{name} {not_ready}, and nothing was changed there:\n{problems}\n`{command} … --ignore-preflight NAME,…` continues \
             despite a problem"
        )))
    }

    /// The facts once they have arrived; reports until then that the host is asked.
    async fn answered(
        &self,
        index: usize,
        name: &NodeName,
        facts: impl Future<Output = Result<NodeFacts, Failure>>,
    ) -> Result<NodeFacts, Failure> {
        let pace = StepPace::new(self.recorder, index, SAY).remedy(format!(
            "`journalctl -u halite-minion` on {name} shows whether its minion runs, and what it does"
        ));
        let mut facts = pin!(facts);
        loop {
            tokio::select! {
                facts = &mut facts => return facts,
                () = pace.pause() => {}
            }
            let until = format!("{name} has answered what the preflight asks");
            let because = "its disk is measured for some ten seconds, and it is asked again after a restart of its minion";
            let limit = (FACTS + RECONNECT) * ATTEMPTS;
            pace.say(until, because.to_owned(), limit).await;
        }
    }

    /// The facts of the host, with the data to compare them with. For a host that gets further
    /// roles, `node` is its present document, and `gets` its future one.
    async fn facts(
        &self,
        snapshot: &Snapshot,
        name: &NodeName,
        node: &Node,
        gets: &Node,
    ) -> Result<NodeFacts, Failure> {
        let declaration = snapshot.declaration();
        let cluster = &declaration.cluster;
        let app = self.jobs.app();
        let minion: MinionId = (name.as_str().parse())
            .map_err(|error| Failure::new(format!("{name}: {}", chain(&error))))?;
        let connected = app.connections.connected();
        let is_connected = |host: &NodeName| connected.iter().any(|id| *id == host.as_str());
        let question = Question {
            requirements: HostRequirements {
                packages: checks::packages_of(
                    declaration,
                    gets,
                    &snapshot.bundle().map_err(failed)?.packages,
                ),
                ..checks::of_cluster(cluster)
            },
            peers: peers(declaration, name, node, &is_connected),
            etcd: gets.has(Role::Etcd),
            vip: self
                .virtual_address(declaration, gets)
                .map_err(|error| Failure::new(format!("cannot check {name}: {}", chain(&error))))?,
        };
        let requirements = question.requirements.clone();
        let question = json!(question);
        let own = self.ask_again(&minion, &question);
        let (own, others) = tokio::join!(own, self.others(declaration, name));
        let cannot = |error: &dyn std::error::Error| {
            Failure::new(format!("cannot check {name}: {}", chain(error)))
        };
        let (answer, clock) = own.map_err(|error| cannot(&error))?;
        let mut facts: NodeFacts =
            serde_json::from_value(answer).map_err(|error| cannot(&error))?;
        facts.name = name.to_string();
        // A minion of an earlier version does not repeat requirements that it does not know.
        facts.requirements = requirements;
        let own_cas = app.cas.certificates(SITE);
        let own_cas = own_cas.map_err(|error| cannot(&error))?;
        // Also one that was replaced while the host was off.
        let mut own_cas = own_cas.into_iter().chain(app.cas.dropped(SITE));
        let is_own = own_cas.any(|ca| facts.site_ca.contains(ca.trim()));
        // An earlier run has started with it. The CA alone only means that it has enrolled.
        if is_own && !facts.untouched {
            facts.existing = ExistingCluster::This;
        }
        facts.part = ClusterPart::Added(Added {
            runs_containers: gets.runs_containers(),
            control_plane: gets.has(Role::ControlPlane),
            etcd: gets.has(Role::Etcd),
            registry: gets.has(Role::Registry),
            clock,
            vip: cluster.api_server.vip,
            addresses: addresses(node),
            others,
            gained: gained(declaration, node, gets),
        });
        Ok(facts)
    }

    /// The virtual address at which a node reaches the API; `None` before the first control plane
    /// exists.
    fn virtual_address(
        &self,
        declaration: &Declaration,
        node: &Node,
    ) -> Result<Option<VirtualAddress>, CaError> {
        let cluster = &declaration.cluster;
        let Some(address) = reached_at(declaration, node) else {
            return Ok(None);
        };
        let ca = self.jobs.app().cas.certificate_pem(KUBERNETES)?;
        Ok(Some(VirtualAddress {
            address,
            port: API_PORT,
            name: cluster.endpoint(),
            ca: ca.to_owned(),
        }))
    }

    /// The facts as the minion answers them, and the times before and after the answer.
    async fn ask_again(
        &self,
        minion: &MinionId,
        question: &Value,
    ) -> Result<(Value, (i64, i64)), Unanswered> {
        let app = self.jobs.app();
        let mut attempts = 1;
        loop {
            let asked = app.clock.now() / 1000;
            let answer = self.jobs.ask(minion, FUNCTION, question, FACTS).await;
            let may_be_lost = matches!(
                answer,
                Err(Unanswered::NotConnected(_) | Unanswered::Late(_))
            );
            if !may_be_lost || attempts >= ATTEMPTS {
                return Ok((answer?, (asked, app.clock.now() / 1000)));
            }
            attempts += 1;
            app.connections.wait_connected(minion, RECONNECT).await;
        }
    }

    /// The master's knowledge of the other hosts, and their answers.
    async fn others(&self, declaration: &Declaration, name: &NodeName) -> Vec<OtherHost> {
        let nodes = declaration.nodes.iter().filter(|(other, _)| *other != name);
        let ask = nodes.map(|(other, node)| self.other(other, node));
        let others = join_all(ask).await;
        others.into_iter().flatten().collect()
    }

    async fn other(&self, name: &NodeName, node: &Node) -> Option<OtherHost> {
        let minion: MinionId = name.as_str().parse().ok()?;
        let known = grains(self.jobs.app(), &minion).await.unwrap_or_default();
        let question = json!({});
        let answer = self
            .jobs
            .ask(&minion, health::FUNCTION, &question, OTHERS)
            .await;
        let answer = answer.unwrap_or_default();
        let health: HostHealth = serde_json::from_value(answer).unwrap_or_default();
        let interface = |address: Ipv4Addr| {
            let mtu = *health.mtus.get(&address)?;
            Some(Interface { address, mtu })
        };
        Some(OtherHost {
            name: name.to_string(),
            machine_id: known["machine_id"].as_str().unwrap_or_default().to_owned(),
            debian: debian(&known).filter(|_| node.runs_containers()),
            interfaces: addresses(node).and_then(interface),
        })
    }
}

/// The virtual address at which a node reaches the API, once a control plane serves it.
fn reached_at(declaration: &Declaration, node: &Node) -> Option<Ipv4Addr> {
    let mut others = declaration.nodes.values();
    let serves = others.any(|other| other.serves_api());
    let vip = declaration.cluster.api_server.vip;
    vip.filter(|_| serves && node.runs_containers())
}

/// A host's document with these roles.
fn node_with(node: &Node, roles: Option<&[Role]>) -> Node {
    let mut node = node.clone();
    if let Some(roles) = roles {
        node.roles = roles.to_vec();
    }
    node
}

/// The ports that a host gets with its further roles.
fn gained(declaration: &Declaration, node: &Node, gets: &Node) -> BTreeSet<u16> {
    let gains = |role: Role| gets.has(role) && !node.has(role);
    let proxied = has_proxies(declaration);
    checks::gained_ports(gains(Role::ControlPlane), gains(Role::Etcd), proxied)
}

/// The version of a host's Debian, by its grains.
fn debian(grains: &Value) -> Option<String> {
    let version = grains["osrelease"].as_str()?;
    (grains["os"] == "Debian").then(|| version.to_owned())
}

/// The addresses of a host.
fn addresses(node: &Node) -> Planes<Ipv4Addr> {
    Planes {
        control: node.control_plane(),
        workload: node.resolved.as_ref().map(|own| own.workload_plane),
    }
}

/// The host's required peers: the existing API servers, bundle servers and etcd members. A
/// disconnected host may still have another firewall.
fn peers(
    declaration: &Declaration,
    name: &NodeName,
    node: &Node,
    is_connected: &dyn Fn(&NodeName) -> bool,
) -> Vec<Peer> {
    let mut peers = Vec::new();
    let others = declaration.nodes.iter();
    for (host, other) in others.filter(|(host, _)| *host != name && is_connected(host)) {
        let Some(address) = other.control_plane() else {
            continue;
        };
        let mut add = |port: u16, service: &str| {
            peers.push(Peer {
                host: host.to_string(),
                address,
                port,
                service: service.to_owned(),
            });
        };
        if other.serves_api() && node.runs_containers() {
            add(API_PORT, "the API server");
        }
        if other.is_member() && node.has(Role::Etcd) {
            add(PEER_PORT, "etcd");
        }
        let is_dedicated = declaration.cluster.etcd.placement == Placement::Dedicated;
        if is_dedicated && other.has_vote() && node.has(Role::ControlPlane) {
            add(CLIENT_PORT, "etcd for its clients");
        }
        if declaration.part(host.as_str()) == Some(masters::MasterPart::Master) {
            add(BUNDLE_PORT, "the bundle server");
        }
    }
    if node.has(Role::ControlPlane) {
        let external = declaration.cluster.external_etcd();
        let endpoints = external.into_iter().flat_map(|own| &own.endpoints);
        peers.extend(endpoints.filter_map(|url| endpoint(url)));
    }
    peers
}

/// An endpoint of an external etcd that is given by its address.
fn endpoint(url: &str) -> Option<Peer> {
    let (host, port) = url.strip_prefix("https://")?.rsplit_once(':')?;
    Some(Peer {
        host: host.to_owned(),
        address: host.parse().ok()?,
        port: port.parse().ok()?,
        service: "the external etcd".to_owned(),
    })
}

/// The problems, or the warnings, each with its name and its remedy.
fn lines(findings: &[Finding], bad: bool) -> Vec<String> {
    let line = |finding: &Finding| {
        let (message, hint) = match (&finding.verdict, bad) {
            (Verdict::Bad(message, hint), true) | (Verdict::Warning(message, hint), false) => {
                (message, hint)
            }
            _ => return None,
        };
        let message = message.replace('\n', "\n    ");
        Some(match hint.as_str() {
            "" => format!("  {}: {message}", finding.name),
            hint => format!("  {}: {message}\n    {hint}", finding.name),
        })
    };
    findings.iter().filter_map(line).collect()
}

/// The names of ignored checks in the pillar of a run, for the audit log.
pub fn ignored(pillar_json: &str) -> Option<String> {
    let pillar: Value = serde_json::from_str(pillar_json).ok()?;
    let names = pillar["ignore_preflight"].as_array()?.iter();
    let names: Vec<&str> = names.filter_map(Value::as_str).collect();
    (!names.is_empty()).then(|| names.join(","))
}

#[cfg(test)]
mod tests {
    use halite_pillar::load::{Text, Texts, load};
    use halite_pillar::validate::Context;

    use super::*;

    /// A cluster whose etcd is external, with these hosts.
    fn with_external_etcd(nodes: &[(&str, u8, &[Role])]) -> Declaration {
        let pem = include_str!("../../../pillar/src/example-ca.pem");
        let pem: String = pem.lines().map(|line| format!("      {line}\n")).collect();
        let key =
            "      -----BEGIN PRIVATE KEY-----\n      Y2FuYXJ5\n      -----END PRIVATE KEY-----\n";
        let cluster = format!(
            "apiVersion: halite/v1\nkind: Cluster\nmetadata: {{name: prod}}\nnetworks:\n  controlPlane: {{cidrs: \
             [10.0.0.0/24]}}\nkubernetes: {{version: \"1.36\"}}\napiServer: {{vip: 10.0.0.100}}\nsecrets:\n  \
             etcd-client:\n    value: |\n{pem}{key}etcd:\n  placement: external\n  external:\n    endpoints: \
             [\"https://10.0.0.21:2379\"]\n    clientSecret: etcd-client\n    ca: |\n{pem}"
        );
        let text = |file: String, text: String| Text { file, text };
        let node = |(name, last, roles): &(&str, u8, &[Role])| {
            let node = Node::new(name, Some([10, 0, 0, *last].into()), roles);
            text(format!("nodes/{name}.yaml"), node.to_text())
        };
        let texts = Texts {
            cluster: text("cluster.yaml".to_owned(), cluster),
            nodes: nodes.iter().map(node).collect(),
            ..Texts::default()
        };
        load(&texts, &Context::default()).unwrap()
    }

    #[test]
    fn the_virtual_address_is_asked_for_where_no_host_is_a_member_of_etcd() {
        let first: &[Role] = &[Role::Bootstrap, Role::Registry, Role::ControlPlane];
        let declaration = with_external_etcd(&[
            ("cp-1", 11, first),
            ("server", 12, &[Role::Registry]),
            ("worker-1", 13, &[Role::Worker]),
        ]);
        let asked = |name: &str| reached_at(&declaration, &declaration.nodes[name]);
        assert_eq!(asked("worker-1"), Some([10, 0, 0, 100].into()));
        assert_eq!(asked("server"), None, "it is not a node");
    }
}
