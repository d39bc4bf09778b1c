//! Compiles states on this host: for the plan and the first states of a bootstrap, and for
//! `ctl local`.

use std::collections::BTreeSet;
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::Context as _;
use halite_document::Problem;
use halite_manifest::Manifest;
use halite_pillar::bundle_facts::BundleFacts;
use halite_states::compile;
use halite_states::compile::{Compiled, Input};
use halite_states::low::Chunk;
use halite_states::signature::RunsOn;
use halite_states::tree::Tree;
use serde_json::Value;

/// The input of a compilation.
pub struct CompileInput<'a> {
    /// The state tree.
    pub tree: &'a dyn Tree,
    /// The host's id.
    pub minion: &'a str,
    /// The value of `pillar` in templates.
    pub pillar: &'a Value,
    /// The value of `grains` in templates.
    pub grains: &'a Value,
    /// The bundle, for `bundle://` sources.
    pub bundle: Option<(&'a Path, &'a Manifest)>,
}

impl CompileInput<'_> {
    /// Compiles the named SLS files; without names, those that `top.sls` assigns.
    ///
    /// # Errors
    /// All problems, each with its position, including states that do not run on a host.
    pub fn compile(&self, sls: &[String]) -> Result<Compiled, Vec<Problem>> {
        let bundle = |path: &str| {
            self.bundle
                .and_then(|(_, manifest)| manifest.sha256(path).map(str::to_owned))
        };
        let input = Input {
            tree: self.tree,
            minion: self.minion,
            pillar: self.pillar,
            grains: self.grains,
            bundle: &bundle,
        };
        let compiled = if sls.is_empty() {
            compile::highstate(&input)
        } else {
            compile::sls(&input, sls)
        };
        let compiled = compiled?;
        let elsewhere = |chunk: &&Chunk| {
            let signature = halite_states::signatures::find(&chunk.state, &chunk.fun);
            chunk.state != "test"
                && signature.is_some_and(|signature| signature.runs_on != RunsOn::Minion)
        };
        let problem = |chunk: &Chunk| {
            let message = format!(
                "{} does not run on a host; the master runs it",
                chunk.function()
            );
            Problem::at(&chunk.source, message)
        };
        let misplaced: Vec<Problem> = compiled
            .low
            .chunks
            .iter()
            .filter(elsewhere)
            .map(problem)
            .collect();
        if misplaced.is_empty() {
            Ok(compiled)
        } else {
            Err(misplaced)
        }
    }

    /// Puts every file that the low state names by digest into a directory: files of the tree as
    /// copies, files of the bundle as symbolic links.
    ///
    /// # Errors
    /// The system's reason.
    pub fn lay_out(&self, compiled: &Compiled, directory: &Path) -> anyhow::Result<()> {
        for (sha256, content) in &compiled.blobs {
            std::fs::write(directory.join(sha256), content)
                .context("cannot copy the files of the state tree")?;
        }
        let Some((bundle, manifest)) = self.bundle else {
            return Ok(());
        };
        let bundle = bundle
            .canonicalize()
            .with_context(|| format!("cannot read {}", bundle.display()))?;
        let needed = blobs(
            &compiled
                .low
                .chunks
                .iter()
                .map(|c| Value::Object(c.args.clone()))
                .collect(),
        );
        for (path, entry) in manifest
            .files
            .iter()
            .filter(|(_, entry)| needed.contains(&entry.sha256))
        {
            let link = directory.join(&entry.sha256);
            if !link.exists() {
                symlink(bundle.join(path), &link).context("cannot link the files of the bundle")?;
            }
        }
        Ok(())
    }
}

/// The facts about a bundle at `path`, for declarations and templates.
///
/// # Errors
/// The manifest has a value that the facts refuse.
pub fn facts(manifest: &Manifest, path: &str) -> anyhow::Result<BundleFacts> {
    serde_json::to_value(manifest)
        .and_then(|manifest| BundleFacts::from_value(&manifest, path))
        .context("cannot read the facts of the bundle from its manifest")
}

/// Formats problems, one on each line, below their number.
pub fn report(problems: &[Problem]) -> String {
    let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
    let what = if problems.len() == 1 {
        "a problem".to_owned()
    } else {
        format!("{} problems", problems.len())
    };
    format!("{what}\n{}", lines.join("\n"))
}

/// The digests that a value names as `blob:SHA256`.
fn blobs(value: &Value) -> BTreeSet<String> {
    fn walk(value: &Value, found: &mut BTreeSet<String>) {
        match value {
            Value::String(text) => {
                if let Some(hash) = text.strip_prefix("blob:") {
                    found.insert(hash.to_owned());
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
            Value::Object(map) => {
                for (key, item) in map {
                    match item {
                        // Files of a directory have the digest in `blob`.
                        Value::String(hash) if key == "blob" => {
                            found.insert(hash.trim_start_matches("blob:").to_owned());
                        }
                        item => walk(item, found),
                    }
                }
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    walk(value, &mut found);
    found
}

#[cfg(test)]
mod tests {
    use halite_states::tree::MemoryTree;
    use serde_json::json;

    use super::*;

    #[test]
    fn references_to_contents_are_found() {
        let value = json!([{"source": "blob:aa", "files": {"x": {"blob": "bb"}, "y": {"contents": "blob"}}}]);
        assert_eq!(
            blobs(&value),
            BTreeSet::from(["aa".to_owned(), "bb".to_owned()])
        );
    }

    fn source<'a>(tree: &'a MemoryTree, pillar: &'a Value) -> CompileInput<'a> {
        CompileInput {
            tree,
            minion: "a",
            pillar,
            grains: pillar,
            bundle: None,
        }
    }

    #[test]
    fn a_state_of_the_master_is_refused() {
        let pillar = json!({});
        let tree = MemoryTree::new().with("x.sls", "y:\n  kubernetes.api_ready: []\n");
        let error = source(&tree, &pillar)
            .compile(&["x".to_owned()])
            .unwrap_err();
        assert!(
            report(&error).contains("x.sls:2:3: kubernetes.api_ready does not run"),
            "{error:?}"
        );
    }

    #[test]
    fn all_problems_are_reported() {
        let pillar = json!({});
        let tree = MemoryTree::new().with(
            "x.sls",
            "y:\n  file.managde: []\nz:\n  file.managed:\n    - contentz: 1\n",
        );
        let error = report(
            &source(&tree, &pillar)
                .compile(&["x".to_owned()])
                .unwrap_err(),
        );
        assert!(
            error.contains("managed") && error.contains("contents"),
            "{error}"
        );
    }
}
