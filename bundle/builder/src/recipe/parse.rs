//! The parts of a recipe's document as types, and the rules between them.

use std::collections::BTreeMap;

use halite_document::source::join;
use halite_fetch::ImageRef;
use halite_pillar::bundle_facts;

use super::document::{Binaries, Document, MadePackage};
use super::reader::RecipeReader;
use super::repositories::DebianRelease;
use super::{Network, Recipe, RecipeImage, Rpm, chart, document, image_exceptions, repositories};
use crate::package::made;
use crate::package::made::Made;

/// Converts a recipe's document.
pub(super) fn read(reader: &mut RecipeReader, document: Document) -> Recipe {
    let cache = reader.optional(document.cache.as_ref());
    reader.cache = cache.clone().unwrap_or_default();
    check_components(reader, &document.images);
    let packages = document.packages;
    let mut recipe = Recipe {
        version: document.version,
        kubernetes: document.kubernetes,
        images: images(reader, document.images),
        base: reader.path(&packages.base),
        apt: packages.apt,
        repositories: repositories::read(reader, "packages.repositories", packages.repositories),
        releases: DebianRelease::read_all(reader, packages.releases),
        made: made_packages(reader, packages.made),
        rpm: packages.rpm.map(|rpm| Rpm::read(reader, rpm)),
        binaries: binaries(reader, document.binaries),
        states: reader.path(&document.states),
        signing_key: reader.path(&document.signing_key),
        options: document.options,
        not_images: image_exceptions::read(reader, document.not_images),
        charts: chart::read(reader, document.charts),
        helm: reader.optional(document.helm.as_ref()),
        downloads: Vec::new(),
        network: Network::read(
            reader,
            document.registries,
            document.proxy,
            document.no_proxy,
        ),
        docs: reader.optional(document.docs.as_ref()),
        licences: reader.optional(document.licences.as_ref()),
        sbom_inputs: reader.optional(document.sbom_inputs.as_ref()),
        cache,
    };
    recipe.downloads = std::mem::take(&mut reader.downloads);
    check(reader, &recipe);
    recipe
}

fn images(reader: &mut RecipeReader, listed: Vec<document::ImageDocument>) -> Vec<RecipeImage> {
    let mut found: Vec<RecipeImage> = Vec::new();
    for (index, item) in listed.into_iter().enumerate() {
        let path = format!("images[{index}].reference");
        let reference = match ImageRef::parse(&item.reference) {
            Ok(reference) => reference,
            Err(why) => {
                reader.problem(&path, why.to_string(), "");
                continue;
            }
        };
        // nginx ignores case in the keys of its maps.
        let same = |other: &RecipeImage| {
            other.reference.to_string().to_lowercase() == reference.to_string().to_lowercase()
        };
        if found.iter().any(same) {
            reader.problem(&path, format!("{reference} is listed twice"), "remove one");
        }
        found.push(RecipeImage {
            component: item.component,
            reference,
            layout: reader.optional(item.layout.as_ref()),
            licence: item.licence,
        });
    }
    found
}

/// Checks that each component that every cluster needs exists, and that none is listed twice.
fn check_components(reader: &mut RecipeReader, images: &[document::ImageDocument]) {
    let mut found: Vec<&String> = Vec::new();
    let mut is_complete = reader.source.is_sound("images") || !images.is_empty();
    for (index, image) in images.iter().enumerate() {
        let path = format!("images[{index}].component");
        is_complete &= reader.source.is_sound(&path);
        let Some(component) = &image.component else {
            continue;
        };
        if found.contains(&component) {
            let message = format!("the component {component:?} is listed twice");
            reader.problem(&path, message, "name each component once");
        }
        found.push(component);
    }
    // The component of an image that could not be read may be the missing one.
    if !is_complete {
        return;
    }
    for wanted in bundle_facts::components() {
        if !found.iter().any(|component| *component == wanted) {
            let message = format!("the component {wanted:?} is missing");
            let problem = reader
                .source
                .problem("images", message)
                .hint("no cluster works without it: add its image");
            reader.problems.push(problem);
        }
    }
}

fn binaries(reader: &mut RecipeReader, binaries: Binaries) -> BTreeMap<String, std::path::PathBuf> {
    [
        ("ctl", binaries.ctl),
        ("halite-master", binaries.halite_master),
        ("halite-minion", binaries.halite_minion),
    ]
    .into_iter()
    .map(|(name, program)| {
        let path = format!("binaries.{name}");
        let file = reader.program(&path, program, format!("program {name}"));
        (name.to_owned(), file)
    })
    .collect()
}

fn made_packages(reader: &mut RecipeReader, listed: Vec<MadePackage>) -> Vec<Made> {
    let mut found = Vec::new();
    for (index, item) in listed.into_iter().enumerate() {
        let path = format!("packages.made[{index}]");
        let package = item.package;
        let place = format!("{path}.programs");
        let mut programs = BTreeMap::new();
        for (name, program) in item.programs {
            let why = format!("{name} of package {package}");
            let file = reader.program(&join(&place, &name), program, why);
            programs.insert(name, file);
        }
        let files = item
            .files
            .into_iter()
            .map(|(name, file)| (name, reader.path(&file)))
            .collect();
        let made = Made {
            package,
            version: item.version,
            programs,
            files,
        };
        if reader.source.is_sound(&format!("{path}.package")) {
            for name in made::lacking_programs(&made) {
                let message = format!("the package {} needs the program {name:?}", made.package);
                reader.problem(&place, message, "add it, as a path or an address");
            }
        }
        found.push(made);
    }
    found
}

/// Checks the rules between the parts of a recipe.
fn check(reader: &mut RecipeReader, recipe: &Recipe) {
    let mut names: Vec<&str> = Vec::new();
    let made = recipe.made.iter().enumerate().map(|(index, made)| {
        let path = format!("packages.made[{index}].package");
        (path, made.package.as_str())
    });
    let apt = recipe
        .apt
        .iter()
        .enumerate()
        .map(|(index, name)| (format!("packages.apt[{index}]"), name.as_str()));
    for (path, name) in made.chain(apt) {
        if names.contains(&name) {
            reader.problem(&path, format!("{name:?} is listed twice"), "remove one");
        }
        names.push(name);
    }
    if recipe.is_remote() && recipe.cache.is_none() {
        reader.problem(
            "cache",
            "is missing",
            "name a folder: items from other machines are stored there",
        );
    }
}
