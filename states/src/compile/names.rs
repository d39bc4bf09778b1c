//! `names`: one call for each name, with the arguments that only this name is given.

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};

use super::declaration::{Argument, Declaration};
use super::spelling;

/// One entry for each name: its position, the name, and the arguments with the name's overrides.
pub(super) fn expand(
    declaration: &Declaration,
    problems: &mut Vec<Problem>,
) -> Vec<(usize, String, Vec<Argument>)> {
    let arguments: Vec<Argument> = declaration
        .arguments
        .iter()
        .filter(|argument| argument.name != "names")
        .cloned()
        .collect();
    let mut items = Vec::new();
    let given = declaration.all("names").map(|argument| &argument.value);
    let given: Vec<&Node> = given
        .filter(|names| !matches!(names.kind, NodeKind::Null))
        .collect();
    if given.is_empty() {
        return vec![(0, name(declaration, problems), arguments)];
    }
    for names in given {
        let NodeKind::List(more) = &names.kind else {
            problems.push(Problem::at(
                &names.position,
                format!("`names` must be a list, but it is {}", names.kind_name()),
            ));
            return Vec::new();
        };
        items.extend(more);
    }
    let mut expanded: Vec<(usize, String, Vec<Argument>)> = Vec::new();
    for item in items {
        if item.is_scalar() {
            spelling::check("`names`", item, problems);
        } else if let [(name, _)] = item.entries() {
            spelling::check("`names`", name, problems);
        }
        let (name, given) = match (item.entries(), item.text()) {
            ([(name, overrides)], _) => (name.raw.clone(), Some(overrides)),
            (_, Some(text)) => (text.to_owned(), None),
            _ => {
                problems.push(
                    Problem::at(
                        &item.position,
                        format!(
                            "an entry of `names` must be a text, but it is {}",
                            item.kind_name()
                        ),
                    )
                    .hint("an entry with arguments of its own is `- NAME:` with a list below it"),
                );
                continue;
            }
        };
        if expanded.iter().any(|(_, known, _)| *known == name) {
            continue;
        }
        let overrides = overrides(&name, given, problems);
        // Salt replaces every argument, requisites too.
        let own: Vec<Argument> = arguments
            .iter()
            .filter(|argument| argument.name != "name")
            .filter(|argument| overrides.iter().all(|other| other.name != argument.name))
            .chain(&overrides)
            .cloned()
            .collect();
        expanded.push((expanded.len() + 1, name, own));
    }
    expanded
}

/// The arguments that an entry of `names` gives to its name alone.
fn overrides(name: &str, given: Option<&Node>, problems: &mut Vec<Problem>) -> Vec<Argument> {
    let items = match given.map(|given| (&given.kind, given)) {
        None | Some((NodeKind::Null, _)) => return Vec::new(),
        Some((NodeKind::List(items), _)) => items,
        Some((_, given)) => {
            problems.push(
                Problem::at(
                    &given.position,
                    format!(
                        "the arguments of `{name}` in `names` must be a list, but they are {}",
                        given.kind_name()
                    ),
                )
                .hint("put `- ` before each argument"),
            );
            return Vec::new();
        }
    };
    let mut overrides: Vec<Argument> = Vec::new();
    for item in items {
        if item.entries().is_empty() {
            problems.push(Problem::at(
                &item.position,
                format!(
                    "an argument of `{name}` in `names` must be `- argument: value`, but this is {}",
                    item.kind_name()
                ),
            ));
        }
        overrides.extend(item.entries().iter().map(|(key, value)| Argument {
            name: key.raw.clone(),
            value: value.clone(),
            position: key.position.clone(),
            joined: false,
        }));
    }
    overrides
}

fn name(declaration: &Declaration, problems: &mut Vec<Problem>) -> String {
    let Some(argument) = declaration.argument("name") else {
        return declaration.id.clone();
    };
    spelling::check("`name`", &argument.value, problems);
    match (&argument.value.kind, argument.value.text()) {
        (NodeKind::Null, _) => declaration.id.clone(),
        (_, Some(text)) => text.to_owned(),
        _ => {
            problems.push(
                Problem::at(
                    &argument.value.position,
                    format!(
                        "`name` must be a text, but it is {}",
                        argument.value.kind_name()
                    ),
                )
                .hint("use `names` for several names"),
            );
            declaration.id.clone()
        }
    }
}
