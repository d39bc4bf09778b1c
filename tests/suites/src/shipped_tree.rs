//! The shipped state tree, compiled for a declaration of the lab without a cluster.

use std::collections::BTreeMap;
use std::fmt::Display;

use anyhow::{Context as _, Result};
use halite_lab::build;
use halite_lab::layout::Layout;
use halite_lab::role::Role;
use halite_pillar::bundle_facts::{BundleFacts, components};
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::validate;
use halite_pillar::view::{Pki, view};
use halite_states::compile::{Compiled, Input};
use halite_states::tree::DirTree;
use serde_json::Value;

/// A bundle with every component at one version.
pub(crate) fn bundle() -> Result<BundleFacts> {
    let program = |name: &str| (name.to_owned(), "0".repeat(64));
    Ok(BundleFacts {
        path: "/media/halite".to_owned(),
        images: images(),
        programs: ["ctl", "halite-master", "halite-minion"]
            .map(program)
            .into(),
        ..BundleFacts::new("0.1.0".parse()?, "v1.36.3")
    })
}

/// An image of each component that every bundle has.
pub(crate) fn images() -> BTreeMap<String, String> {
    components()
        .map(|name| (name.to_owned(), format!("registry.k8s.io/{name}:1")))
        .collect()
}

/// The declaration of a layout's hosts, as after all of them have joined.
pub(crate) fn declaration(cluster: &str, layout: &Layout) -> Result<Declaration> {
    let nodes: Vec<String> = (layout.hosts.iter().enumerate())
        .map(|(place, member)| {
            let mut roles: Vec<String> = member.roles.iter().map(Role::to_string).collect();
            if place == 0 {
                roles.extend(["bootstrap", "registry"].map(str::to_owned));
            }
            format!(
                "apiVersion: halite/v1\nkind: Node\nmetadata:\n  name: {}\nroles: [{}]\naddress: {}\n",
                member.name,
                roles.join(", "),
                member.network.address(member.number)
            )
        })
        .collect();
    let nodes: Vec<&str> = nodes.iter().map(String::as_str).collect();
    parse(cluster, &nodes)
}

/// Reads a cluster document and the documents of its nodes.
pub fn parse(cluster: &str, nodes: &[&str]) -> Result<Declaration> {
    let text = |file: String, text: &str| Text {
        file,
        text: text.to_owned(),
    };
    let nodes = nodes
        .iter()
        .enumerate()
        .map(|(n, node)| text(format!("node {n}"), node))
        .collect();
    let texts = Texts {
        cluster: text("cluster.yaml".to_owned(), cluster),
        nodes,
        ..Texts::default()
    };
    load(&texts, &validate::Context::default()).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!("{}", problems.join("\n"))
    })
}

/// Compiles for one target of a declaration: `further` is added to its pillar.
pub(crate) fn compile<P: Display>(
    declaration: &Declaration,
    (bundle, pki): (&BundleFacts, &Pki),
    minion: &str,
    grains: &Value,
    further: &Value,
    what: impl FnOnce(&Input<'_>) -> Result<Compiled, Vec<P>>,
) -> Result<Compiled> {
    let tree = DirTree::new().root(build::source_root().join("states/tree"));
    let mut pillar = view(declaration, bundle, pki, minion)?;
    let all = pillar
        .as_object_mut()
        .context("the pillar is not a mapping")?;
    for (key, value) in further.as_object().into_iter().flatten() {
        all.insert(key.clone(), value.clone());
    }
    // The bundle's programs do not matter here.
    let hash = |_: &str| Some("0".repeat(64));
    let input = Input {
        tree: &tree,
        minion,
        pillar: &pillar,
        grains,
        bundle: &hash,
    };
    what(&input).map_err(|problems| {
        let problems: Vec<String> = problems.iter().map(ToString::to_string).collect();
        anyhow::anyhow!(
            "the state tree does not compile for {minion}:\n{}",
            problems.join("\n")
        )
    })
}
