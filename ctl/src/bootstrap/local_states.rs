//! States of the bundle that are compiled and applied on this host, without a master.

use std::path::Path;

use anyhow::Context as _;
use halite_document::Problem;
use halite_states::low::RunReturn;
use halite_states::tree::DirTree;

use super::declaration::Declared;
use super::{Preparation, authority};
use crate::compile::{CompileInput, report};
use crate::paths::CONFIG;

/// The bundle's state tree, and the operator's own states in `custom`.
fn tree(bundle: &Path) -> DirTree {
    DirTree::new()
        .mount("custom", Path::new(CONFIG).join("custom"))
        .bundle(bundle)
}

/// Compiles the named SLS files, or without names the highstate, and applies them with the bundle's
/// minion program; with `test`, only predicts.
///
/// # Errors
/// The states do not compile, or the minion program fails. Failed states are in the return.
pub async fn apply(
    preparation: &Preparation,
    declared: &Declared,
    sls: &[&str],
    test: bool,
) -> anyhow::Result<RunReturn> {
    let authority = authority::Authority::read(Path::new(authority::DIRECTORY));
    let pillar = declared.view(&authority.pki(), &preparation.name)?;
    let tree = tree(&preparation.bundle);
    let source = CompileInput {
        tree: &tree,
        minion: &preparation.name,
        pillar: &pillar,
        grains: &preparation.grains,
        bundle: Some((&preparation.bundle, &preparation.manifest)),
    };
    let names: Vec<String> = sls.iter().map(ToString::to_string).collect();
    let mut compiled = source
        .compile(&names)
        .map_err(|problems| not_compiled(&tree, problems))?;
    let blobs = temporary()?;
    source.lay_out(&compiled, blobs.path())?;
    authority.fill(&mut compiled.low, declared, &preparation.name)?;
    preparation
        .minion
        .apply(&compiled.low, blobs.path(), test)
        .await
}

/// Names the owner of states that do not compile: the operator can only repair the site's own
/// states.
pub(super) fn not_compiled(tree: &DirTree, problems: Vec<Problem>) -> anyhow::Error {
    let own = |problem: &Problem| tree.mounted_file(&problem.file).is_some();
    let message = match problems.iter().filter(|problem| own(problem)).count() {
        0 => "the states of the bundle do not compile for this host".to_owned(),
        count if count == problems.len() => {
            format!(
                "your own states ({CONFIG}/custom) do not compile for this host; nothing was changed"
            )
        }
        _ => format!(
            "states of the bundle and your own ({CONFIG}/custom) do not compile for this host"
        ),
    };
    anyhow::anyhow!("{}", report(&tree.with_disk_paths(problems))).context(message)
}

fn temporary() -> anyhow::Result<tempfile::TempDir> {
    tempfile::tempdir().context("cannot make a temporary directory")
}
