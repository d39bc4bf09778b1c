//! The reader of a recipe's values, which collects all problems.

use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::download::Download;
use crate::error::Error;

/// Takes typed parts out of a value and remembers each invalid one. An invalid part is replaced by
/// an empty one, so that reading goes on.
pub struct Reader<'a> {
    name: &'a str,
    dir: &'a Path,
    /// The recipe's directory for downloads.
    pub(super) cache: PathBuf,
    /// The files to download.
    pub(super) downloads: Vec<Download>,
    problems: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(name: &'a str, dir: &'a Path) -> Self {
        Self {
            name,
            dir,
            cache: PathBuf::new(),
            downloads: Vec::new(),
            problems: Vec::new(),
        }
    }

    /// Remembers a problem with the value at a path.
    pub fn problem(&mut self, path: &str, message: &str) {
        let path = if path.is_empty() { "the recipe" } else { path };
        self.problems
            .push(format!("{}: {path}: {message}", self.name));
    }

    /// Returns all problems, if there are any.
    pub fn finish(self) -> Result<(), Error> {
        if self.problems.is_empty() {
            Ok(())
        } else {
            Err(Error::Recipe(self.problems))
        }
    }

    /// Reads a map; an unknown key is a problem.
    pub fn map<'v>(
        &mut self,
        path: &str,
        value: Option<&'v Value>,
        known: &[&str],
    ) -> Option<&'v Map<String, Value>> {
        let Some(map) = value.and_then(Value::as_object) else {
            self.problem(path, &format!("must be a map with {}", known.join(", ")));
            return None;
        };
        let place = if path.is_empty() {
            String::new()
        } else {
            format!("{path}.")
        };
        for key in map.keys().filter(|key| !known.contains(&key.as_str())) {
            self.problem(
                &format!("{place}{key}"),
                &format!("is not known; known are {}", known.join(", ")),
            );
        }
        Some(map)
    }

    /// Reads a list; an absent one is a problem.
    pub fn list<'v>(&mut self, path: &str, value: Option<&'v Value>) -> &'v [Value] {
        match value.and_then(Value::as_array) {
            Some(list) => list,
            None => {
                self.problem(path, "must be a list");
                &[]
            }
        }
    }

    /// Reads a text, which must not be empty.
    pub fn text(&mut self, path: &str, value: Option<&Value>) -> String {
        match value {
            Some(Value::String(text)) if !text.is_empty() => return text.clone(),
            None => self.problem(path, "is missing"),
            Some(Value::Number(number)) => {
                self.problem(path, &format!("must be a text: write \"{number}\""))
            }
            Some(_) => self.problem(path, "must be a text that is not empty"),
        }
        String::new()
    }

    /// Reads a list of texts.
    pub fn texts(&mut self, path: &str, value: Option<&Value>) -> Vec<String> {
        let items = self.list(path, value).iter().enumerate();
        items
            .map(|(index, item)| self.text(&format!("{path}[{index}]"), Some(item)))
            .collect()
    }

    /// Reads a path; a relative one starts at the recipe's folder.
    pub fn path(&mut self, path: &str, value: Option<&Value>) -> PathBuf {
        let text = self.text(path, value);
        self.dir.join(text)
    }
}
