//! The documents that an operator gives to a bootstrap: a cluster document, or a directory with it
//! and the document of the first host.

use std::path::Path;

use anyhow::{Context as _, bail};
use halite_pillar::load::{Text, Texts};
use halite_pillar::node::{ResolvedNode, node_block};
use halite_pillar::resolve::record;

use super::value_at;

/// The documents of an operator.
pub(super) struct GivenDocuments {
    /// The cluster document.
    pub(super) cluster: Text,
    /// The document of the first host.
    node: Option<Text>,
}

impl GivenDocuments {
    /// Reads them from a file or a directory; `name` is the name of the first host, and `installed`
    /// is the directory of the documents on the host.
    ///
    /// # Errors
    /// A file cannot be read, or the directory has a document of another host or the operator's own
    /// states.
    pub(super) fn read(path: &Path, name: &str, installed: &Path) -> anyhow::Result<Self> {
        if !path.is_dir() {
            return Ok(Self {
                cluster: read(path)?,
                node: None,
            });
        }
        let cluster = read(&path.join("cluster.yaml"))?;
        let custom = path.join("custom");
        if custom.exists() && !is_same(path, installed) {
            let (custom, place) = (custom.display(), installed.join("custom"));
            bail!(
                "cannot use {custom}: only cluster.yaml and nodes/ are taken from {}; copy the content of {custom} to {}, \
                 and move {custom} out of this directory",
                path.display(),
                place.display()
            );
        }
        let texts = Texts::from_dir(path)
            .map_err(|problems| anyhow::anyhow!("{}", crate::compile::report(&problems)))?;
        let own = own_file(name);
        let (mut own, others): (Vec<Text>, Vec<Text>) = texts
            .nodes
            .into_iter()
            .partition(|text| Path::new(&text.file).ends_with(&own));
        if let Some(other) = others.first() {
            let stem = Path::new(&other.file).file_stem().unwrap_or_default();
            let stem = stem.to_string_lossy();
            bail!(
                "cannot use {}: the first host is called `{name}` here; give it the name of the document with --name {stem}, or \
                 remove the document if it is another host's and add that host with `ctl node add`",
                other.file
            );
        }
        Ok(Self {
            cluster,
            node: own.pop(),
        })
    }

    /// Puts the first host's document in place of the installed one, whose record it keeps.
    pub(super) fn place_node(self, texts: &mut Texts, name: &str) {
        let Some(mut given) = self.node else {
            return;
        };
        let own = own_file(name);
        let installed = (texts.nodes.iter()).position(|text| Path::new(&text.file).ends_with(&own));
        if let Some(installed) = installed.map(|at| texts.nodes.remove(at)) {
            let resolved = value_at(&installed, "resolved");
            let resolved = resolved.and_then(|value| serde_json::from_value(value).ok());
            let has_own = value_at(&given, "resolved").is_some();
            if let Some(resolved) = resolved.filter(|_: &ResolvedNode| !has_own)
                // A document that cannot be parsed is reported later.
                && let Ok(text) = record(&given.file, &given.text, &node_block(&resolved))
            {
                given.text = text;
            }
        }
        texts.nodes.push(given);
    }
}

/// The path of a host's document below a directory with a declaration.
pub(super) fn own_file(name: &str) -> String {
    format!("nodes/{name}.yaml")
}

/// `custom/pillar.yaml` of the documents on the host: it may be there before the first bootstrap.
///
/// # Errors
/// It cannot be read.
pub(super) fn installed_custom(directory: &Path) -> anyhow::Result<Option<Text>> {
    let path = directory.join("custom/pillar.yaml");
    path.exists().then(|| read(&path)).transpose()
}

/// Returns whether both paths name one directory.
fn is_same(one: &Path, other: &Path) -> bool {
    let (one, other) = (one.canonicalize(), other.canonicalize());
    one.is_ok_and(|one| other.is_ok_and(|other| one == other))
}

fn read(path: &Path) -> anyhow::Result<Text> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
    Ok(Text { file, text })
}
