//! The plan of Halite for an input: the state tree compiled for the first node and for the master,
//! as a picture.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use halite_lab::cluster::BOOTSTRAP;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::view::{MASTER, Pki};
use halite_states::compile;
use halite_states::compile::Compiled;
use halite_states::low::Chunk;
use serde_json::{Map, Value, json};

use super::certificate::Authorities;
use super::difference::Picture;
use super::{files, objects};
use crate::shipped_tree;

/// The states that make kubeadm's objects. The pod network is not kubeadm's.
const OBJECTS: [&str; 4] = [
    "halite.base.kubeadm_objects",
    "halite.base.kubeadm_objects.ahead",
    "halite.base.kube_proxy",
    "halite.base.coredns",
];

/// Fields that certificates have and their states lack: the signing master adds them.
const OF_SIGNING: [&str; 4] = ["authority", "ca", "keyUsage", "signature"];

/// Compiles for the first node and the master. The authorities are those of `pki`, so that files
/// that embed them can be compared.
pub(super) fn picture(
    declaration: &Declaration,
    bundle: &BundleFacts,
    pki: &Pki,
    authorities: &Authorities,
) -> Result<Picture> {
    let mut picture = host(declaration, bundle, pki, authorities, BOOTSTRAP)?;
    for chunk in &compile(declaration, bundle, pki, MASTER)?.low.chunks {
        let args = &chunk.args;
        match chunk.function().as_str() {
            "kubernetes.manifest" if OBJECTS.contains(&chunk.sls.as_str()) => {
                let documents = args["documents"]
                    .as_array()
                    .context("a manifest without documents")?;
                objects::add(&mut picture, documents, authorities)?;
            }
            "kubernetes.node" if args["object"] == BOOTSTRAP => {
                objects::add_node(&mut picture, BOOTSTRAP, &args["labels"], &args["taints"]);
            }
            _ => {}
        }
    }
    Ok(picture)
}

/// Compiles for one host.
pub(super) fn host(
    declaration: &Declaration,
    bundle: &BundleFacts,
    pki: &Pki,
    authorities: &Authorities,
    name: &str,
) -> Result<Picture> {
    let mut picture = Picture::new();
    for chunk in &compile(declaration, bundle, pki, name)?.low.chunks {
        if let Some((place, value)) = of_host(chunk, authorities).with_context(|| chunk.tag())? {
            picture.insert(place, value);
        }
    }
    Ok(picture)
}

/// Removes from kubeadm's picture the parts that no state declares, because the signing master or
/// the running host adds them.
pub(super) fn without_signing(reference: &mut Picture) {
    reference.retain(|place, value| {
        let of_authority = place.starts_with("certificate/") && value["ca"] == true;
        place != "access" && !of_authority
    });
    for (place, value) in reference.iter_mut() {
        if place.starts_with("certificate/") {
            unsigned(value);
        } else if place.starts_with("kubeconfig/") {
            for user in value["users"].as_array_mut().into_iter().flatten() {
                user.pointer_mut("/user/certificate")
                    .into_iter()
                    .for_each(unsigned);
            }
        }
    }
}

fn unsigned(certificate: &mut Value) {
    if let Some(certificate) = certificate.as_object_mut() {
        certificate.retain(|name, _| !OF_SIGNING.contains(&name.as_str()));
    }
}

/// The state tree compiled for one target of a declaration.
pub fn compile(
    declaration: &Declaration,
    bundle: &BundleFacts,
    pki: &Pki,
    minion: &str,
) -> Result<Compiled> {
    let grains = json!({"os_family": "Debian", "os": "Debian", "nodename": minion, "host": minion});
    let parts = (bundle, pki);
    shipped_tree::compile(
        declaration,
        parts,
        minion,
        &grains,
        &json!({}),
        compile::highstate,
    )
}

fn of_host(chunk: &Chunk, authorities: &Authorities) -> Result<Option<(String, Value)>> {
    let (args, name) = (&chunk.args, chunk.name.as_str());
    let path = match (
        name.strip_prefix("/etc/kubernetes/"),
        name.strip_prefix("/var/lib/kubelet/"),
    ) {
        (Some(path), _) => path.to_owned(),
        (_, Some(path)) => format!("kubelet/{path}"),
        _ => return Ok(None),
    };
    Ok(match chunk.function().as_str() {
        "file.managed" if !path.starts_with("pki/") => {
            let text = args["contents"]
                .as_str()
                .context("a file without contents")?;
            files::meaning(&path, text, authorities)?
        }
        "x509.certificate" => {
            let name = path
                .strip_prefix("pki/")
                .and_then(|path| path.strip_suffix(".crt"));
            name.filter(|_| !path.starts_with("kubelet/"))
                .map(|name| (format!("certificate/{name}"), certificate(args)))
        }
        "kubeconfig.managed" => Some((format!("kubeconfig/{path}"), kubeconfig(args, authorities))),
        _ => None,
    })
}

/// The certificate that a state declares, with the defaults of `x509.certificate`.
fn certificate(args: &Map<String, Value>) -> Value {
    let flag = |name: &str| args.get(name) == Some(&Value::Bool(true));
    let list = |name: &str| -> Vec<String> {
        let items = args
            .get(name)
            .and_then(Value::as_array)
            .into_iter()
            .flatten();
        let mut items: Vec<String> = items
            .filter_map(|item| item.as_str().map(str::to_owned))
            .collect();
        items.sort();
        items
    };
    let usages = [("server_auth", "server"), ("client_auth", "client")];
    let issuer = match args
        .get("ca")
        .and_then(Value::as_str)
        .unwrap_or("kubernetes")
    {
        "kubernetes" => "CN=kubernetes".to_owned(),
        other => format!("CN={}-ca", other.trim_end_matches("-ca")),
    };
    let algorithm = args
        .get("algorithm")
        .and_then(Value::as_str)
        .unwrap_or("ecdsa-p256");
    json!({
        "subject": {"commonName": args["common_name"], "organization": list("organization")},
        "issuer": issuer,
        "dns": list("sans_dns"),
        "ip": list("sans_ip"),
        "extKeyUsage": usages.iter().filter(|(name, _)| flag(name)).map(|(_, usage)| usage).collect::<Vec<_>>(),
        "days": args.get("days").cloned().unwrap_or(json!(365)),
        "key": algorithm.to_uppercase().replace("-P", "-"),
    })
}

/// The kubeconfig that a state declares, with the defaults of `kubeconfig.managed`.
fn kubeconfig(args: &Map<String, Value>, authorities: &Authorities) -> Value {
    let text = |name: &str| args.get(name).and_then(Value::as_str).unwrap_or_default();
    let (cluster, user) = (text("cluster"), text("user"));
    let context = format!("{user}@{cluster}");
    let identity = match (
        args.get("client_certificate_file"),
        args.get("client_key_file"),
    ) {
        (Some(certificate), Some(key)) => {
            json!({"client-certificate": certificate, "client-key": key})
        }
        _ => {
            let mut request: BTreeMap<String, Value> = args.clone().into_iter().collect();
            request.insert("client_auth".to_owned(), json!(true));
            json!({"certificate": certificate(&request.into_iter().collect()), "key": "embedded"})
        }
    };
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{
            "name": cluster,
            "cluster": {"server": text("server"), "authority": authorities.name(text("ca_certificate"))},
        }],
        "contexts": [{"name": context, "context": {"cluster": cluster, "user": user}}],
        "current-context": context,
        "users": [{"name": user, "user": identity}],
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeadm::documents::INPUTS;
    use crate::kubeadm::inputs::declaration;

    #[test]
    fn the_tree_says_something_about_everything_that_kubeadm_makes() {
        for input in INPUTS {
            let declaration = declaration(input.document).unwrap();
            let bundle = BundleFacts {
                kubernetes: input.release.kubernetes.to_owned(),
                ..shipped_tree::bundle().unwrap()
            };
            let picture = picture(
                &declaration,
                &bundle,
                &Pki::default(),
                &Authorities::default(),
            )
            .unwrap();
            for place in [
                "static-pod/kube-apiserver",
                "certificate/etcd/server",
                "kubeconfig/kubelet.conf",
                "kubelet/kubeadm-flags.env",
                "object/ConfigMap/kube-public/cluster-info",
                "object/DaemonSet/kube-system/kube-proxy",
                "object/Service/kube-system/kube-dns",
                "node/bootstrap-1",
            ] {
                assert!(
                    picture.contains_key(place),
                    "{place} is missing: {:?}",
                    picture.keys()
                );
            }
        }
    }
}
