//! The texts of licences in a bundle: each text once, and a page that maps components to texts.

use std::collections::{BTreeMap, BTreeSet};

use halite_durable::digest;

use crate::html;
use crate::html::escape;

/// The folder of the texts in a bundle.
pub const FOLDER: &str = "licences";

/// A component with a licence.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// Its kind: `Debian package`, `Go module` …
    pub kind: &'static str,
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
}

/// The texts, and the components to which they belong.
#[derive(Debug, Clone, Default)]
pub struct Licences {
    texts: BTreeMap<String, Vec<u8>>,
    /// For each component the file names at its source and the paths here.
    of: BTreeMap<Subject, BTreeSet<(String, String)>>,
    common: BTreeMap<String, Vec<u8>>,
}

impl Licences {
    /// Registers a component that needs a text.
    pub fn subject(&mut self, subject: Subject) {
        self.of.entry(subject).or_default();
    }

    /// Adds a text of a component; `file` is its file name at the source.
    pub fn add(&mut self, subject: Subject, file: &str, text: &[u8]) {
        let path = format!("texts/{}.txt", &digest::sha256(text)[..16]);
        self.texts
            .entry(path.clone())
            .or_insert_with(|| text.to_owned());
        self.of
            .entry(subject)
            .or_default()
            .insert((file.to_owned(), path));
    }

    /// Adds a text to which others refer by its name, as Debian's copyright files refer to
    /// `/usr/share/common-licenses`.
    pub fn common(&mut self, name: &str, text: Vec<u8>) {
        self.common.insert(format!("common/{name}.txt"), text);
    }

    /// The places of a component's texts, for display: paths in the bundle, or a note that there
    /// are none.
    pub fn places(&self, subject: &Subject) -> String {
        let Some(texts) = self.of.get(subject).filter(|texts| !texts.is_empty()) else {
            return "The bundle has no text of its licence.".to_owned();
        };
        let paths: BTreeSet<String> = texts
            .iter()
            .map(|(_, path)| format!("{FOLDER}/{path}"))
            .collect();
        format!(
            "Texts in the bundle: {}.",
            paths.into_iter().collect::<Vec<_>>().join(", ")
        )
    }

    /// The number of components without a text.
    pub fn missing(&self) -> usize {
        self.of.values().filter(|texts| texts.is_empty()).count()
    }

    /// The files of the folder.
    pub fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let mut out: BTreeMap<String, Vec<u8>> = self.texts.clone();
        out.extend(self.common.clone());
        out.insert(
            "index.html".to_owned(),
            html::document("Licences", &self.index()).into_bytes(),
        );
        out
    }

    fn index(&self) -> String {
        let mut body =
            "<h1>Licences</h1>\n<p>The licences of all known components of this bundle; \
                        <code>sbom.spdx.json</code> lists the place of each component.</p>\n"
                .to_owned();
        let without: Vec<&Subject> = self
            .of
            .iter()
            .filter(|(_, texts)| texts.is_empty())
            .map(|(subject, _)| subject)
            .collect();
        if !without.is_empty() {
            body.push_str(&format!(
                "<h2 id=\"missing\">Without a text: {}</h2>\n<ul>\n",
                without.len()
            ));
            for subject in without {
                body.push_str(&format!("<li>{}</li>\n", escape(&subject.to_string())));
            }
            body.push_str("</ul>\n");
        }
        if !self.common.is_empty() {
            body.push_str("<h2>Texts that others refer to</h2>\n<ul>\n");
            for path in self.common.keys() {
                let name = path.trim_start_matches("common/").trim_end_matches(".txt");
                body.push_str(&format!(
                    "<li><a href=\"{}\">{}</a></li>\n",
                    escape(path),
                    escape(name)
                ));
            }
            body.push_str("</ul>\n");
        }
        let kinds: BTreeSet<&str> = self.of.keys().map(|subject| subject.kind).collect();
        for kind in kinds {
            body.push_str(&format!(
                "<h2>{kind}</h2>\n<table>\n<tr><th>name</th><th>version</th><th>texts</th></tr>\n"
            ));
            for (subject, texts) in self.of.iter().filter(|(subject, _)| subject.kind == kind) {
                let links = texts.iter().map(|(file, path)| {
                    format!("<a href=\"{}\">{}</a>", escape(path), escape(file))
                });
                body.push_str(&format!(
                    "<tr><td>{}</td><td>{}</td><td>{}</td></tr>\n",
                    escape(&subject.name),
                    escape(&subject.version),
                    links.collect::<Vec<_>>().join("<br>")
                ));
            }
            body.push_str("</table>\n");
        }
        body
    }
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} {}", self.kind, self.name, self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subject(name: &str) -> Subject {
        Subject {
            kind: "Go module",
            name: name.into(),
            version: "v1".into(),
        }
    }

    #[test]
    fn a_text_is_there_once_and_what_is_missing_is_said() {
        let mut licences = Licences::default();
        licences.add(subject("a"), "LICENSE", b"same");
        licences.add(subject("b"), "COPYING", b"same");
        licences.add(subject("b"), "NOTICE", b"<other>");
        licences.subject(subject("a"));
        licences.subject(subject("none"));
        licences.common("GPL-2", b"gpl".to_vec());
        assert_eq!(licences.missing(), 1);
        assert_eq!(
            licences.places(&subject("none")),
            "The bundle has no text of its licence."
        );
        assert_eq!(licences.places(&subject("b")).matches("texts/").count(), 2);
        let files = licences.files();
        assert_eq!(
            files
                .keys()
                .filter(|path| path.starts_with("texts/"))
                .count(),
            2
        );
        let index = String::from_utf8(files["index.html"].clone()).unwrap();
        assert!(
            index.contains("Without a text: 1") && index.contains("Go module none v1"),
            "{index}"
        );
        let linked: Vec<&str> = index
            .split("href=\"")
            .skip(1)
            .map(|rest| rest.split('"').next().unwrap())
            .collect();
        assert_eq!(linked.len(), 4);
        assert!(
            linked.iter().all(|path| files.contains_key(*path)),
            "{linked:?}"
        );
    }
}
