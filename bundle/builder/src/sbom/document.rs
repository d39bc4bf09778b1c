//! The composition of the SPDX document.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use halite_bundle::sbom::check::covers;
use halite_bundle::sbom::spdx::{DOCUMENT, Document, File, Package, UNKNOWN, id};
use halite_durable::digest;
use halite_fetch::ImageRef;
use halite_fetch::apt_index::Control;
use halite_manifest::Manifest;

use super::contents::{Contents, Installed, Program};
use super::crates::Inputs;
use super::golang::{Go, Module};
use super::licence::Others;
use super::own::{CONTAINS, DEPENDS_ON, DESCRIBES, library, to_bytes};
use super::{crates, licence, own, purl};
use crate::error::Error;
use crate::licences::{Licences, Subject};

const DEBIAN: &str = "Debian package";
const ALPINE: &str = "Alpine package";
const GO: &str = "Go module";
const RUST: &str = "Rust crate";

/// The module name of Go's standard library.
const STANDARD_LIBRARY: &str = "stdlib";

/// The domain of the maintainer of made packages, in their control files.
const OWN: &str = "@halite.invalid";

/// All inputs of the document.
pub struct Material<'a> {
    /// The bundle's directory.
    pub dir: &'a Path,
    /// The bundle's manifest so far.
    pub manifest: &'a Manifest,
    /// Its images.
    pub images: Vec<SbomImage>,
    /// The packages of its apt repository.
    pub debs: Vec<Deb>,
    /// The inputs from which our own programs were built.
    pub inputs: Inputs,
    /// Texts of licences from the recipe's folder, by `go/MODULE@VERSION` and `cargo/NAME@VERSION`.
    pub texts: BTreeMap<String, Vec<(String, Vec<u8>)>>,
}

/// An image.
pub struct SbomImage {
    /// Its full name.
    pub reference: ImageRef,
    /// The digest of its manifest.
    pub digest: String,
    /// The contents of its layers.
    pub contents: Contents,
    /// The reasons why some layers could not be read.
    pub unread: Vec<String>,
}

/// A package of the apt repository.
pub struct Deb {
    /// Its path in the bundle.
    pub path: String,
    /// Its SHA-256.
    pub sha256: String,
    /// Its control fields.
    pub control: Control,
    /// The contents of its archive.
    pub contents: Contents,
}

/// Returns the document and the texts of licences; `licences` are the texts so far.
pub fn write(material: &Material<'_>, licences: Licences) -> Result<(Vec<u8>, Licences), Error> {
    let manifest = material.manifest;
    let name = format!("halite-{}", manifest.version);
    let document = Document::new(&name, &manifest.built);
    let bundle = id("Bundle", &manifest.version);
    let mut writer = Writer {
        material,
        document,
        bundle,
        others: Others::new(),
        licences,
        there: BTreeSet::new(),
    };
    writer.all()?;
    let Writer {
        mut document,
        others,
        licences,
        ..
    } = writer;
    document.licences(
        others
            .into_iter()
            .map(|(id, other)| (id, other.name, other.text)),
    );
    document.packages.sort_by(|a, b| a.id.cmp(&b.id));
    // The files are added last, because the texts of licences are also files.
    Ok((
        finish(document, material.dir, manifest, &licences)?,
        licences,
    ))
}

struct Writer<'a> {
    material: &'a Material<'a>,
    document: Document,
    bundle: String,
    others: Others,
    licences: Licences,
    /// The ids of the packages in the document.
    there: BTreeSet<String>,
}

impl Writer<'_> {
    fn all(&mut self) -> Result<(), Error> {
        let manifest = self.material.manifest;
        let bundle = Package::new(
            "Bundle",
            &manifest.version,
            "halite-bundle",
            &manifest.version,
        );
        let bundle = bundle.purl(purl::generic("halite-bundle", &manifest.version));
        self.document.packages.push(bundle);
        self.document
            .relate(DOCUMENT, DESCRIBES, &self.bundle.clone());
        for (name, sha256) in crates::digests(self.material.dir)? {
            self.own(&name, &sha256);
        }
        for deb in &self.material.debs {
            self.deb(deb);
        }
        for deb in &self.material.debs {
            self.needs(deb);
        }
        for image in &self.material.images {
            self.image(image);
        }
        Ok(())
    }

    /// Adds a package, if the document does not have it yet.
    fn add(&mut self, package: Package) -> String {
        let id = package.id.clone();
        if self.there.insert(id.clone()) {
            self.document.packages.push(package);
        }
        id
    }

    /// Adds one of our own programs, with its crates.
    fn own(&mut self, name: &str, sha256: &str) {
        let material = self.material;
        let Some(program) = material.inputs.programs.get(name) else {
            let mut package = Package::new("Program", sha256, name, "")
                .sha256(sha256)
                .purpose("APPLICATION");
            package.package_file_name = format!("bin/{name}");
            package.comment = "The recipe does not say what it was built from.".to_owned();
            let id = self.add(package);
            self.document.relate(&self.bundle.clone(), CONTAINS, &id);
            return;
        };
        let mut package = own::program(name, sha256, program);
        package.package_file_name = format!("bin/{name}");
        let id = self.add(package);
        self.document.relate(&self.bundle.clone(), CONTAINS, &id);
        for key in &program.crates {
            let Some(((name, version), part)) =
                crates::split(key).zip(material.inputs.crates.get(key))
            else {
                continue;
            };
            let subject = self.subject(RUST, name, version, &format!("cargo/{name}@{version}"));
            let mut package = library(key, name, version, part);
            package.license_comments = self.licences.places(&subject);
            let part = self.add(package);
            self.document.relate(&id, DEPENDS_ON, &part);
        }
    }

    fn deb(&mut self, deb: &Deb) {
        let field = |name: &str| deb.control.field(name);
        let (name, version, architecture) =
            (field("Package"), field("Version"), field("Architecture"));
        let maintainer = field("Maintainer").to_lowercase();
        let vendor = match maintainer {
            of if of.contains(OWN) => "halite",
            of if of.contains("ubuntu") => "ubuntu",
            _ => "debian",
        };
        let mut package = Package::new("Deb", &deb_key(name, version, architecture), name, version)
            .purl(purl::installed("deb", vendor, name, version, architecture))
            .sha256(&deb.sha256);
        package.package_file_name.clone_from(&deb.path);
        let copyright = deb.contents.copyright(name).or_else(|| {
            let other = deb.contents.same.get(name)?;
            self.material
                .debs
                .iter()
                .find_map(|deb| deb.contents.copyright(other))
        });
        self.licensed(&mut package, DEBIAN, copyright);
        let id = self.add(package);
        self.document.relate(&self.bundle.clone(), CONTAINS, &id);
        self.programs(&id, &deb.contents);
    }

    /// Sets the licence of a package from its copyright file.
    fn licensed(&mut self, package: &mut Package, kind: &'static str, copyright: Option<&str>) {
        let subject = Subject {
            kind,
            name: package.name.clone(),
            version: package.version_info.clone(),
        };
        self.licences.subject(subject.clone());
        if let Some(text) = copyright {
            self.licences
                .add(subject.clone(), "copyright", text.as_bytes());
            if let Some(expression) = licence::of_debian(text, &mut self.others) {
                package.license_declared = expression;
            }
        }
        package.license_comments = self.licences.places(&subject);
    }

    fn needs(&mut self, deb: &Deb) {
        let key = |deb: &Deb| {
            let field = |name: &str| deb.control.field(name);
            id(
                "Deb",
                &deb_key(field("Package"), field("Version"), field("Architecture")),
            )
        };
        let one = key(deb);
        let needs: BTreeSet<&str> = deb.control.needs().into_iter().collect();
        let others = self
            .material
            .debs
            .iter()
            .filter(|other| needs.contains(other.control.field("Package")));
        for other in others.map(key).filter(|other| *other != one) {
            self.document.relate(&one, DEPENDS_ON, &other);
        }
    }

    fn image(&mut self, image: &SbomImage) {
        let reference = &image.reference;
        let mut package = Package::new(
            "Image",
            &reference.to_string(),
            &reference.repository,
            &reference.tag,
        )
        .purl(purl::image(reference, &image.digest))
        .sha256(image.digest.trim_start_matches("sha256:"))
        .purpose("CONTAINER");
        package.comment = image.unread.join("\n");
        let id = self.add(package);
        self.document.relate(&self.bundle.clone(), CONTAINS, &id);
        for found in image.contents.installed() {
            let part = self.installed(found, &image.contents);
            self.document.relate(&id, CONTAINS, &part);
        }
        self.programs(&id, &image.contents);
    }

    /// Adds a package that is installed in an image.
    fn installed(&mut self, found: &Installed, contents: &Contents) -> String {
        let Installed {
            kind,
            name,
            version,
            architecture,
            licence,
        } = found;
        let (label, vendor, subject) = if kind == "deb" {
            ("Deb", "debian", DEBIAN)
        } else {
            ("Apk", "alpine", ALPINE)
        };
        let mut package = Package::new(label, &deb_key(name, version, architecture), name, version)
            .purl(purl::installed(kind, vendor, name, version, architecture));
        self.licensed(&mut package, subject, contents.copyright(name));
        if !licence.is_empty() {
            // Some of these words are not SPDX licence names.
            package.comment = format!("Its record says that its licence is {licence}.");
        }
        self.add(package)
    }

    /// Adds the programs in an image or package.
    fn programs(&mut self, holder: &str, contents: &Contents) {
        for (path, program) in &contents.programs {
            let id = self.program(path, program);
            self.document.relate(holder, CONTAINS, &id);
        }
    }

    fn program(&mut self, path: &str, program: &Program) -> String {
        let name = path.rsplit('/').next().unwrap_or(path);
        let Some(go) = &program.go else {
            let mut package = Package::new("Program", &program.sha256, name, "")
                .sha256(&program.sha256)
                .purpose("APPLICATION");
            package.comment =
                "A static program that does not say what it was built from.".to_owned();
            return self.add(package);
        };
        let owner = owner(go);
        let version = owner.map_or("", |module| module.version.as_str());
        let version = if version == "(devel)" { "" } else { version };
        let mut package = Package::new("Program", &program.sha256, name, version)
            .sha256(&program.sha256)
            .purpose("APPLICATION");
        package.comment = format!("The Go package {}.", go.package);
        if let Some(module) = owner {
            package = package.purl(purl::module(module, &go.package));
            let (declared, comments) = self.module_licence(module);
            package.license_declared = declared;
            package.license_comments = comments;
        }
        let id = self.add(package);
        let library = Module {
            path: STANDARD_LIBRARY.to_owned(),
            version: go.version.clone(),
            sum: String::new(),
        };
        for module in go
            .modules
            .iter()
            .chain([&library])
            .filter(|module| !module.version.is_empty())
        {
            let part = self.module(module);
            self.document.relate(&id, DEPENDS_ON, &part);
        }
        id
    }

    fn module(&mut self, module: &Module) -> String {
        let mut package = Package::new(
            "Go",
            &format!("{}@{}", module.path, module.version),
            &module.path,
            &module.version,
        )
        .purl(purl::module(module, ""))
        .purpose("LIBRARY");
        if !self.there.contains(&package.id) {
            (package.license_declared, package.license_comments) = self.module_licence(module);
        }
        self.add(package)
    }

    /// Identifies a module's licence by its text, since modules do not name it; returns the licence
    /// and the place of the text.
    fn module_licence(&mut self, module: &Module) -> (String, String) {
        let key = format!("go/{}@{}", module.path, module.version);
        let subject = self.subject(GO, &module.path, &module.version, &key);
        let texts = self.material.texts.get(&key).into_iter().flatten();
        let told: BTreeSet<&str> = texts
            .filter_map(|(_, text)| licence::of_text(&String::from_utf8_lossy(text)))
            .collect();
        let declared = match told.len() {
            0 => UNKNOWN.to_owned(),
            _ => told.into_iter().collect::<Vec<_>>().join(" AND "),
        };
        (declared, self.licences.places(&subject))
    }

    /// Registers a component with the texts that were gathered under a key.
    fn subject(&mut self, kind: &'static str, name: &str, version: &str, key: &str) -> Subject {
        let subject = Subject {
            kind,
            name: name.to_owned(),
            version: version.to_owned(),
        };
        self.licences.subject(subject.clone());
        for (file, text) in self.material.texts.get(key).into_iter().flatten() {
            self.licences.add(subject.clone(), file, text);
        }
        subject
    }
}

/// The module that contains the package of a program.
fn owner(go: &Go) -> Option<&Module> {
    let inside = |module: &&Module| {
        go.package
            .strip_prefix(&module.path)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    go.modules
        .iter()
        .chain(&go.main)
        .filter(inside)
        .max_by_key(|module| module.path.len())
}

fn deb_key(name: &str, version: &str, architecture: &str) -> String {
    format!("{name}_{version}_{architecture}")
}

/// Adds the files that are not packages, and names the document after the digest of its content.
fn finish(
    mut document: Document,
    dir: &Path,
    manifest: &Manifest,
    licences: &Licences,
) -> Result<Vec<u8>, Error> {
    let packaged: BTreeSet<String> = document
        .packages
        .iter()
        .map(|package| package.package_file_name.clone())
        .collect();
    let open = manifest
        .files
        .iter()
        .filter(|(path, _)| covers(path) && !packaged.contains(*path));
    let mut digests: BTreeMap<String, (String, String)> = BTreeMap::new();
    for (path, entry) in open {
        let content = std::fs::read(dir.join(path)).map_err(Error::file("read", dir.join(path)))?;
        digests.insert(path.clone(), (sha1(&content), entry.sha256.clone()));
    }
    for (path, content) in licences.files() {
        let path = format!("{}/{path}", crate::licences::FOLDER);
        digests.insert(path, (sha1(&content), digest::sha256(&content)));
    }
    for (path, (sha1, sha256)) in digests {
        let file = File::new(&path, &sha1, &sha256);
        // SPDX allows no contained files in a package whose files are not analysed, so the document
        // describes the file itself.
        document.relate(DOCUMENT, DESCRIBES, &file.id.clone());
        document.files.push(file);
    }
    let unnamed = to_bytes(&document)?;
    document.name_after(&manifest.version, &digest::sha256(&unnamed));
    to_bytes(&document)
}

fn sha1(content: &[u8]) -> String {
    digest::hex(ring::digest::digest(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY, content).as_ref())
}
