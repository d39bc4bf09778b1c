//! The artifacts that one state names.

use serde_json::{Map, Value};

use super::{Artifact, CompiledState, scan};

/// An artifact that a state names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedArtifact {
    /// The artifact.
    pub artifact: Artifact,
    /// The place in the state.
    pub what: String,
}

/// The prefix of the path of a file of the bundle.
const FILE: &str = "bundle://";

/// Finds everything that a state names.
pub fn state(state: &CompiledState) -> Vec<NamedArtifact> {
    // The name of a command may be a script; its file and line are named, too.
    let name = match state.name.split_once('\n') {
        Some((first, _)) => format!("{first} …"),
        None => state.name.clone(),
    };
    let mut walk = Walk {
        at: format!("{} {name}", state.function),
        found: Vec::new(),
    };
    match state.function.as_str() {
        "pkg.installed" => walk.packages(state),
        "image.present" => walk.image(&state.name, ""),
        "kubernetes.manifest" | "kubernetes.object" => {
            let documents = ["documents", "manifest"]
                .into_iter()
                .filter_map(|name| state.args.get(name));
            for document in documents {
                walk.documents(document);
            }
        }
        _ => {
            walk.text(&state.name, "");
            for (name, value) in &state.args {
                walk.value(name, value, name, None);
            }
        }
    }
    walk.found.dedup();
    walk.found
}

struct Walk {
    /// The current place: the state, and the object in it.
    at: String,
    found: Vec<NamedArtifact>,
}

impl Walk {
    fn add(&mut self, artifact: Artifact, path: &str) {
        let what = if path.is_empty() {
            self.at.clone()
        } else {
            format!("{}, {path}", self.at)
        };
        self.found.push(NamedArtifact { artifact, what });
    }

    fn image(&mut self, reference: &str, path: &str) {
        self.add(
            Artifact::Image {
                reference: reference.to_owned(),
            },
            path,
        );
    }

    /// Adds packages. `pkgs` is a list of names and of `{name: version}`; without it the name of
    /// the state is the package.
    fn packages(&mut self, state: &CompiledState) {
        let text = |value: &Value| match value {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            _ => None,
        };
        let mut add = |name: &str, version: Option<String>| {
            self.add(
                Artifact::Package {
                    name: name.to_owned(),
                    version,
                },
                "",
            );
        };
        let Some(Value::Array(items)) = state.args.get("pkgs") else {
            return add(&state.name, state.args.get("version").and_then(text));
        };
        for item in items {
            match item {
                Value::String(name) => add(name, None),
                Value::Object(pairs) => pairs
                    .iter()
                    .for_each(|(name, version)| add(name, text(version))),
                _ => {}
            }
        }
    }

    /// Searches Kubernetes objects. The place of each artifact names its object.
    fn documents(&mut self, value: &Value) {
        match value {
            Value::Array(documents) => documents
                .iter()
                .for_each(|document| self.documents(document)),
            Value::Object(object) => {
                if let Some(Value::Array(items)) = object.get("items").filter(|_| is_list(object)) {
                    return items.iter().for_each(|item| self.documents(item));
                }
                let outer = self.at.clone();
                self.at = format!("{outer}, {}", title(object));
                self.value("", value, "", None);
                self.at = outer;
            }
            _ => {}
        }
    }

    /// Searches a value at a path; `key` is the nearest key above it, `flag` the argument before it
    /// in a list.
    fn value(&mut self, key: &str, value: &Value, path: &str, flag: Option<&str>) {
        match value {
            Value::String(text) => {
                let named = flag.unwrap_or(key);
                if names_an_image(named) && scan::could_be_image(text)
                    || is_image_field(key) && !text.is_empty()
                {
                    self.image(text, path);
                } else if !is_prose(key) && !names_a_registry(named) {
                    self.text(text, path);
                }
            }
            Value::Array(items) => {
                let mut before = None;
                for (index, item) in items.iter().enumerate() {
                    self.value(key, item, &format!("{path}[{index}]"), before);
                    // `--helper-image`, `busybox:1`: the argument after the flag is its value.
                    before = item
                        .as_str()
                        .filter(|text| text.starts_with('-') && !text.contains('='));
                }
            }
            Value::Object(map) => self.map(map, path),
            _ => {}
        }
    }

    fn map(&mut self, map: &Map<String, Value>, path: &str) {
        // A variable's name indicates the meaning of its value.
        let variable = map
            .get("name")
            .and_then(Value::as_str)
            .filter(|_| map.contains_key("value"));
        self.composed(map, path);
        for (key, item) in map {
            let place = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            match (key.as_str(), item) {
                // Volumes of the kind `image`, and the schema of a field with that name.
                ("image", Value::Object(source)) => {
                    for (key, item) in source {
                        let name = if matches!(key.as_str(), "reference" | "default") {
                            "image"
                        } else {
                            key
                        };
                        self.value(name, item, &format!("{place}.{key}"), None);
                    }
                    self.composed(source, &place);
                }
                ("value", Value::String(_)) if variable.is_some() => {
                    self.value(key, item, &place, variable);
                }
                _ => self.value(key, item, &place, None),
            }
        }
    }

    fn composed(&mut self, map: &Map<String, Value>, path: &str) {
        if let Some(image) = composed(map) {
            self.image(&image, path);
        }
    }

    /// Searches a text: a document within the document, or any other text that may contain names of
    /// images.
    fn text(&mut self, text: &str, path: &str) {
        if let Some(documents) = embedded(text) {
            for document in &documents {
                match document {
                    Value::Object(object) if object.contains_key("apiVersion") => {
                        self.documents(document)
                    }
                    _ => self.value("", document, path, None),
                }
            }
            return;
        }
        for image in scan::images(text) {
            self.image(image, path);
        }
        for (at, _) in text.match_indices(FILE) {
            let rest = &text[at + FILE.len()..];
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "._-/+~".contains(c)))
                .unwrap_or(rest.len());
            let file = rest[..end].trim_end_matches(['/', '.']);
            self.add(
                Artifact::File {
                    path: file.to_owned(),
                },
                path,
            );
        }
        for line in text.lines() {
            // An image without a registry can only be recognised by the key on its line.
            if let Some((name, value)) = line.split_once(['=', ':']) {
                let quotes = |c: char| c.is_whitespace() || "\"',".contains(c);
                let value = value.split_whitespace().next().unwrap_or_default();
                let (name, value) = (name.trim_matches(quotes), value.trim_matches(quotes));
                if names_an_image(name)
                    && scan::could_be_image(value)
                    && scan::images(value).is_empty()
                {
                    self.image(value, path);
                }
            }
        }
    }
}

/// Returns `true` if a name indicates that an image follows: `--helper-image`, `RELATED_IMAGE`,
/// `sandbox_image`, and the sandbox of containerd's `pinned_images`.
fn names_an_image(name: &str) -> bool {
    let last = name
        .rsplit(['.', ' '])
        .next()
        .unwrap_or_default()
        .trim_matches(['"', '\''])
        .to_ascii_lowercase();
    last.ends_with("image") || last.contains("_image_") || last == "sandbox"
}

/// Returns `true` for the image field of a container.
fn is_image_field(key: &str) -> bool {
    key == "image"
}

/// Returns `true` if a name indicates a registry, which alone is not an image.
fn names_a_registry(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    ["repository", "registry", "mirror"]
        .iter()
        .any(|end| name.ends_with(end))
}

/// Returns `true` for fields whose text is only for readers.
fn is_prose(key: &str) -> bool {
    key == "description"
}

/// Joins an image whose parts are in separate fields, as in values of Helm charts: `{registry,
/// repository, tag}`.
fn composed(map: &Map<String, Value>) -> Option<String> {
    let part = |name: &str| match map.get(name) {
        Some(Value::String(text)) => Some(text.clone()).filter(|text| !text.is_empty()),
        Some(Value::Number(number)) => Some(number.to_string()),
        _ => None,
    };
    let repository = part("repository")?;
    let (tag, digest) = (part("tag"), part("digest"));
    if tag.is_none() && digest.is_none() {
        return None;
    }
    let mut name =
        part("registry").map_or_else(String::new, |registry| format!("{registry}/")) + &repository;
    if let Some(tag) = tag {
        name = format!("{name}:{tag}");
    }
    if let Some(digest) = digest {
        name = format!("{name}@{digest}");
    }
    Some(name)
}

fn is_list(object: &Map<String, Value>) -> bool {
    object
        .get("kind")
        .and_then(Value::as_str)
        .is_some_and(|kind| kind.ends_with("List"))
}

/// The title of an object: `DaemonSet kube-system/kube-proxy`.
fn title(object: &Map<String, Value>) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let metadata = object.get("metadata");
    let (namespace, name) = (
        text(metadata.and_then(|metadata| metadata.get("namespace"))),
        text(metadata.and_then(|metadata| metadata.get("name"))),
    );
    let kind = text(object.get("kind"));
    if namespace.is_empty() {
        format!("{kind} {name}")
    } else {
        format!("{kind} {namespace}/{name}")
    }
}

/// The documents in a text of several lines that is YAML or JSON, if they contain more than text.
fn embedded(text: &str) -> Option<Vec<Value>> {
    if !(text.contains('\n') && text.contains(':') || text.trim_start().starts_with(['{', '['])) {
        return None;
    }
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).ok()?;
    documents
        .iter()
        .any(|document| document.is_object() || document.is_array())
        .then_some(documents)
}
