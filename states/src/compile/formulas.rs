//! Formula roots: directories with published formulas, which operators do not edit. There, an
//! argument that Salt ignores is a warning; everywhere else it is an error, because it is mostly a
//! typing mistake.

use halite_document::Problem;
use halite_document::yaml::{NodeKind, parse};

use crate::low::Position;
use crate::tree::Tree;

/// Files that declare formula roots, each a list of directories beside it.
const FILES: [&str; 2] = ["formulas.yaml", "custom/formulas.yaml"];

/// The declared formula roots of a state tree.
#[derive(Debug, Default)]
pub(super) struct FormulaRoots {
    /// Each with a slash at its end.
    directories: Vec<String>,
    problems: Vec<Problem>,
}

impl FormulaRoots {
    pub(super) fn new(tree: &dyn Tree) -> Self {
        let mut roots = Self::default();
        for path in FILES {
            if let Some(text) = tree.read(path) {
                roots.read(path, &String::from_utf8_lossy(&text));
            }
        }
        roots
    }

    fn read(&mut self, path: &str, text: &str) {
        let node = match parse(path, text) {
            Ok(node) => node,
            Err(problem) => return self.problems.push(problem.excerpt_from(text)),
        };
        let refused = |position| {
            Problem::at(position, "formula roots are a list of directories")
                .hint("write `- nginx` for the directory `nginx` beside this file")
                .excerpt_from(text)
        };
        let NodeKind::List(items) = &node.kind else {
            if !matches!(node.kind, NodeKind::Null) {
                self.problems.push(refused(&node.position));
            }
            return;
        };
        let beside = path.strip_suffix("formulas.yaml").unwrap_or_default();
        for item in items {
            match item.text().map(|text| text.trim_matches('/')) {
                Some(name) if crate::tree::is_plain_path(name) => {
                    self.directories.push(format!("{beside}{name}/"));
                }
                _ => self.problems.push(refused(&item.position)),
            }
        }
    }

    /// Problems of the files that declare them.
    pub(super) fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Tests whether a place is in a published formula.
    pub(super) fn contain(&self, position: &Position) -> bool {
        let within = |root: &String| position.file.starts_with(root.as_str());
        self.directories.iter().any(within)
    }
}
