//! `ctl config`: checks and shows the operator's documents, without a master.

mod wizard;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context as _;
use halite_api::{DeclarationCheck, DeclarationProblem, DisplayedDeclaration, to_value};
use halite_document::Problem;
use halite_manifest::manifest;
use halite_pillar::bundle_facts::BundleFacts;
use halite_pillar::declaration::Declaration;
use halite_pillar::load::{Text, Texts, load};
use halite_pillar::sealed::SealedSecrets;
use halite_pillar::validate::{Context, warnings};
use halite_pillar::{example, schema};

use crate::FAILED;
use crate::cli::{Config, ConfigPath};
use crate::compile::report;
use crate::output::{Format, Screen, count, yaml};
use crate::site::Site;

/// Runs `ctl config`.
///
/// # Errors
/// A file cannot be read or shown.
pub fn run(command: Config, screen: &mut Screen) -> anyhow::Result<u8> {
    match command {
        Config::Example => {
            // The comments matter, and only JSON cannot have them.
            if screen.format() == Format::Json {
                let node = halite_secrets::yaml::parse("example", example::CLUSTER);
                screen.document(
                    &node
                        .map_err(|problem| anyhow::anyhow!("{problem}"))?
                        .to_json(),
                )?;
            } else {
                screen.text(example::CLUSTER)?;
            }
            Ok(0)
        }
        Config::Schema { kind } => {
            let schema = if kind == "node" {
                schema::node()
            } else {
                schema::cluster()
            };
            let text = serde_json::to_string_pretty(schema)? + "\n";
            screen.answer(schema, |_| text)?;
            Ok(0)
        }
        Config::Wizard(args) => wizard::run(&args, screen),
        Config::Validate(path) => validate(&path, screen),
        Config::Show(path) => show(&path, screen),
    }
}

fn read(path: &ConfigPath) -> anyhow::Result<Result<Declaration, Vec<Problem>>> {
    let bundle = bundle(path)?;
    let texts = match texts(&path.path) {
        Ok(texts) => texts,
        Err(problems) => return Ok(Err(problems)),
    };
    Ok(load(
        &texts,
        &Context {
            bundle: bundle.as_ref(),
            host: None,
        },
    ))
}

/// The bundle to check against: the named one, or else the one in use, if it is readable.
fn bundle(path: &ConfigPath) -> anyhow::Result<Option<BundleFacts>> {
    if let Some(named) = &path.bundle {
        return facts(named).map(Some);
    }
    used(&Site {
        config: path.path.clone(),
        ..Site::here()
    })
}

/// The facts about the bundle that a site uses, if it is installed here.
///
/// # Errors
/// Its manifest cannot be read.
pub(super) fn used(site: &Site) -> anyhow::Result<Option<BundleFacts>> {
    // Problems of the document are reported when it is loaded.
    let in_use = site
        .in_use()
        .ok()
        .flatten()
        .filter(|used| used.path.join(manifest::FILE).is_file());
    let facts = in_use.map(|used| facts(&used.path)).transpose()?;
    Ok(facts.map(|facts| BundleFacts {
        site: site.others(),
        ..facts
    }))
}

/// Reads the documents of a directory, or one cluster document.
fn texts(path: &Path) -> Result<Texts, Vec<Problem>> {
    if path.is_dir() {
        return Texts::from_dir(path);
    }
    let file = path.display().to_string();
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(Texts {
            cluster: Text { file, text },
            // The values may be in the encrypted file beside it, which is not read either.
            sealed: Some(SealedSecrets::default()),
            ..Texts::default()
        }),
        Err(error) => Err(vec![Problem::in_file(
            file,
            format!("cannot read it: {error}"),
        )]),
    }
}

/// Reads the facts about a bundle in a directory or an ISO. Its signature is not checked: the
/// command that uses the bundle does that.
///
/// # Errors
/// The bundle's manifest cannot be read.
fn facts(bundle: &Path) -> anyhow::Result<BundleFacts> {
    if !bundle.is_dir() {
        let manifest = halite_bundle::inspect(bundle)?.to_bytes()?;
        let (text, path) = (String::from_utf8(manifest)?, bundle.display().to_string());
        return BundleFacts::from_manifest(&text, &path)
            .with_context(|| format!("cannot use the manifest of {path}"));
    }
    let manifest = bundle.join(manifest::FILE);
    let text = std::fs::read_to_string(&manifest)
        .with_context(|| format!("cannot read {}", manifest.display()))?;
    let path = bundle.display().to_string();
    BundleFacts::from_manifest(&text, &path)
        .with_context(|| format!("cannot use {} as a manifest", manifest.display()))
}

fn validate(path: &ConfigPath, screen: &mut Screen) -> anyhow::Result<u8> {
    let (problems, warned, nodes) = match read(path)? {
        Ok(declaration) => (Vec::new(), warnings(&declaration), declaration.nodes.len()),
        Err(problems) => (problems, Vec::new(), 0),
    };
    let document = DeclarationCheck {
        valid: problems.is_empty(),
        problems: problems.iter().map(problem).collect(),
        warnings: warned.iter().map(problem).collect(),
    };
    screen.answer(&to_value(&document), |paint| {
        if problems.is_empty() {
            let mut text: String = (warned.iter())
                .map(|warning| format!("{} {warning}\n", paint.notable("!")))
                .collect();
            text.push_str(&format!(
                "{} {} is valid ({})\n",
                paint.good("✓"),
                path.path.display(),
                count(nodes, "node")
            ));
            text
        } else {
            report(&problems) + "\n"
        }
    })?;
    Ok(if problems.is_empty() { 0 } else { FAILED })
}

/// A problem in a document.
fn problem(problem: &Problem) -> DeclarationProblem {
    let place = |number: u32| (number > 0).then_some(number);
    let text = |text: &String| (!text.is_empty()).then(|| text.clone());
    DeclarationProblem {
        file: problem.file.clone(),
        line: place(problem.line),
        column: place(problem.column),
        path: text(&problem.path),
        message: problem.message.clone(),
        hint: text(&problem.hint),
    }
}

fn show(path: &ConfigPath, screen: &mut Screen) -> anyhow::Result<u8> {
    let declaration = read(path)?.map_err(|problems| anyhow::anyhow!("{}", report(&problems)))?;
    let mut nodes = BTreeMap::new();
    for (name, node) in &declaration.nodes {
        nodes.insert(name.to_string(), serde_json::to_value(&node.value)?);
    }
    let custom = Some(&declaration.custom).filter(|custom| !custom.is_empty());
    let document = DisplayedDeclaration {
        cluster: serde_json::to_value(&declaration.cluster.value)?,
        nodes,
        custom: custom.map(serde_json::to_value).transpose()?,
    };
    let text = yaml(&serde_json::to_value(&document)?)?;
    screen.answer(&to_value(&document), |_| text)?;
    Ok(0)
}

#[cfg(test)]
#[path = "config_tests.rs"]
mod tests;
