//! `ctl local`: applies states on this host, without a master.

use std::path::Path;

use anyhow::Context as _;
use halite_api::{LocalOutcome, RenderedLow, to_value};
use halite_states::tree::DirTree;
use serde::Deserialize;
use serde_json::{Value, json};

use super::targets::exit_code;
use crate::cli::{Applying, Local, LocalApply};
use crate::compile::{CompileInput, report};
use crate::minion::Minion;
use crate::output::returns::View;
use crate::output::{Screen, returns, yaml};

/// The grains with the name of the host.
#[derive(Default, Deserialize)]
struct HostName {
    host: Option<String>,
    id: Option<String>,
}

/// Runs `ctl local`.
///
/// # Errors
/// The states do not compile, or the minion program cannot be run.
pub async fn run(command: Local, screen: &mut Screen) -> anyhow::Result<u8> {
    let (args, applying) = match command {
        Local::Apply(LocalApply { states, applying }) => (states, Some(applying)),
        Local::Render(states) => (states, None),
    };
    let minion = Minion::find(args.minion.as_deref());
    let grains = minion.grains().await?;
    let pillar = args
        .pillar
        .as_deref()
        .map_or_else(|| Ok(json!({})), pillar)?;
    let host = HostName::deserialize(&grains).unwrap_or_default();
    let host = host.host.or(host.id);
    let host = host.unwrap_or_else(|| "localhost".to_owned());
    let id = args.id.clone().unwrap_or(host);
    let tree = DirTree::new().root(&args.tree);
    let source = CompileInput {
        tree: &tree,
        minion: &id,
        pillar: &pillar,
        grains: &grains,
        bundle: None,
    };
    let compiled = source
        .compile(&args.sls)
        .map_err(|problems| anyhow::anyhow!("{}", report(&problems)))?;
    for warning in &compiled.warnings {
        screen.note(format!("warning: {warning}"));
    }
    let Some(applying) = applying else {
        let text = yaml(&serde_json::to_value(&compiled.low)?)?;
        let low = RenderedLow { low: compiled.low };
        screen.answer(&to_value(&low), |_| text)?;
        return Ok(0);
    };
    let blobs = tempfile::tempdir().context("cannot make a temporary directory")?;
    source.lay_out(&compiled, blobs.path())?;
    let done = minion
        .apply(&compiled.low, blobs.path(), applying.test)
        .await?;
    show(&id, &done, &applying, screen)
}

fn show(
    id: &str,
    done: &halite_states::low::RunReturn,
    applying: &Applying,
    screen: &mut Screen,
) -> anyhow::Result<u8> {
    let view = View {
        test: applying.test,
        verbose: applying.verbose,
    };
    let document = LocalOutcome {
        minion: id.to_owned(),
        changed: done.changed(),
        failed: done.failed(),
        states: done.states.clone(),
    };
    screen.answer(&to_value(&document), |paint| {
        returns::run(id, done, view, paint)
    })?;
    let retcode = i32::from(!done.succeeded());
    Ok(exit_code(retcode, done.changed(), applying))
}

fn pillar(path: &Path) -> anyhow::Result<Value> {
    let file = path.display().to_string();
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {file}"))?;
    let node = halite_secrets::yaml::parse(&file, &text)
        .map_err(|problem| anyhow::anyhow!("{problem}"))?;
    match node.to_json() {
        Value::Null => Ok(json!({})),
        value if value.is_object() => Ok(value),
        _ => anyhow::bail!("{file} must be a mapping"),
    }
}
