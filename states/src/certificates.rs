//! The certificates in a low state: their lifetimes, their renewal, and the calls that only make
//! and load them.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::low::{Chunk, LowState, Requisites};

/// The default lifetime of a certificate, in days: kubeadm's.
pub const DAYS: i64 = 365;

/// The certificates and kubeconfigs that the shipped states of hosts make, each on the hosts that
/// need it.
pub const SHIPPED: [&str; 17] = [
    "/etc/kubernetes/pki/etcd/server.crt",
    "/etc/kubernetes/pki/etcd/peer.crt",
    "/etc/kubernetes/pki/etcd/healthcheck-client.crt",
    "/etc/kubernetes/pki/apiserver.crt",
    "/etc/kubernetes/pki/apiserver-kubelet-client.crt",
    "/etc/kubernetes/pki/apiserver-etcd-client.crt",
    "/etc/kubernetes/pki/front-proxy-client.crt",
    "/etc/kubernetes/admin.conf",
    "/etc/kubernetes/super-admin.conf",
    "/etc/kubernetes/controller-manager.conf",
    "/etc/kubernetes/scheduler.conf",
    KUBELET_CLIENT,
    KUBELET_SERVER,
    "/etc/halite/pki/server.crt",
    "/etc/halite/registry/server.crt",
    "/etc/halite/pki/metrics.crt",
    // On the master's host `halite-master init` makes it, which a state runs.
    "/etc/halite/operator/operator.crt",
];

/// The kubelet's first client certificate, and its fallback.
pub const KUBELET_CLIENT: &str = "/var/lib/kubelet/pki/kubelet-client-halite.pem";
/// The kubelet's serving certificate; without metrics-server the kubelet makes its own there.
pub const KUBELET_SERVER: &str = "/var/lib/kubelet/pki/kubelet.crt";

/// The certificates by which etcd members accept each other; a member without them is isolated.
pub const OF_MEMBERS: [&str; 2] = [
    "/etc/kubernetes/pki/etcd/server.crt",
    "/etc/kubernetes/pki/etcd/peer.crt",
];

/// The number of days before expiry from which a certificate is renewed: a third of its lifetime.
#[must_use]
pub const fn renewed_from(days: i64) -> i64 {
    days / 3
}

/// The calls of a low state that renew certificates and load them, in the same order: nothing else
/// that has been declared since the last highstate reaches the host. These are
///
/// - calls that make a certificate, and commands that are left out while one is current;
/// - calls that act on their changes, by `watch`, `onchanges` or `listen`;
/// - waits for static pods, which are started again when a file has changed that they read;
/// - the refusals of an etcd member that has lost its data, and of the CAs of an earlier stage of a
///   rotation.
#[must_use]
pub fn renewal(low: &LowState) -> LowState {
    let mut kept: BTreeSet<usize> = BTreeSet::new();
    // A call may act on a later one, by `listen`: repeat until nothing is added.
    loop {
        let before = kept.len();
        for (index, chunk) in low.chunks.iter().enumerate() {
            if begins(chunk) || acts_on(&chunk.requisites).any(|at| kept.contains(&at)) {
                kept.insert(index);
            }
        }
        if kept.len() == before {
            break;
        }
    }
    drop_unconditional(low, &mut kept);
    let places: Vec<usize> = kept.into_iter().collect();
    let chunks = places.iter().filter_map(|at| low.chunks.get(*at));
    let chunks = chunks.map(|chunk| Chunk {
        requisites: among(&chunk.requisites, &places),
        ..chunk.clone()
    });
    LowState {
        format: low.format,
        minion: low.minion.clone(),
        chunks: chunks.collect(),
    }
}

/// A renewal ([`renewal`]) of all certificates, due or not. One that was made within the last day
/// stays, so that a repeated or interrupted command does not begin again.
#[must_use]
pub fn renewal_at_once(low: &LowState) -> LowState {
    let mut low = renewal(low);
    for chunk in low.chunks.iter_mut().filter(|chunk| makes_one(chunk)) {
        let days = chunk.args.get("days").and_then(Value::as_i64);
        // The argument must be less than `days`.
        let renew = days.unwrap_or(DAYS) - 1;
        chunk.args.insert("renew_days".to_owned(), renew.into());
    }
    low
}

/// Returns whether a call makes a certificate.
#[must_use]
pub fn makes_one(chunk: &Chunk) -> bool {
    match (chunk.state.as_str(), chunk.fun.as_str()) {
        ("x509", "certificate") => true,
        // A kubeconfig that names the files of another certificate makes none.
        ("kubeconfig", "managed") => !chunk.args.contains_key("client_certificate_file"),
        _ => false,
    }
}

/// The id of the state by which a host refuses CAs of an earlier stage (docs/decisions/0102).
const STAGE_GUARD: &str = "ca-stage-not-later";

fn begins(chunk: &Chunk) -> bool {
    let is_current = |condition: &Value| condition["fun"] == "x509.current";
    makes_one(chunk)
        || chunk.controls.unless.iter().any(is_current)
        || chunk.id == STAGE_GUARD
        || matches!(
            (chunk.state.as_str(), chunk.fun.as_str()),
            ("static_pod", "running") | ("etcd", "data")
        )
}

/// The calls on whose changes a call acts.
fn acts_on(requisites: &Requisites) -> impl Iterator<Item = usize> {
    let Requisites {
        watch,
        watch_any,
        onchanges,
        onchanges_any,
        listen,
        ..
    } = requisites;
    let all = [watch, watch_any, onchanges, onchanges_any, listen];
    all.into_iter().flatten().copied()
}

/// The requisites by which a call is conditional: without them it would run although its condition
/// is not met.
fn conditions(requisites: &Requisites) -> [&Vec<usize>; 6] {
    [
        &requisites.onchanges,
        &requisites.onchanges_any,
        &requisites.onfail,
        &requisites.onfail_any,
        &requisites.onfail_all,
        &requisites.prereq,
    ]
}

/// Drops calls that have lost a whole condition.
fn drop_unconditional(low: &LowState, kept: &mut BTreeSet<usize>) {
    loop {
        let runs_always = |at: &usize| {
            let chunk = low.chunks.get(*at);
            chunk.is_some_and(|chunk| {
                let lists = conditions(&chunk.requisites).into_iter();
                lists
                    .filter(|list| !list.is_empty())
                    .any(|list| !list.iter().any(|target| kept.contains(target)))
            })
        };
        let surplus: Vec<usize> = kept.iter().copied().filter(runs_always).collect();
        if surplus.is_empty() {
            return;
        }
        for at in surplus {
            kept.remove(&at);
        }
    }
}

/// The requisites among the calls of these places, as positions in their list.
fn among(requisites: &Requisites, places: &[usize]) -> Requisites {
    let list = |old: &Vec<usize>| -> Vec<usize> {
        let new = old.iter().filter_map(|at| places.binary_search(at).ok());
        new.collect()
    };
    Requisites {
        require: list(&requisites.require),
        require_any: list(&requisites.require_any),
        watch: list(&requisites.watch),
        watch_any: list(&requisites.watch_any),
        onchanges: list(&requisites.onchanges),
        onchanges_any: list(&requisites.onchanges_any),
        onfail: list(&requisites.onfail),
        onfail_any: list(&requisites.onfail_any),
        onfail_all: list(&requisites.onfail_all),
        prereq: list(&requisites.prereq),
        listen: list(&requisites.listen),
    }
}

#[cfg(test)]
mod tests {
    use halite_document::Position;
    use serde_json::{Map, json};

    use super::*;
    use crate::low::{Controls, FORMAT};

    fn call(function: &str, id: &str, requisites: Requisites) -> Chunk {
        let (state, fun) = function.split_once('.').unwrap();
        Chunk {
            state: state.to_owned(),
            fun: fun.to_owned(),
            id: id.to_owned(),
            name: id.to_owned(),
            sls: "a".to_owned(),
            source: Position::default(),
            args: Map::new(),
            requisites,
            controls: Controls::default(),
            sensitive: false,
        }
    }

    fn low(chunks: Vec<Chunk>) -> LowState {
        LowState {
            format: FORMAT,
            minion: "a".to_owned(),
            chunks,
        }
    }

    fn ids(low: &LowState) -> Vec<&str> {
        low.chunks.iter().map(|chunk| chunk.id.as_str()).collect()
    }

    #[test]
    fn calls_that_make_or_act_on_certificates_are_kept() {
        let none = Requisites::default;
        let on = |watch: &[usize]| Requisites {
            watch: watch.to_vec(),
            ..none()
        };
        let mut kubelet_conf = call("kubeconfig.managed", "kubelet.conf", none());
        kubelet_conf
            .args
            .insert("client_certificate_file".to_owned(), json!("/x"));
        let mut init = call("cmd.run", "init", none());
        init.controls.unless = vec![json!({"fun": "x509.current", "path": "/x"})];
        let whole = low(vec![
            call("file.directory", "directory", none()),
            call(
                "x509.certificate",
                "certificate",
                Requisites {
                    require: vec![0],
                    ..none()
                },
            ),
            call("file.managed", "configuration", none()),
            call("service.running", "server", on(&[1, 2])),
            call("service.running", "other", on(&[2])),
            call(
                "cmd.run",
                "later",
                Requisites {
                    onchanges: vec![3],
                    require: vec![4],
                    ..none()
                },
            ),
            kubelet_conf,
            call("kubeconfig.managed", "admin.conf", none()),
            call("static_pod.running", "pod", on(&[2])),
            init,
        ]);
        let kept = renewal(&whole);
        assert_eq!(
            ids(&kept),
            [
                "certificate",
                "server",
                "later",
                "admin.conf",
                "pod",
                "init"
            ]
        );
        let of = |id: &str| {
            let chunk = kept.chunks.iter().find(|chunk| chunk.id == id);
            chunk.unwrap().requisites.clone()
        };
        assert_eq!(of("certificate"), none());
        assert_eq!(of("server"), on(&[0]));
        assert_eq!(of("later").onchanges, [1]);
        assert_eq!(of("later").require, Vec::<usize>::new());
        assert_eq!(of("pod"), none());
        assert_eq!(renewal(&kept), kept, "and a second time");
    }

    #[test]
    fn a_renewal_at_once_has_all_certificates_but_those_of_the_last_day() {
        let mut short = call("x509.certificate", "short", Requisites::default());
        short.args.insert("days".to_owned(), json!(30));
        short.args.insert("renew_days".to_owned(), json!(3));
        let whole = low(vec![
            call("x509.certificate", "usual", Requisites::default()),
            short,
            call(
                "service.running",
                "server",
                Requisites {
                    watch: vec![0],
                    ..Requisites::default()
                },
            ),
        ]);
        let kept = renewal_at_once(&whole);
        assert_eq!(ids(&kept), ids(&renewal(&whole)));
        let renew = |at: usize| kept.chunks[at].args.get("renew_days");
        assert_eq!(renew(0), Some(&json!(DAYS - 1)));
        assert_eq!(renew(1), Some(&json!(29)));
        assert_eq!(renew(2), None);
    }

    #[test]
    fn a_call_does_not_run_without_its_condition() {
        let none = Requisites::default;
        let whole = low(vec![
            call("x509.certificate", "certificate", none()),
            call("file.managed", "file", none()),
            call(
                "service.running",
                "server",
                Requisites {
                    watch: vec![0],
                    onfail: vec![1],
                    ..none()
                },
            ),
            call(
                "cmd.run",
                "after-the-server",
                Requisites {
                    onchanges: vec![2],
                    ..none()
                },
            ),
        ]);
        assert_eq!(ids(&renewal(&whole)), ["certificate"]);
    }

    #[test]
    fn a_listener_before_the_certificate_is_kept() {
        let whole = low(vec![
            call(
                "service.running",
                "server",
                Requisites {
                    listen: vec![1],
                    ..Requisites::default()
                },
            ),
            call("x509.certificate", "certificate", Requisites::default()),
        ]);
        let kept = renewal(&whole);
        assert_eq!(ids(&kept), ["server", "certificate"]);
        assert_eq!(kept.chunks[0].requisites.listen, [1]);
    }
}
