//! A cluster made with every option enabled, which shows that each works together with all others.
//!
//! The document below sets every field of a cluster document, with every option enabled. A test
//! compares it with the schema, so a new option makes that test fail, by name, until the document
//! sets it too.

use std::fs;

use anyhow::{Result, ensure};
use halite_lab::cluster::{Cluster, WORKER};
use halite_lab::host::Host;
use halite_upstream::versions::OLDER;
use serde_json::Value;

use super::bundles::{chart, problems};
use super::cluster::PODS;
use super::external::harmless_chrony;
use super::registry::curl;
use super::repair::quiet;
use super::{addons, health, site_registry};
use crate::test::{Counts, Test};

/// The tests that follow once the worker has joined.
pub(super) const TESTS: &[Test<Cluster>] = &[
    Test {
        name: "every option: metrics, volumes, both registries and the chart work together",
        run: works,
    },
    Test {
        name: "every option: another highstate changes nothing, and no host reports a problem",
        run: settled,
    },
];

/// All roles of a host in addition to the first one's.
pub(super) const ROLES: &str = "worker,infra,frontend,registry";

/// A kernel parameter of the document, in addition to Halite's own.
const KEEPALIVE: (&str, &str) = ("net/ipv4/tcp_keepalive_time", "1234");

/// The file that the operator's own states write.
const OWN_FILE: &str = "/etc/halite-every-option";

/// The operator's own states, which exist before the cluster is made.
const OWN_STATES: &str = "/etc/halite-every-option:
  file.managed:
    - contents: '{{ pillar.custom.motd }}'
";

/// The cluster document. No host answers at the addresses of the mirror and the proxy (RFC 5737;
/// the host's own), so every artifact comes from the site. The kubelet's health answers every
/// notification with 200. The `kubelet` section also has the
/// settings that every document of the lab needs on this kernel and machine.
const DOCUMENT: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: demo
profile: standard
dnsDomain: every.option.example
networks:
  controlPlane:
    cidrs: [10.10.0.0/24, 10.10.1.0/24]
  workloadPlane:
    cidrs: [10.20.0.0/24]
  pods: 10.233.0.0/16
  services: 10.96.0.0/12
apiServer:
  endpoint: kubernetes.demo.internal
  vip: 10.10.0.100
  keepalived: true
  certSANs: [kubernetes.example.com, 10.10.0.100]
  extraArgs: {profiling: "false"}
  extraVolumes: [{name: machine, hostPath: /etc/machine-id, mountPath: /etc/machine-id, readOnly: true, pathType: File}]
  audit: {policy: {rules: [{level: Metadata}]}, maxAge: 7, maxBackups: 2, maxSize: 10}
  encryption: {resources: [secrets, configmaps]}
  authentication:
    anonymous: {enabled: true, conditions: [{path: /livez}, {path: /readyz}, {path: /healthz}]}
  admission:
    podSecurity: {enforce: privileged, audit: baseline, warn: privileged, version: latest, exemptNamespaces: [app]}
    plugins:
      - name: ResourceQuota
        configuration: {apiVersion: apiserver.config.k8s.io/v1, kind: ResourceQuotaConfiguration, limitedResources: []}
    enable: [ExtendedResourceToleration]
    disable: [PodNodeSelector]
  featureGates: {AllAlpha: false}
controlPlane:
  taint: auto
controllerManager:
  extraArgs: {profiling: "false"}
  extraVolumes: [{name: machine, hostPath: /etc/machine-id, mountPath: /etc/machine-id, readOnly: true, pathType: File}]
scheduler:
  extraArgs: {profiling: "false"}
  extraVolumes: [{name: machine, hostPath: /etc/machine-id, mountPath: /etc/machine-id, readOnly: true}]
etcd:
  extraArgs: {auto-compaction-retention: "1"}
  defrag: {at: "Sat 02:00", above: 30%}
kubernetes:
  version: "MINOR"
cni:
  plugin: flannel
  mtu: 1400
kubelet:
  config:
    failCgroupV1: false
    evictionHard: {memory.available: 100Mi, nodefs.available: 500Mi, imagefs.available: 500Mi}
    imageGCHighThresholdPercent: 100
  extraArgs: {allowed-unsafe-sysctls: [net.core.somaxconn, kernel.msgmax]}
containerd:
  restrictOomScoreAdj: true
  limits: {nofile: 16384}
  registries: {mirrored.corp: {mirrors: ["https://192.0.2.9:5000"]}}
  config:
    plugins: {io.containerd.cri.v1.runtime: {max_container_log_line_size: 32768}}
kubeProxy:
  mode: nftables
  config:
    conntrack: {maxPerCore: 0, min: 0}
addons: {metricsServer: true, localPath: true}
charts: [hello]
siteRegistry:
  enabled: true
  node: bootstrap-1
  users: {ci: registry-ci}
  pullAs: ci
  backup: {directory: /srv/registry-backups, at: "03:15", keep: 2, verify: Sat}
host:
  sysctls: {net.ipv4.tcp_keepalive_time: "1234", fs.inotify.max_user_instances: null, fs.inotify.max_user_watches: null}
  kernelModules: []
  manageSwap: true
  manageFirewall: true
  manageTime: true
  packages: [kubectl]
firewall:
  sources:
    management: [10.10.0.0/24, 10.10.1.0/24]
    loadBalancers: [10.10.1.0/24]
  nodePorts:
    cidrs: [10.20.0.0/24]
  podsToHosts: deny
master:
  standbys: auto
  jobs: {keepDays: 7, keepLast: 50}
  metrics:
    listen: 4553
    from: [10.10.9.0/24]
    clientCA: |
      -----BEGIN CERTIFICATE-----
      MIIBljCCAT2gAwIBAgIUclCxTBFwgBor2xwZ/ebVZ/2+Ij4wCgYIKoZIzj0EAwIw
      IDEeMBwGA1UEAwwVZXZlcnlib2R5J3MgYXV0aG9yaXR5MCAXDTI2MTEyMjEwMTkw
      NloYDzIxMjYxMDI5MTAxOTA2WjAgMR4wHAYDVQQDDBVldmVyeWJvZHkncyBhdXRo
      b3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATx5EOz1KzVX6BiN3Xv7Lfg
      n9eLfxE5SA3exueO4WEBkvfjXDZCcoJ3VjkhoiojmBB3tIC5FMtmuBDovDqP2QkJ
      o1MwUTAdBgNVHQ4EFgQU2ZWweFJfSWivelv7XpbY+04qeIQwHwYDVR0jBBgwFoAU
      2ZWweFJfSWivelv7XpbY+04qeIQwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
      AgNHADBEAiBeUGK62af84FVnFNfvklRXwbouF4+Y+RQsDZwjMDiUzAIgN3oGfLux
      fNNBlUb87xTFPUxOwZmChgBJsMNYx2IjJa0=
      -----END CERTIFICATE-----
backup:
  at: "04:15"
  keep: 3
  copies: 2
  directory: /srv/backups
  verify: Sat
  recipients: [age1zvkyg2lqzraa2lnjvqej32nkuu0ues2s82hzrye869xeexvn73equnujwj]
notify: {sinks: {quiet: {url: "http://127.0.0.1:10248/healthz", severity: failure}}}
certificates:
  renew: automatic
upgrade:
  batch: 50%
trust:
  certificates:
    corp: |
      -----BEGIN CERTIFICATE-----
      MIIBljCCAT2gAwIBAgIUclCxTBFwgBor2xwZ/ebVZ/2+Ij4wCgYIKoZIzj0EAwIw
      IDEeMBwGA1UEAwwVZXZlcnlib2R5J3MgYXV0aG9yaXR5MCAXDTI2MTEyMjEwMTkw
      NloYDzIxMjYxMDI5MTAxOTA2WjAgMR4wHAYDVQQDDBVldmVyeWJvZHkncyBhdXRo
      b3JpdHkwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAATx5EOz1KzVX6BiN3Xv7Lfg
      n9eLfxE5SA3exueO4WEBkvfjXDZCcoJ3VjkhoiojmBB3tIC5FMtmuBDovDqP2QkJ
      o1MwUTAdBgNVHQ4EFgQU2ZWweFJfSWivelv7XpbY+04qeIQwHwYDVR0jBBgwFoAU
      2ZWweFJfSWivelv7XpbY+04qeIQwDwYDVR0TAQH/BAUwAwEB/zAKBggqhkjOPQQD
      AgNHADBEAiBeUGK62af84FVnFNfvklRXwbouF4+Y+RQsDZwjMDiUzAIgN3oGfLux
      fNNBlUb87xTFPUxOwZmChgBJsMNYx2IjJa0=
      -----END CERTIFICATE-----
proxy: {http: "http://127.0.0.1:3128", https: "http://127.0.0.1:3128", noProxy: [.corp]}
time: {servers: [10.10.0.11]}
secrets:
  registry-ci: {value: PASSWORD}
custom:
  motd: every option is on
"#;

/// The cluster document for the older release. The cluster of the other suites has few options
/// enabled when it is made.
pub(super) fn document() -> String {
    DOCUMENT
        .replace("MINOR", OLDER.minor())
        .replace("PASSWORD", site_registry::PASSWORD)
}

/// Puts the operator's own states on a bare host, and makes its chrony unable to set a clock.
pub(super) fn prepare(host: &Host) -> Result<()> {
    harmless_chrony(host)?;
    let custom = host.file("/etc/halite/custom");
    fs::create_dir_all(&custom)?;
    fs::write(custom.join("init.sls"), OWN_STATES)?;
    Ok(())
}

fn works(cluster: &Cluster) -> Result<Counts> {
    cluster.wait_for_pods(PODS)?;
    addons::measured(cluster)?;
    addons::holds_data(cluster)?;
    site_registry::pulled_by_pods(cluster)?;
    backed_up(&cluster.bootstrap)?;
    served_twice(cluster)?;
    chart::answers(cluster)?;
    for host in cluster.hosts() {
        on_host(host)?;
    }
    Ok(Counts {
        passed: 7,
        failed: 0,
    })
}

fn backed_up(host: &Host) -> Result<()> {
    host.run(&["systemctl", "start", "halite-registry-backup.service"])?;
    host.run(&["ctl", "registry", "verify", site_registry::BACKUPS])?;
    let timer = host.run(&[
        "systemctl",
        "list-timers",
        "--no-pager",
        "halite-registry-backup.timer",
    ])?;
    ensure!(timer.contains("03:15:00"), "{timer}");
    Ok(())
}

/// Checks that both hosts serve the bundle's images.
fn served_twice(cluster: &Cluster) -> Result<()> {
    for (server, from) in [
        (&cluster.bootstrap, &cluster.worker),
        (&cluster.worker, &cluster.bootstrap),
    ] {
        let url = format!(
            "https://{}:4551/v2/_catalog",
            server.control_plane_address()
        );
        let catalog: Value = serde_json::from_str(&curl(from, "-f", &url)?)?;
        let names = catalog["repositories"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        ensure!(
            names.iter().any(|name| name == "registry.k8s.io/etcd"),
            "{} serves {catalog}",
            server.spec.name
        );
    }
    Ok(())
}

/// Checks the settings that the document declares for every host.
fn on_host(host: &Host) -> Result<()> {
    let name = &host.spec.name;
    let value = host.run(&["cat", &format!("/proc/sys/{}", KEEPALIVE.0)])?;
    ensure!(
        value.trim() == KEEPALIVE.1,
        "{} of {name} is {value}",
        KEEPALIVE.0
    );
    let certificate = "/usr/local/share/ca-certificates/halite/halite-corp.crt";
    host.sh(&format!(
        "openssl verify -no-CAfile -CApath /etc/ssl/certs {certificate}"
    ))?;
    host.run(&["systemctl", "is-active", "chrony"])?;
    let environment =
        host.sh("tr '\\0' '\\n' < /proc/$(systemctl show -p MainPID --value containerd)/environ")?;
    ensure!(
        environment.contains("HTTPS_PROXY=http://127.0.0.1:3128\n"),
        "containerd of {name}: {environment}"
    );
    let limits = host.sh("cat /proc/$(systemctl show -p MainPID --value containerd)/limits")?;
    let files = limits
        .lines()
        .find(|line| line.starts_with("Max open files"));
    ensure!(
        files.is_some_and(|line| line.split_whitespace().nth(4) == Some("16384")),
        "containerd of {name}: {limits}"
    );
    let own = host.run(&["cat", OWN_FILE])?;
    ensure!(
        own.trim() == "every option is on",
        "{OWN_FILE} of {name} contains {own:?}"
    );
    host.run(&["kubectl", "version", "--client"])?;
    let rules = host.run(&["firewall-cmd", "--info-policy=halite-host"])?;
    ensure!(
        rules.contains("4551"),
        "{name} opens no port of its nginx: {rules}"
    );
    Ok(())
}

fn settled(cluster: &Cluster) -> Result<Counts> {
    quiet(cluster)?;
    let reported = problems(cluster)?;
    ensure!(
        reported.is_empty(),
        "ctl status complains about {reported:?}"
    );
    let status = health::status(cluster)?;
    let worker = status.nodes.iter().find(|node| node.name == WORKER);
    let roles = worker.map(|node| node.roles.clone()).unwrap_or_default();
    let has = |role: &str| roles.iter().any(|own| *own == *role);
    ensure!(
        ROLES.split(',').all(has),
        "{WORKER} has the roles {roles:?}"
    );
    Ok(Counts::ONE)
}

#[cfg(test)]
mod tests {
    use halite_lab::cluster::BOOTSTRAP;
    use halite_pillar::node::Node;
    use halite_pillar::options;
    use halite_pillar::role::{BOOTSTRAP_ROLES, Role};

    use super::*;
    use crate::kubeadm::inputs::parse;

    /// Fields that the document leaves empty, with the reasons.
    const EMPTY: &[(&str, &str)] = &[
        (
            "apiServer.patches",
            "the cluster is compared with kubeadm's",
        ),
        (
            "apiServer.authentication.jwt",
            "the API server would contact the issuer, which does not exist",
        ),
        ("controllerManager.patches", "as apiServer.patches"),
        ("scheduler.patches", "as apiServer.patches"),
        ("etcd.external.endpoints", "etcd is the cluster's own"),
        ("etcd.external.ca", "etcd is the cluster's own"),
        ("etcd.external.clientSecret", "etcd is the cluster's own"),
        ("etcd.patches", "as apiServer.patches"),
        ("dns.forwarders", "as apiServer.patches"),
        ("dns.zones", "as apiServer.patches"),
        ("dns.patches", "as apiServer.patches"),
        (
            "host.kernelModules",
            "the lab's kernel has no modules, and can load none",
        ),
        ("resolved.kubernetes", "Halite writes it"),
        ("resolved.bundle", "Halite writes it"),
        ("resolved.master", "Halite writes it"),
        ("resolved.etcd", "Halite writes it"),
    ];

    fn node(name: &str, address: &str, roles: &[Role]) -> String {
        Node::new(name, Some(address.parse().unwrap()), roles).to_text()
    }

    fn first() -> String {
        node(BOOTSTRAP, "10.10.0.11", &BOOTSTRAP_ROLES)
    }

    fn roles() -> Vec<Role> {
        Role::ALL
            .into_iter()
            .filter(|role| ROLES.split(',').any(|name| name == role.as_str()))
            .collect()
    }

    #[test]
    fn whatever_can_be_on_is_on() {
        let declared = parse(&document(), &[&first()]).unwrap();
        let off: Vec<String> = options::choices()
            .map(|(path, names)| (path, options::chosen(&declared.cluster, path), names))
            .filter(|(_, chosen, _)| ["false", "none", "null"].contains(&chosen.as_str()))
            .map(|(path, chosen, names)| format!("{path}: {chosen} (of {})", names.join(", ")))
            .collect();
        assert!(
            off.is_empty(),
            "disabled, but every option must be enabled: {off:#?}"
        );
        assert_eq!(
            options::chosen(&declared.cluster, "apiServer.vip"),
            "keepalived",
            "the address must be Halite's own"
        );
    }

    #[test]
    fn every_other_field_is_written() {
        let written: Value = serde_saphyr::from_str(&document()).unwrap();
        let is_empty = |path: &str| match written.pointer(&format!("/{}", path.replace('.', "/"))) {
            None | Some(Value::Null) => true,
            Some(Value::Array(list)) => list.is_empty(),
            Some(Value::Object(map)) => map.is_empty(),
            Some(_) => false,
        };
        let empty: Vec<&str> = options::others().filter(|path| is_empty(path)).collect();
        let known: Vec<&str> = EMPTY.iter().map(|(path, _)| *path).collect();
        assert_eq!(empty, known, "these must be empty, and no others");
    }

    #[test]
    fn the_worker_has_every_role_that_it_can_have() {
        let with = |roles: &[Role]| {
            parse(&document(), &[&first(), &node(WORKER, "10.10.1.12", roles)]).map(drop)
        };
        with(&roles()).unwrap();
        assert_eq!(roles().len(), ROLES.split(',').count());
        for role in Role::ALL.into_iter().filter(|role| !roles().contains(role)) {
            let more = [roles(), vec![role]].concat();
            assert!(
                with(&more).is_err(),
                "a worker could also be {role}, and is not"
            );
        }
    }

    #[test]
    fn the_document_and_the_rest_of_the_suite_say_the_same() {
        let written: Value = serde_saphyr::from_str(&document()).unwrap();
        assert_eq!(written["charts"][0], halite_upstream::chart::NAME);
        assert_eq!(
            written["siteRegistry"]["backup"]["directory"],
            site_registry::BACKUPS
        );
        let parameter = KEEPALIVE.0.replace('/', ".");
        assert_eq!(written["host"]["sysctls"][parameter.as_str()], KEEPALIVE.1);
        assert!(OWN_STATES.starts_with(OWN_FILE));
    }
}
