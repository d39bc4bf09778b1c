//! Inputs without a running cluster: cluster documents, and the form in which kubeadm gets the same
//! settings.

use halite_upstream::versions::{NEWEST, OLDER, Release};

/// One input.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input {
    /// Name in the report.
    pub(super) name: &'static str,
    /// The cluster document.
    pub(super) document: &'static str,
    /// The Kubernetes release of the input; kubeadm of the same release is compared.
    pub(super) release: Release,
    /// Set if kubeadm gets flags and kubelet settings as patches instead of in its configuration,
    /// and each component has a patch of the document.
    pub(super) patched: bool,
}

/// All inputs.
pub(super) const INPUTS: [Input; 4] = [
    Input {
        name: "other networks",
        document: OTHER_NETWORKS,
        release: NEWEST,
        patched: false,
    },
    Input {
        name: "other flags",
        document: OTHER_FLAGS,
        release: NEWEST,
        patched: false,
    },
    Input {
        name: "another version",
        document: OTHER_VERSION,
        release: OLDER,
        patched: false,
    },
    Input {
        name: "another version, by patches",
        document: OTHER_VERSION,
        release: OLDER,
        patched: true,
    },
];

/// Input with other networks, another domain, another endpoint, kube-proxy with iptables, and the
/// kubelet's defaults.
const OTHER_NETWORKS: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: other
dnsDomain: cluster.site.example
networks:
  controlPlane:
    cidrs: [192.168.50.0/24]
  pods: 172.30.0.0/16
  services: 10.120.0.0/20
apiServer:
  endpoint: k8s.site.example
  vip: 192.168.50.100
  extraArgs:
    authorization-mode: Node,RBAC,Webhook
etcd:
  extraArgs:
    listen-metrics-urls: https://0.0.0.0
kubernetes:
  version: "1.36"
kubeProxy:
  mode: iptables
"#;

/// Input without a virtual address, with further names of the API, and extra flags and settings for
/// every component that takes them.
pub(super) const OTHER_FLAGS: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: flags
networks:
  controlPlane:
    cidrs: [192.168.50.0/24]
apiServer:
  certSANs: [k8s.example.com, 203.0.113.7, api.flags.internal]
  extraArgs:
    audit-log-maxage: "30"
    authorization-config: /etc/kubernetes/authorization.yaml
    profiling: "false"
    vmodule: [httplog=3, cacher=2]
  extraVolumes:
    - {name: authorization, hostPath: /etc/kubernetes/authorization.yaml, mountPath: /etc/kubernetes/authorization.yaml, readOnly: true, pathType: File}
controllerManager:
  extraArgs:
    bind-address: 0.0.0.0
    terminated-pod-gc-threshold: "50"
  extraVolumes:
    - {name: own, hostPath: /srv/own, mountPath: /own}
scheduler:
  extraArgs:
    bind-address: 192.168.50.11
    profiling: "false"
  extraVolumes:
    - {name: own, hostPath: /srv/own, mountPath: /own, pathType: DirectoryOrCreate}
etcd:
  extraArgs:
    listen-metrics-urls: http://192.168.50.11:2385,http://127.0.0.1:2381
    quota-backend-bytes: "8589934592"
    snapshot-count: "5000"
kubernetes:
  version: "1.36"
kubelet:
  config:
    maxPods: 200
    shutdownGracePeriod: 60s
    logging:
      verbosity: 2
    evictionHard: {memory.available: 200Mi}
  extraArgs:
    image-credential-provider-bin-dir: /opt/providers
    image-credential-provider-config: /etc/kubernetes/providers.yaml
kubeProxy:
  config:
    conntrack:
      min: 65536
    metricsBindAddress: 127.0.0.1:10249
"#;

/// Input with the previous minor version, an address that another program manages, and settings
/// that kubeadm's patches can express too.
pub(super) const OTHER_VERSION: &str = r#"apiVersion: halite/v1
kind: Cluster
metadata:
  name: older
dnsDomain: k8s.older.example
networks:
  controlPlane:
    cidrs: [192.168.50.0/24]
  pods: 10.64.0.0/14
  services: 10.112.0.0/22
apiServer:
  vip: 192.168.50.200
  keepalived: false
  certSANs: [older.example.com]
  extraArgs:
    audit-log-path: "-"
    default-not-ready-toleration-seconds: "30"
controllerManager:
  extraArgs:
    node-monitor-grace-period: 25s
scheduler:
  extraArgs:
    kube-api-qps: "100"
etcd:
  extraArgs:
    auto-compaction-retention: "1"
    heartbeat-interval: "250"
kubernetes:
  version: "1.35"
kubelet:
  config:
    maxPods: 64
    serializeImagePulls: false
    systemReserved: {cpu: 200m, memory: 256Mi}
"#;
