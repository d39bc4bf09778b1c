//! The recipe: the content of a bundle and the sources of that content. Relative paths in it start
//! at the recipe's own folder.
//!
//! ```yaml
//! format: 1
//! version: 0.1.0
//! kubernetes: v1.36.3
//! images:
//!   - {component: etcd, reference: "registry.k8s.io/etcd:3.6.8-0"}             # pulled, for linux/amd64
//!   - {component: pause, reference: "registry.k8s.io/pause:3.10.2", layout: images/pause}   # from a local OCI layout
//!   - {reference: "registry.example.org/team/app:1.2", licence: MIT}            # a site's own image: no component
//! packages:
//!   base: base/var/lib/dpkg/status      # every host has these packages; missing dependencies are added
//!   apt: [runc, firewalld]
//!   repositories:                         # optional: in place of this machine's own package sources
//!     - {url: "https://mirror.example.org/debian", suite: bookworm, components: [main], key: keys/debian.asc}
//!   rpm: {base: rocky-9-minimal.txt, repositories: […], names: [nginx]}   # optional: see `recipe::Rpm`
//!   made:
//!     - {package: kubectl, version: 1.36.3-1, programs: {kubectl: bin/kubectl}}
//!     - {package: halite-ctl, version: 0.1.0-1, programs: {ctl: bin/ctl}, files: {usr/share: share/halite-ctl}}
//! binaries: {ctl: bin/ctl, halite-master: bin/halite-master, halite-minion: bin/halite-minion}
//!                                         # in place of each path of a program: {url, sha256?, member?, licence?}
//! charts:                                 # optional: rendered by Helm into charts/NAME.yaml
//!   - {name: web, source: charts/web, namespace: web, values: {replicas: 2}}
//!   - {name: db, source: "oci://registry.example.org/charts/db", version: 1.2.3, values: db.yaml}
//! helm: bin/helm                          # optional: default is the one on the PATH
//! states: states/tree
//! signing-key: keys/bundle.asc          # made if it does not exist; store it safely
//! options: {cni.plugin: [flannel]}       # optional: the values that clusters may choose; other fields: any value
//! not-images:                            # optional: texts that a build would report as missing images
//!   - {text: "example.com/a:1", why: an example in a comment}
//! cache: /var/cache/halite              # optional: unchanged parts and downloads are stored here
//! docs: docs                             # optional: a folder of Markdown, which becomes HTML in the bundle
//! licences: licences                     # optional: texts, as go/MODULE@VERSION/FILE, cargo/NAME@VERSION/FILE, common/NAME
//! sbom-inputs: sbom-inputs.json          # optional: the inputs from which the programs of `binaries` were built
//! ```

mod chart;
mod download;
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

use halite_fetch::ImageRef;
use reader::Reader;

use crate::error::Error;
use crate::package::made::Made;

pub use chart::{Chart, ChartSource, Values};
pub use download::Download;
pub use network::{Host, Network, Watcher};
pub use repositories::Repository;
pub use rpm::{Rpm, YumRepository};

/// The components that every cluster needs; a recipe without one of them is refused.
pub const COMPONENTS: &[&str] = &[
    "coredns",
    "etcd",
    "flannel",
    "flannel-cni-plugin",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-proxy",
    "kube-scheduler",
    "pause",
];

/// Halite's own programs.
pub const BINARIES: &[&str] = &["ctl", "halite-master", "halite-minion"];

/// The content of a bundle, as a recipe names it.
#[derive(Debug, Clone, PartialEq)]
pub struct Recipe {
    /// The bundle's version.
    pub version: String,
    /// Kubernetes' version with its `v`.
    pub kubernetes: String,
    /// The images, in the recipe's order.
    pub images: Vec<Image>,
    /// The status file of dpkg on a bare host.
    pub base: PathBuf,
    /// Packages to take from the repositories, with everything that a bare host lacks for them.
    pub apt: Vec<String>,
    /// The repositories of those packages; if empty, this machine's own package sources.
    pub repositories: Vec<Repository>,
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
    /// a field that is not named may have any value. The bundle must contain what each of them
    /// needs.
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
pub struct Image {
    /// The key under which the state tree finds it; `None` for an image of the site's own.
    pub component: Option<String>,
    /// Its full name.
    pub reference: ImageRef,
    /// An OCI layout that contains it by that name (annotation
    /// `org.opencontainers.image.ref.name`), or contains no other image. Without a layout it is
    /// pulled from the registry of its name.
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
        let recipe = Self::parse(
            &file.display().to_string(),
            &text,
            file.parent().unwrap_or(Path::new(".")),
        )?;
        let problems = recipe.missing_files(file);
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
        let value = serde_saphyr::from_str(text)
            .map_err(|error| Error::Recipe(vec![format!("{name}: {error}")]))?;
        let mut reader = Reader::new(name, dir);
        let recipe = parse::read(&mut reader, &value);
        reader.finish().map(|()| recipe)
    }

    fn missing_files(&self, file: &Path) -> Vec<String> {
        let mut wanted: Vec<(String, PathBuf)> = vec![
            ("packages.base".into(), self.base.clone()),
            ("states".into(), self.states.join("top.sls")),
        ];
        for image in &self.images {
            let layout = image.layout.as_ref();
            wanted.extend(layout.map(|layout| {
                (
                    format!("the image {}", image.reference),
                    layout.join("index.json"),
                )
            }));
        }
        wanted.extend(self.network.files());
        wanted.extend(self.charts.iter().flat_map(Chart::files));
        wanted.extend(
            self.helm
                .iter()
                .map(|helm| ("helm".to_owned(), helm.clone())),
        );
        wanted.extend(self.rpm.iter().flat_map(Rpm::files));
        for made in &self.made {
            let programs = made.programs.iter();
            wanted.extend(
                programs.map(|(name, path)| {
                    (format!("{name} of package {}", made.package), path.clone())
                }),
            );
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
        wanted.extend(
            self.sbom_inputs
                .clone()
                .map(|path| ("sbom-inputs".into(), path)),
        );
        let fetched = |path: &PathBuf| self.downloads.iter().any(|download| download.path == *path);
        let mut missing: Vec<_> = wanted
            .into_iter()
            .filter(|(_, path)| !path.is_file() && !fetched(path))
            .collect();
        for (key, folder) in [("docs", &self.docs), ("licences", &self.licences)] {
            let absent = folder.as_ref().filter(|folder| !folder.is_dir());
            missing.extend(absent.map(|folder| (key.to_owned(), folder.clone())));
        }
        for made in &self.made {
            let given = made.files.iter().filter(|(_, from)| !from.exists());
            missing.extend(
                given.map(|(path, from)| {
                    (format!("{path} of package {}", made.package), from.clone())
                }),
            );
        }
        missing
            .iter()
            .map(|(what, path)| {
                format!(
                    "{}: {what}: there is no file {}",
                    file.display(),
                    path.display()
                )
            })
            .collect()
    }

    /// Returns true if any item comes from another machine, other than through this machine's own
    /// apt.
    pub(crate) fn is_remote(&self) -> bool {
        self.images.iter().any(|image| image.layout.is_none())
            || !self.downloads.is_empty()
            || !self.repositories.is_empty()
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
