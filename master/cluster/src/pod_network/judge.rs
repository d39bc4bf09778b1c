//! The interpretation of a minion's answer.

use halite_host_reports::pod_network::{Configuration, PodNetworkReport, Question, Setup, What};
use halite_pillar::programs::CniPlugin;

use super::Fault;

/// The interface of flannel's tunnels.
const TUNNEL: &str = "flannel.1";

/// The reason why a new pod on a host gets no network, or a different one than the declared one.
#[must_use]
pub fn setup(host: &str, plugin: CniPlugin, setup: &Setup) -> Option<Fault> {
    if !setup.forwards {
        return Some(Fault::on(
            host,
            format!("{host} forwards no packets of pods: net.ipv4.ip_forward is 0"),
            format!("`ctl highstate {host}` sets it"),
        ));
    }
    let is_flannel = plugin == CniPlugin::Flannel;
    let Some(configuration) = &setup.configuration else {
        let remedy = match is_flannel {
            true => format!(
                "`kubectl -n kube-flannel delete pod -l app=flannel --field-selector spec.nodeName={host}`: its next pod writes it"
            ),
            false => format!(
                "the pods of your network write it: `kubectl get pods -A -o wide --field-selector spec.nodeName={host}`"
            ),
        };
        let message =
            format!("no network is configured in /etc/cni/net.d on {host}: no pod can start there");
        return Some(Fault::on(host, message, remedy));
    };
    if !is_flannel {
        return None;
    }
    if !is_flannels(configuration) {
        let Configuration { path, name, .. } = configuration;
        return Some(Fault::on(
            host,
            format!(
                "new pods on {host} get the network {name:?} of {path} instead of the declared one"
            ),
            format!(
                "`ctl cmd {host} -- 'rm {path}'`, then `ctl node reboot {host}`, which starts its pods again, in the declared network"
            ),
        ));
    }
    let Some(gateway) = setup.gateway else {
        return Some(Fault::on(
            host,
            format!("/run/flannel/subnet.env is missing on {host}: no pod can start there"),
            format!("`ctl highstate {host}` restarts flannel, which writes it"),
        ));
    };
    if !setup.bridge.is_empty() && !setup.bridge.contains(&gateway) {
        let other: Vec<String> = setup.bridge.iter().map(ToString::to_string).collect();
        let other = other.join(", ");
        return Some(Fault::on(
            host,
            format!(
                "cni0 on {host} has the address {other} instead of {gateway}: no pod can start there"
            ),
            format!(
                "`ctl cmd {host} -- 'ip link delete cni0'`: the next pod creates it again; if pods run there, `ctl node reboot {host}` \
                 reconnects them"
            ),
        ));
    }
    None
}

/// Returns whether it is Halite's network, even if a plugin calls it as one of several.
fn is_flannels(configuration: &Configuration) -> bool {
    let mut plugins = configuration.plugins.iter();
    plugins.any(|plugin| plugin == "flannel" || plugin.starts_with("multus"))
}

/// The first target that pods of a host do not reach, except targets on hosts that are known to be
/// broken.
#[must_use]
pub fn traffic(
    host: &str,
    plugin: CniPlugin,
    question: &Question,
    answer: &PodNetworkReport,
    is_broken: impl Fn(&str) -> bool,
) -> Option<Fault> {
    answer.faults.iter().find_map(|fault| {
        let target = question.targets.get(fault.target)?;
        let (at, reason) = (format!("{}:{}", target.address, target.port), &fault.reason);
        match &target.what {
            What::Pod(other) if is_broken(other) => None,
            What::Pod(other) => {
                Some(between(host, other, plugin, &at, reason, &fault.interface))
            }
            // The host's own packets need a route before a Service is looked up; a pod's packets do
            // not.
            _ if answer.source.is_none() && fault.no_route => None,
            What::Service => Some(Fault::on(
                host,
                format!("pods of {host} do not reach the Service of the API at {at}: {reason}"),
                format!(
                    "`kubectl -n kube-system delete pod -l k8s-app=kube-proxy --field-selector spec.nodeName={host}`: its next pod \
                     writes the rules of all Services"
                ),
            )),
            What::Dns(_) => Some(Fault::on(
                host,
                format!("the cluster's DNS at {at} does not answer pods of {host}: {reason}"),
                "`kubectl -n kube-system logs -l k8s-app=kube-dns` says why; `kubectl -n kube-system rollout restart deployment \
                 coredns` starts it again",
            )),
        }
    })
}

fn between(
    host: &str,
    other: &str,
    plugin: CniPlugin,
    at: &str,
    reason: &str,
    interface: &str,
) -> Fault {
    let message = format!("pods of {host} do not reach those of {other} at {at}: {reason}");
    if plugin != CniPlugin::Flannel {
        let message = match interface {
            "" => format!("{message}; {host} has no route there"),
            interface => format!("{message}; {host} sends these packets by {interface}"),
        };
        let remedy = format!(
            "the pods of your network on {host} and {other} say why; its ports must be open between the two"
        );
        return Fault::on(host, message, remedy);
    }
    if interface != TUNNEL {
        let message = format!("{message}; the route by {TUNNEL} is missing on {host}");
        let remedy = format!("`ctl highstate {host}` restarts flannel, which writes its routes");
        return Fault::on(host, message, remedy);
    }
    Fault::on(
        host,
        format!("{message}; the route exists, but the VXLAN packets or their answers are lost"),
        format!(
            "allow UDP port 8472 between {host} and {other}, in both directions: `ctl highstate` repairs Halite's firewall, `nft list \
             ruleset` on both shows other rules that drop it"
        ),
    )
}
