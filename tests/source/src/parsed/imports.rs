//! The rule for imports: one module path per line, in three groups: `std`, other crates, this
//! crate.

use proc_macro2::Span;
use syn::{File, Item, ItemUse, UseTree, Visibility};

use crate::tree::Text;

/// The group of an import, in the order of the groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    Std,
    External,
    Own,
}

fn group(item: &ItemUse) -> Option<Group> {
    let first = match &item.tree {
        UseTree::Path(path) => path.ident.to_string(),
        UseTree::Name(name) => name.ident.to_string(),
        UseTree::Rename(rename) => rename.ident.to_string(),
        UseTree::Glob(_) | UseTree::Group(_) => return None,
    };
    Some(match first.as_str() {
        "std" | "core" | "alloc" => Group::Std,
        "crate" | "self" | "super" => Group::Own,
        _ => Group::External,
    })
}

/// Returns whether braces hold anything but names.
fn is_nested(tree: &UseTree) -> bool {
    match tree {
        UseTree::Path(path) => is_nested(&path.tree),
        UseTree::Group(group) => group
            .items
            .iter()
            .any(|item| matches!(item, UseTree::Path(_) | UseTree::Group(_))),
        UseTree::Name(_) | UseTree::Rename(_) | UseTree::Glob(_) => false,
    }
}

fn line(span: Span) -> usize {
    span.start().line
}

/// The findings in the items of a file or of a module in it.
fn check(path: &str, text: &[&str], items: &[Item], findings: &mut Vec<String>) {
    let mut before: Option<(Group, usize)> = None;
    for item in items {
        match item {
            Item::Use(item) => {
                let first = item.attrs.first();
                let start = line(first.map_or(item.use_token.span, |a| a.pound_token.span));
                if is_nested(&item.tree) {
                    findings.push(format!("{path}:{start}: one module path per line"));
                }
                let Some(group) = group(item) else {
                    findings.push(format!("{path}:{start}: begin with a crate"));
                    continue;
                };
                // Re-exports are grouped by meaning.
                if !matches!(item.vis, Visibility::Inherited) {
                    before = None;
                    continue;
                }
                if let Some((last, end)) = before {
                    let blank = text[end..start - 1]
                        .iter()
                        .any(|line| line.trim().is_empty());
                    if group < last {
                        findings.push(format!("{path}:{start}: {group:?} comes before {last:?}"));
                    } else if (group != last) != blank {
                        findings.push(format!(
                            "{path}:{start}: one blank line between groups, and none within one"
                        ));
                    }
                }
                before = Some((group, item.semi_token.span.end().line));
            }
            Item::Mod(module) => {
                before = None;
                if let Some((_, items)) = &module.content {
                    check(path, text, items, findings);
                }
            }
            _ => before = None,
        }
    }
}

/// The findings in a file.
pub(super) fn findings(file: &Text, parsed: &File) -> Vec<String> {
    let lines: Vec<&str> = file.text.lines().collect();
    let mut findings = Vec::new();
    check(&file.path, &lines, &parsed.items, &mut findings);
    findings
}
