//! Loading of SLS files: rendered, parsed, and `include` followed, depth first, each file once.

use std::collections::BTreeMap;
use std::rc::Rc;

use halite_document::yaml::{Node, NodeKind};
use halite_document::{Problem, did_you_mean};
use serde_json::{Value, json};

use super::declaration;
use super::declaration::{Declaration, Declared, Exclude, Extension};
use super::memo::Memo;
use super::reserved;
use super::reserved::Origin;
use super::top::Assignment;
use crate::low::Position;
use crate::target::pattern::Glob;
use crate::template::{Purpose, Rendered, Renderer};
use crate::tree::Tree;

/// One SLS file.
#[derive(Debug)]
pub(super) struct Sls {
    /// Dotted name.
    pub name: String,
    /// Its text.
    pub rendered: Rc<Rendered>,
    declared: Rc<Declared>,
}

/// All SLS files of a run; included files come before the files that include them.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    pub sls: Vec<Sls>,
    pub declarations: Vec<Rc<Declaration>>,
    /// Those of an including file before those of the files that it includes, as in Salt: a later
    /// one replaces what an earlier one says.
    pub extensions: Vec<Extension>,
    pub excludes: Vec<Exclude>,
    /// Names of all SLS files, each before the files that it includes: the order of Salt's high
    /// data.
    pub high_order: Vec<String>,
}

impl Loaded {
    /// The SLS with this name.
    pub(super) fn find(&self, name: &str) -> Option<&Sls> {
        self.sls.iter().find(|sls| sls.name == name)
    }

    /// Tests whether `outer` includes `inner`, directly or indirectly.
    pub(super) fn includes(&self, outer: &str, inner: &str) -> bool {
        let mut seen = vec![outer];
        let mut at = 0;
        while let Some(name) = seen.get(at).copied() {
            at += 1;
            for included in self
                .find(name)
                .map_or(&[][..], |sls| &sls.declared.includes)
            {
                if included == inner {
                    return true;
                }
                if !seen.contains(&included.as_str()) {
                    seen.push(included);
                }
            }
        }
        false
    }
}

/// Paths of SLS files by dotted name.
pub(super) type Names = BTreeMap<String, String>;

/// The SLS files of a tree; `a/b.sls` wins over `a/b/init.sls`.
pub(super) fn names(tree: &dyn Tree) -> Names {
    tree.list()
        .into_iter()
        .filter_map(|path| sls_name(&path).map(|name| (name, path)))
        .collect()
}

pub(super) fn load(
    renderer: &Renderer,
    names: &Names,
    memo: Option<&Memo>,
    (assigned, origin): (Vec<Assignment>, Origin),
    problems: &mut Vec<Problem>,
) -> Loaded {
    let mut loader = Loader {
        renderer,
        names,
        memo,
        visited: Vec::new(),
        loaded: Loaded::default(),
        problems,
    };
    for assignment in assigned {
        for name in loader.named(&assignment.sls, &assignment.position) {
            if loader.may_be_named(&name, origin, &assignment.position) {
                loader.visit(&name);
            }
        }
    }
    loader.loaded
}

/// The dotted name of an SLS file: `a/b.sls` and `a/b/init.sls` are `a.b`.
fn sls_name(path: &str) -> Option<String> {
    let path = path.strip_suffix(".sls")?;
    let path = path.strip_suffix("/init").unwrap_or(path);
    (!path.contains('.') && path != "top").then(|| path.replace('/', "."))
}

struct Loader<'a> {
    renderer: &'a Renderer,
    names: &'a Names,
    memo: Option<&'a Memo>,
    visited: Vec<String>,
    loaded: Loaded,
    problems: &'a mut Vec<Problem>,
}

impl Loader<'_> {
    /// The names that a name or pattern matches.
    fn named(&mut self, wanted: &str, position: &Position) -> Vec<String> {
        if self.names.contains_key(wanted) {
            return vec![wanted.to_owned()];
        }
        if Glob::is_pattern(wanted)
            && let Ok(glob) = Glob::new(wanted)
        {
            let found: Vec<String> = self
                .names
                .keys()
                .filter(|name| glob.is_match(name))
                .cloned()
                .collect();
            if !found.is_empty() {
                return found;
            }
        }
        let problem = Problem::at(position, format!("there is no SLS `{wanted}`"));
        let path = wanted.replace('.', "/");
        let hint = match did_you_mean(wanted, self.names.keys().map(String::as_str)) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the state tree needs {path}.sls or {path}/init.sls"),
        };
        self.problems.push(problem.hint(hint));
        Vec::new()
    }

    /// Tests whether an SLS may be named at this position, and reports it if not.
    fn may_be_named(&mut self, name: &str, origin: Origin, position: &Position) -> bool {
        let source = self.path(name).and_then(|path| self.renderer.source(&path));
        let checked = reserved::check(name, &source.unwrap_or_default(), origin, position);
        checked
            .map_err(|problem| self.problems.push(problem))
            .is_ok()
    }

    fn visit(&mut self, name: &str) {
        if self.visited.iter().any(|known| known == name) {
            return;
        }
        self.visited.push(name.to_owned());
        let Some(path) = self.path(name) else { return };
        let rendered = match self
            .renderer
            .render(Purpose::Sls, &path, &variables(name, &path))
        {
            Ok(rendered) => rendered,
            Err(problem) => return self.problems.push(problem),
        };
        let declared = match self.memo.and_then(|memo| memo.declared(&rendered)) {
            Some(declared) => declared,
            None => match self.declared(name, &path, &rendered) {
                Ok(declared) => declared,
                Err(problem) => return self.problems.push(problem),
            },
        };
        self.loaded.high_order.push(name.to_owned());
        self.loaded
            .extensions
            .extend(declared.extensions.iter().cloned());
        for included in &declared.includes {
            self.visit(included);
        }
        self.loaded
            .declarations
            .extend(declared.declarations.iter().cloned());
        self.loaded
            .excludes
            .extend(declared.excludes.iter().cloned());
        self.loaded.sls.push(Sls {
            name: name.to_owned(),
            rendered,
            declared,
        });
    }

    fn declared(
        &mut self,
        name: &str,
        path: &str,
        rendered: &Rc<Rendered>,
    ) -> Result<Rc<Declared>, Problem> {
        let node = rendered.node()?;
        let before = self.problems.len();
        let mut declared = Declared::default();
        if let Some(include) = node.get("include") {
            declared.includes = self.includes(name, path, include);
        }
        declaration::read(name, &node, &mut declared, self.problems);
        let declared = Rc::new(declared);
        if let Some(memo) = self.memo.filter(|_| self.problems.len() == before) {
            memo.store_declared(rendered, &declared);
        }
        Ok(declared)
    }

    fn path(&self, name: &str) -> Option<String> {
        self.names.get(name).cloned()
    }

    fn includes(&mut self, name: &str, path: &str, include: &Node) -> Vec<String> {
        let NodeKind::List(items) = &include.kind else {
            self.problems.push(
                Problem::at(
                    &include.position,
                    format!(
                        "`include` must be a list, but it is {}",
                        include.kind_name()
                    ),
                )
                .hint("write `include:` and below it one `- name` a line"),
            );
            return Vec::new();
        };
        let mut found: Vec<String> = Vec::new();
        for item in items {
            // `- base: name` names the environment; there is only one.
            let item = match item.entries() {
                [(environment, value)] if environment.raw == "base" => value,
                _ => item,
            };
            let Some(text) = item.text() else {
                self.problems.push(Problem::at(
                    &item.position,
                    format!(
                        "an include must be the name of an SLS, but it is {}",
                        item.kind_name()
                    ),
                ));
                continue;
            };
            let Some(absolute) = absolute(text, name, path.ends_with("/init.sls")) else {
                self.problems.push(Problem::at(
                    &item.position,
                    format!("`{text}` leads out of the state tree"),
                ));
                continue;
            };
            for named in self.named(&absolute, &item.position) {
                if !self.may_be_named(&named, Origin::Include(name), &item.position) {
                    continue;
                }
                if named != name && !found.contains(&named) {
                    found.push(named);
                }
            }
        }
        found
    }
}

/// The absolute name of an include: `.x` is in the folder of the including file, each further dot
/// one folder up.
fn absolute(text: &str, from: &str, is_init: bool) -> Option<String> {
    let rest = text.trim_start_matches('.');
    let dots = text.len() - rest.len();
    if dots == 0 {
        return Some(text.to_owned());
    }
    let mut parts: Vec<&str> = from.split('.').collect();
    let up = if is_init { dots - 1 } else { dots };
    if up > parts.len() {
        return None;
    }
    parts.truncate(parts.len() - up);
    if !rest.is_empty() {
        parts.push(rest);
    }
    Some(parts.join("."))
}

/// Salt's variables that name the SLS itself.
pub(super) fn variables(name: &str, path: &str) -> BTreeMap<String, Value> {
    let folder = if path.ends_with("/init.sls") {
        name.replace('.', "/")
    } else {
        name.rsplit_once('.')
            .map_or_else(String::new, |(folder, _)| folder.replace('.', "/"))
    };
    BTreeMap::from([
        ("sls".to_owned(), json!(name)),
        ("slspath".to_owned(), json!(folder)),
        ("sls_path".to_owned(), json!(folder.replace('/', "_"))),
        ("slsdotpath".to_owned(), json!(folder.replace('/', "."))),
        ("slscolonpath".to_owned(), json!(folder.replace('/', ":"))),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_relative_includes() {
        assert_eq!(sls_name("a/b/init.sls").as_deref(), Some("a.b"));
        assert_eq!(sls_name("a/b.sls").as_deref(), Some("a.b"));
        assert_eq!(sls_name("a/b.jinja"), None);
        assert_eq!(sls_name("top.sls"), None);
        for (text, from, init, wanted) in [
            (".c", "a.b", false, Some("a.c")),
            (".c", "a.b", true, Some("a.b.c")),
            ("..c", "a.b", true, Some("a.c")),
            ("..c", "a.b", false, Some("c")),
            ("...c", "a.b", false, None),
            ("x.y", "a", false, Some("x.y")),
        ] {
            assert_eq!(
                absolute(text, from, init).as_deref(),
                wanted,
                "{text} from {from}"
            );
        }
    }
}
