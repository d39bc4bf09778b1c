//! The documents that the wizard finds.

use std::path::{Path, PathBuf};

use anyhow::bail;
use halite_pillar::load::{Text, Texts, load, values};
use halite_pillar::schema;
use halite_pillar::validate::Context;
use serde_json::Value;

use crate::compile::report;

/// The valid documents of a declaration whose cluster does not run yet.
#[derive(PartialEq)]
pub struct ExistingDocuments {
    /// The values of the cluster document.
    pub cluster: Value,
    /// The file of the first host's document and its values, if it is declared.
    pub first_host: Option<(String, Value)>,
    /// All documents.
    pub texts: Texts,
    directory: PathBuf,
}

impl ExistingDocuments {
    /// Reads the documents in a directory; `None` if there are none.
    ///
    /// # Errors
    /// A file cannot be read, the documents are invalid, or they belong to a cluster that runs.
    pub fn read(directory: &Path) -> anyhow::Result<Option<Self>> {
        let shown = directory.display();
        if !directory.join("cluster.yaml").exists() {
            let nodes = directory.join("nodes");
            if std::fs::read_dir(&nodes).is_ok_and(|mut files| files.next().is_some()) {
                bail!(
                    "cannot start a declaration in {shown}: {} is not empty, but there is no cluster.yaml; name another \
                     directory with --out",
                    nodes.display()
                );
            }
            return Ok(None);
        }
        let refused = |problems: Vec<_>| {
            anyhow::anyhow!(
                "cannot use the documents in {shown}: {}\nrepair them, or name another directory with --out",
                report(&problems)
            )
        };
        let texts = Texts::from_dir(directory).map_err(refused)?;
        let declaration = load(&texts, &Context::default()).map_err(refused)?;
        let has_record = declaration.cluster.resolved.is_some()
            || declaration
                .nodes
                .values()
                .any(|node| node.resolved.is_some());
        if has_record {
            bail!(
                "cannot replace the documents in {shown}: their cluster exists already; edit them, and check them with \
                 `ctl config validate {shown}`"
            );
        }
        let cluster = values(&texts.cluster, schema::cluster()).map_err(refused)?;
        let first = declaration.bootstrap_node();
        let first = first.and_then(|node| {
            texts
                .nodes
                .iter()
                .find(|text| text.file == node.source.file)
        });
        let first_host = first
            .map(|text: &Text| {
                let read = values(text, schema::node()).map_err(refused)?;
                anyhow::Ok((text.file.clone(), read))
            })
            .transpose()?;
        Ok(Some(Self {
            cluster,
            first_host,
            texts,
            directory: directory.to_owned(),
        }))
    }

    /// The question before they are replaced.
    pub fn question(&self, is_from_file: bool) -> String {
        let loss = match is_from_file {
            true => "Everything in it that the answers do not repeat is lost.",
            false => "Its values are the defaults of the questions, its comments are lost.",
        };
        format!(
            "{} exists. {loss} Replace it?",
            self.directory.join("cluster.yaml").display()
        )
    }
}
