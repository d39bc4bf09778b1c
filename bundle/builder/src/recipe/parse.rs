//! The parts of a recipe's document, and the rules between them.

use std::collections::BTreeMap;
use std::path::PathBuf;

use halite_fetch::ImageRef;
use halite_manifest::bundles::check_version;

use super::reader::Reader;
use super::{
    BINARIES, COMPONENTS, Image, Network, Recipe, Rpm, chart, image_exceptions, repositories,
};
use crate::package::made;
use crate::package::made::Made;

/// The keys of a recipe.
const KEYS: &[&str] = &[
    "format",
    "version",
    "kubernetes",
    "images",
    "packages",
    "binaries",
    "states",
    "signing-key",
    "options",
    image_exceptions::KEY,
    "cache",
    "charts",
    "helm",
    "registries",
    "proxy",
    "no-proxy",
    "docs",
    "licences",
    "sbom-inputs",
];

/// Reads a recipe from its parsed YAML.
pub(super) fn read(reader: &mut Reader, value: &serde_json::Value) -> Recipe {
    let empty = serde_json::Map::new();
    let top = reader.map("", Some(value), KEYS).unwrap_or(&empty);
    if top.get("format").and_then(serde_json::Value::as_u64) != Some(1) {
        reader.problem("format", "must be 1");
    }
    let cache = top
        .get("cache")
        .map(|cache| reader.path("cache", Some(cache)));
    reader.cache = cache.clone().unwrap_or_default();
    let keys = ["base", "apt", "repositories", "made", "rpm"];
    let packages = reader
        .map("packages", top.get("packages"), &keys)
        .unwrap_or(&empty);
    let binaries = reader
        .map("binaries", top.get("binaries"), BINARIES)
        .unwrap_or(&empty);
    let (images, components) = images(reader, top.get("images"));
    let mut recipe = Recipe {
        version: reader.text("version", top.get("version")),
        kubernetes: reader.text("kubernetes", top.get("kubernetes")),
        images,
        base: reader.path("packages.base", packages.get("base")),
        apt: reader.texts("packages.apt", packages.get("apt")),
        repositories: repositories::read(reader, packages.get("repositories")),
        made: made_packages(reader, packages.get("made")),
        rpm: packages
            .get("rpm")
            .and_then(|value| Rpm::read(reader, value)),
        binaries: BINARIES
            .iter()
            .map(|name| {
                let path = format!("binaries.{name}");
                (
                    (*name).to_owned(),
                    reader.program(&path, binaries.get(*name), &format!("program {name}")),
                )
            })
            .collect(),
        states: reader.path("states", top.get("states")),
        signing_key: reader.path("signing-key", top.get("signing-key")),
        options: options(reader, top.get("options")),
        not_images: image_exceptions::read(reader, top.get(image_exceptions::KEY)),
        cache,
        charts: chart::read(reader, top.get("charts")),
        helm: top.get("helm").map(|helm| reader.path("helm", Some(helm))),
        downloads: Vec::new(),
        network: Network::read(
            reader,
            top.get("registries"),
            top.get("proxy"),
            top.get("no-proxy"),
        ),
        docs: optional(reader, top, "docs"),
        licences: optional(reader, top, "licences"),
        sbom_inputs: optional(reader, top, "sbom-inputs"),
    };
    recipe.downloads = std::mem::take(&mut reader.downloads);
    check(reader, &recipe, &components);
    recipe
}

fn optional(
    reader: &mut Reader,
    top: &serde_json::Map<String, serde_json::Value>,
    key: &str,
) -> Option<PathBuf> {
    top.get(key).map(|value| reader.path(key, Some(value)))
}

/// Reads the images, and the component of each entry of the list, also of an entry with another
/// problem.
fn images(reader: &mut Reader, value: Option<&serde_json::Value>) -> (Vec<Image>, Vec<String>) {
    let (mut found, mut components) = (Vec::new(), Vec::new());
    for (index, item) in reader.list("images", value).iter().enumerate() {
        let path = format!("images[{index}]");
        let Some(map) = reader.map(
            &path,
            Some(item),
            &["component", "reference", "layout", "licence"],
        ) else {
            continue;
        };
        let given = |key: &str| map.get(key).map(|value| (format!("{path}.{key}"), value));
        let component = given("component").map(|(path, value)| reader.text(&path, Some(value)));
        let text = reader.text(&format!("{path}.reference"), map.get("reference"));
        let layout = given("layout").map(|(path, value)| reader.path(&path, Some(value)));
        let licence = given("licence").map(|(path, value)| reader.text(&path, Some(value)));
        components.extend(component.clone());
        if text.is_empty() {
            continue;
        }
        match ImageRef::parse(&text) {
            Ok(reference) => found.push(Image {
                component,
                reference,
                layout,
                licence,
            }),
            Err(why) => reader.problem(&format!("{path}.reference"), &why),
        }
    }
    (found, components)
}

/// Reads field to values; the declaration's own types define which fields and values exist.
fn options(
    reader: &mut Reader,
    value: Option<&serde_json::Value>,
) -> BTreeMap<String, Vec<String>> {
    let Some(value) = value else {
        return BTreeMap::new();
    };
    let Some(map) = value.as_object() else {
        reader.problem(
            "options",
            "must map fields of the cluster document to lists of values",
        );
        return BTreeMap::new();
    };
    let mut found = BTreeMap::new();
    for (field, values) in map {
        let path = format!("options.{field}");
        let mut allowed = Vec::new();
        for (index, value) in reader.list(&path, Some(values)).iter().enumerate() {
            match value {
                serde_json::Value::Bool(value) => allowed.push(value.to_string()),
                value => allowed.push(reader.text(&format!("{path}[{index}]"), Some(value))),
            }
        }
        found.insert(field.clone(), allowed);
    }
    found
}

fn made_packages(reader: &mut Reader, value: Option<&serde_json::Value>) -> Vec<Made> {
    let mut found = Vec::new();
    for (index, item) in reader.list("packages.made", value).iter().enumerate() {
        let path = format!("packages.made[{index}]");
        let Some(map) = reader.map(
            &path,
            Some(item),
            &["package", "version", "programs", "files"],
        ) else {
            continue;
        };
        let package = reader.text(&format!("{path}.package"), map.get("package"));
        let version = reader.text(&format!("{path}.version"), map.get("version"));
        let place = format!("{path}.programs");
        let mut programs = BTreeMap::new();
        match map.get("programs").and_then(serde_json::Value::as_object) {
            Some(listed) => {
                for (name, file) in listed {
                    let why = format!("{name} of package {package}");
                    let file = reader.program(&format!("{place}.{name}"), Some(file), &why);
                    programs.insert(name.clone(), file);
                }
            }
            None => reader.problem(&place, "must map program names to files"),
        }
        let mut files = BTreeMap::new();
        match map.get("files").map(serde_json::Value::as_object) {
            Some(Some(listed)) => {
                let place = format!("{path}.files");
                for (name, file) in listed {
                    files.insert(
                        name.clone(),
                        reader.path(&format!("{place}.{name}"), Some(file)),
                    );
                }
            }
            Some(None) => reader.problem(
                &format!("{path}.files"),
                "must map paths in the package to files or folders",
            ),
            None => {}
        }
        let made = Made {
            package,
            version,
            programs,
            files,
        };
        for why in made::problems(&made) {
            reader.problem(&path, &why);
        }
        found.push(made);
    }
    found
}

/// Checks the rules between the parts of a recipe.
fn check(reader: &mut Reader, recipe: &Recipe, components: &[String]) {
    if let Some(why) = check_version(&recipe.version)
        .err()
        .filter(|_| !recipe.version.is_empty())
    {
        reader.problem("version", &why);
    }
    for twice in repeated(components.iter().filter(|component| !component.is_empty())) {
        reader.problem("images", &format!("the component {twice:?} is there twice"));
    }
    // nginx ignores case in the keys of its maps.
    for twice in repeated(
        recipe
            .images
            .iter()
            .map(|image| image.reference.to_string().to_lowercase()),
    ) {
        reader.problem("images", &format!("{twice} is there twice"));
    }
    for wanted in COMPONENTS
        .iter()
        .filter(|wanted| !components.iter().any(|component| component == *wanted))
    {
        reader.problem(
            "images",
            &format!("the component {wanted:?} is missing: no cluster works without it"),
        );
    }
    let made = recipe.made.iter().map(|made| &made.package);
    for twice in repeated(made.chain(&recipe.apt).filter(|name| !name.is_empty())) {
        reader.problem("packages", &format!("{twice:?} is listed twice"));
    }
    if recipe.is_remote() && recipe.cache.is_none() {
        reader.problem(
            "cache",
            "is missing: what comes from other machines is kept there",
        );
    }
    for name in recipe
        .apt
        .iter()
        .filter(|name| !made::is_package_name(name))
    {
        reader.problem("packages.apt", &format!("{name:?} is no package name"));
    }
}

/// The items that occur more than once.
fn repeated<T: Ord + Clone>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut items: Vec<T> = items.collect();
    items.sort_unstable();
    let mut twice: Vec<T> = items
        .windows(2)
        .filter(|pair| pair[0] == pair[1])
        .map(|pair| pair[0].clone())
        .collect();
    twice.dedup();
    twice
}
