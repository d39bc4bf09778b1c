//! The recipe: the content of a bundle and the sources of that content. Relative paths in it start
//! at the recipe's own folder.
//!
//! A recipe is read in two steps. The reader of documents reads the YAML by the schema of
//! [`document`], and [`parse`] converts the result into types and checks the rules between them.
//! All problems are in one report, each with its line. The lock is read differently, because only
//! programs write it.
//! `docs/reference/recipe.md` has the keys.

mod chart;
mod document;
mod download;
mod formats;
mod image_exceptions;
mod network;
mod parse;
mod program;
mod reader;
mod repositories;
mod rpm;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use document::{Document, SCHEMA};
use formats::Formats;
use halite_document::{DocumentSource, Problem, schema, source, yaml};
use halite_fetch::ImageRef;
use halite_names::BundleVersion;
use reader::{RecipeReader, redacted};

use crate::error::Error;
use crate::package::made::Made;

pub use chart::{Chart, ChartSource, Values};
pub use download::Download;
pub use network::{HostSettings, Network, Watcher};
pub use repositories::{DebianRelease, Repository};
pub use rpm::{Rpm, YumRepository};

/// Halite's own programs.
pub const BINARIES: &[&str] = &["ctl", "halite-master", "halite-minion"];

/// The content of a bundle, as named by a recipe.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// The bundle's version.
    pub version: BundleVersion,
    /// Kubernetes' version with its `v`.
    pub kubernetes: String,
    /// The images, in the recipe's order.
    pub images: Vec<RecipeImage>,
    /// The status file of dpkg on a bare host.
    pub base: PathBuf,
    /// Packages to take from the repositories, with everything that a bare host lacks for them.
    pub apt: Vec<String>,
    /// The repositories of those packages; if empty, this machine's own package sources.
    pub repositories: Vec<Repository>,
    /// Further Debian releases of hosts, by codename.
    pub releases: BTreeMap<String, DebianRelease>,
    /// Packages that the build makes.
    pub made: Vec<Made>,
    /// Packages for RPM distributions, if the bundle is for them too.
    pub rpm: Option<Rpm>,
    /// Halite's own programs by name: each of [`BINARIES`].
    pub binaries: BTreeMap<String, PathBuf>,
    /// The state tree.
    pub states: PathBuf,
    /// The OpenPGP secret key that signs the apt repository.
    pub signing_key: PathBuf,
    /// The values that clusters made from the bundle may choose, by field of the cluster document;
    /// a field that is not listed may have any value. The bundle must contain everything that any
    /// allowed value needs.
    pub options: BTreeMap<String, Vec<String>>,
    /// Texts in the state tree that look like the name of an image but are not, each with its
    /// reason.
    pub not_images: BTreeMap<String, String>,
    /// The directory in which unchanged parts and downloads are stored between builds.
    pub cache: Option<PathBuf>,
    /// Charts that are rendered into the bundle.
    pub charts: Vec<Chart>,
    /// The path of Helm, which renders them; by default the one on the `PATH`.
    pub helm: Option<PathBuf>,
    /// The programs that come from addresses.
    pub downloads: Vec<Download>,
    /// The settings for reaching the machines from which items come.
    pub network: Network,
    /// The folder of the documentation.
    pub docs: Option<PathBuf>,
    /// The folder with the texts of licences that packages and images do not contain.
    pub licences: Option<PathBuf>,
    /// The file with the inputs from which our own programs were built.
    pub sbom_inputs: Option<PathBuf>,
}

/// An image that goes into a bundle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeImage {
    /// The key under which the state tree finds it; `None` for the site's own images.
    pub component: Option<String>,
    /// Its full name.
    pub reference: ImageRef,
    /// An OCI layout that contains it under that name (annotation
    /// `org.opencontainers.image.ref.name`), or contains no other image. Without a layout, it is
    /// pulled from the registry in its name.
    pub layout: Option<PathBuf>,
    /// Its licence, if the image states none.
    pub licence: Option<String>,
}

impl Recipe {
    /// Reads a recipe.
    ///
    /// # Errors
    /// All problems of the recipe, at once.
    pub fn load(file: &Path) -> Result<Self, Error> {
        let text = fs::read_to_string(file).map_err(Error::file("read", file))?;
        let dir = file.parent().unwrap_or(Path::new("."));
        let (recipe, source) = Self::read(&file.display().to_string(), &text, dir)?;
        let problems = recipe.missing_files(&source);
        if problems.is_empty() {
            Ok(recipe)
        } else {
            Err(Error::Recipe(problems))
        }
    }

    /// Parses the text of a recipe; relative paths start at `dir`, and messages contain `name`.
    /// Reads no file.
    ///
    /// # Errors
    /// All problems of the recipe, at once.
    pub fn parse(name: &str, text: &str, dir: &Path) -> Result<Self, Error> {
        Self::read(name, text, dir).map(|(recipe, _)| recipe)
    }

    fn read(name: &str, text: &str, dir: &Path) -> Result<(Self, DocumentSource), Error> {
        let root =
            yaml::parse(name, text).map_err(|problem| Error::Recipe(vec![redacted(problem)]))?;
        let read = schema::read(name, text, root, &SCHEMA, &Formats);
        let mut problems = read.problems;
        match serde_json::from_value::<Document>(read.value) {
            Ok(document) => {
                let mut reader = RecipeReader::new(&read.source, dir);
                let recipe = parse::read(&mut reader, document);
                problems.append(&mut reader.problems);
                if problems.is_empty() {
                    return Ok((recipe, read.source));
                }
            }
            Err(error) => problems.push(Problem::in_file(name, format!("cannot be used: {error}"))),
        }
        problems.sort();
        problems.dedup();
        Err(Error::Recipe(problems.into_iter().map(redacted).collect()))
    }

    /// The problems for files and folders that the recipe names but that do not exist.
    fn missing_files(&self, source: &DocumentSource) -> Vec<Problem> {
        let mut wanted: Vec<(String, PathBuf)> = vec![
            ("packages.base".into(), self.base.clone()),
            ("states".into(), self.states.join("top.sls")),
        ];
        for (index, image) in self.images.iter().enumerate() {
            let index_file = image
                .layout
                .as_ref()
                .map(|layout| layout.join("index.json"));
            wanted.extend(index_file.map(|file| (format!("images[{index}].layout"), file)));
        }
        wanted.extend(self.network.files());
        for (index, chart) in self.charts.iter().enumerate() {
            wanted.extend(chart.files(&format!("charts[{index}]")));
        }
        let optional = [("helm", &self.helm), ("sbom-inputs", &self.sbom_inputs)];
        wanted.extend(
            optional
                .into_iter()
                .filter_map(|(key, path)| Some((key.to_owned(), path.clone()?))),
        );
        wanted.extend(self.rpm.iter().flat_map(Rpm::files));
        for (index, made) in self.made.iter().enumerate() {
            let place = format!("packages.made[{index}].programs");
            let programs = made.programs.iter();
            wanted.extend(programs.map(|(name, path)| (source::join(&place, name), path.clone())));
        }
        wanted.extend(
            self.binaries
                .iter()
                .map(|(name, path)| (format!("binaries.{name}"), path.clone())),
        );
        wanted.extend(
            self.repositories
                .iter()
                .enumerate()
                .map(|(index, repository)| {
                    (
                        format!("packages.repositories[{index}].key"),
                        repository.key.clone(),
                    )
                }),
        );
        for (codename, release) in &self.releases {
            let place = format!("packages.releases.{codename}");
            wanted.push((format!("{place}.base"), release.base.clone()));
            for (index, repository) in release.repositories.iter().enumerate() {
                let key = format!("{place}.repositories[{index}].key");
                wanted.push((key, repository.key.clone()));
            }
        }
        let fetched = |path: &PathBuf| self.downloads.iter().any(|download| download.path == *path);
        let mut missing: Vec<_> = wanted
            .into_iter()
            .filter(|(_, path)| !path.is_file() && !fetched(path))
            .map(|(key, path)| (key, "file", path))
            .collect();
        for (key, folder) in [("docs", &self.docs), ("licences", &self.licences)] {
            let absent = folder.as_ref().filter(|folder| !folder.is_dir());
            missing.extend(absent.map(|folder| (key.to_owned(), "folder", folder.clone())));
        }
        for (index, made) in self.made.iter().enumerate() {
            let place = format!("packages.made[{index}].files");
            let given = made.files.iter().filter(|(_, from)| !from.exists());
            missing.extend(
                given.map(|(path, from)| (source::join(&place, path), "file", from.clone())),
            );
        }
        let mut problems: Vec<Problem> = missing
            .iter()
            .map(|(key, kind, path)| {
                let message = format!("there is no {kind} {}", path.display());
                redacted(source.problem(key, message))
            })
            .collect();
        let index = self.docs.as_ref().map(|docs| docs.join("index.html"));
        if let Some(index) = index.filter(|index| !index.is_file())
            && index.parent().is_some_and(Path::is_dir)
        {
            let message = format!(
                "there is no file {}; name the folder of finished HTML, `docs` of a release",
                index.display()
            );
            problems.push(redacted(source.problem("docs", message)));
        }
        problems.sort();
        problems
    }

    /// Returns `true` if any item comes from another machine, not counting this machine's own apt.
    pub(crate) fn is_remote(&self) -> bool {
        self.images.iter().any(|image| image.layout.is_none())
            || !self.downloads.is_empty()
            || !self.repositories.is_empty()
            || !self.releases.is_empty()
            || self.charts.iter().any(Chart::is_remote)
            || self.rpm.as_ref().is_some_and(|rpm| !rpm.names.is_empty())
    }

    /// Component to version: the tags of images that do not follow Kubernetes' version, and the
    /// versions of made packages that have no image.
    pub(crate) fn components(&self) -> BTreeMap<String, String> {
        let images = self
            .images
            .iter()
            .filter(|image| image.reference.tag != self.kubernetes);
        let mut found: BTreeMap<_, _> = images
            .filter_map(|image| Some((image.component.clone()?, image.reference.tag.clone())))
            .collect();
        let kubernetes = self.kubernetes.trim_start_matches('v');
        for made in &self.made {
            if made.upstream_version() != kubernetes {
                found.insert(made.package.clone(), made.upstream_version().to_owned());
            }
        }
        found
    }
}
