//! Rewriting of declarations: conflicting ids are reported; `extend`, `exclude`, `use` and `use_in`
//! applied.

use std::collections::HashMap;
use std::rc::Rc;

use halite_document::yaml::NodeKind;
use halite_document::{Problem, did_you_mean};

use super::declaration::{Argument, Declaration};
use super::load::Loaded;
use super::reference::references;
use super::requisite_words::{REQUISITES, is_requisite};
use crate::low::Position;

/// All declarations after rewriting; unchanged ones stay the same objects, so that the memo finds
/// them.
pub(super) fn rewrite(
    loaded: &mut Loaded,
    complete: bool,
    problems: &mut Vec<Problem>,
) -> Vec<Rc<Declaration>> {
    conflicts(&loaded.declarations, problems);
    extend(loaded, complete, problems);
    let mut declarations = std::mem::take(&mut loaded.declarations);
    exclude(loaded, &mut declarations, complete, problems);
    use_arguments(&mut declarations, problems);
    declarations
}

/// Reports ids that are in more than one SLS file of a run.
fn conflicts(declarations: &[Rc<Declaration>], problems: &mut Vec<Problem>) {
    let mut seen: HashMap<&str, (&str, &Position)> = HashMap::new();
    let mut reported: Vec<(&str, &str)> = Vec::new();
    for declaration in declarations {
        let (sls, first) = *seen
            .entry(&declaration.id)
            .or_insert((&declaration.sls, &declaration.id_position));
        if sls != declaration.sls && !reported.contains(&(&declaration.id, &declaration.sls)) {
            reported.push((&declaration.id, &declaration.sls));
            problems.push(
                Problem::at(
                    &declaration.id_position,
                    format!(
                        "the id `{}` is also in the SLS `{sls}` ({}:{}); ids must be unique over all SLS files",
                        declaration.id, first.file, first.line
                    ),
                )
                .hint("rename one (and give it the old id as `name`), or change the other through `extend`"),
            );
        }
    }
}

/// Applies `extend`, as in Salt: lists of requisites are appended; everything else, also `use` and
/// the `_in` forms, is replaced.
fn extend(loaded: &mut Loaded, complete: bool, problems: &mut Vec<Problem>) {
    for extension in std::mem::take(&mut loaded.extensions) {
        let Some(model) = loaded
            .declarations
            .iter()
            .find(|declaration| declaration.id == extension.id)
        else {
            if complete {
                let ids = loaded
                    .declarations
                    .iter()
                    .map(|declaration| declaration.id.as_str());
                let hint = match did_you_mean(&extension.id, ids) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "include the SLS that declares it".to_owned(),
                };
                problems.push(
                    Problem::at(
                        &extension.id_position,
                        format!("there is no id `{}` to extend", extension.id),
                    )
                    .hint(hint),
                );
            }
            continue;
        };
        let (sls, id_position) = (model.sls.clone(), model.id_position.clone());
        let same = loaded.declarations.iter_mut().find(|declaration| {
            declaration.id == extension.id && declaration.state == extension.state
        });
        let Some(declaration) = same else {
            if extension.fun.is_empty() {
                problems.push(
                    Problem::at(
                        &extension.position,
                        format!(
                            "`{}` in SLS `{sls}` has no call of the module `{}`",
                            extension.id, extension.state
                        ),
                    )
                    .hint(format!(
                        "to add one, name its function: `{}.FUNCTION`",
                        extension.state
                    )),
                );
                continue;
            }
            loaded.declarations.push(Rc::new(Declaration {
                id: extension.id,
                sls: extension.sls,
                state: extension.state,
                fun: extension.fun,
                id_position,
                position: extension.position,
                arguments: extension.arguments,
            }));
            continue;
        };
        let declaration = Rc::make_mut(declaration);
        if !extension.fun.is_empty() {
            declaration.fun = extension.fun;
        }
        for argument in extension.arguments {
            let shares = declaration.all(&argument.name).any(|known| known.joined);
            if argument.joined || shares {
                problems.push(
                    Problem::at(
                        &argument.position,
                        format!("`{}` shares its list item with other arguments", argument.name),
                    )
                    .hint("where an argument is extended, each is an item of its own: put `- ` before it"),
                );
            }
            lay_over(&mut declaration.arguments, argument);
        }
    }
}

/// Adds an argument, or replaces it wherever it is given; lists of requisites are appended.
fn lay_over(arguments: &mut Vec<Argument>, argument: Argument) {
    let mut known = arguments
        .iter_mut()
        .filter(|known| known.name == argument.name)
        .peekable();
    if known.peek().is_none() {
        arguments.push(argument);
        return;
    }
    for known in known {
        if REQUISITES.contains(&argument.name.as_str())
            && let (NodeKind::List(items), NodeKind::List(more)) =
                (&mut known.value.kind, &argument.value.kind)
        {
            items.extend(more.iter().cloned());
        } else {
            *known = argument.clone();
        }
    }
}

fn exclude(
    loaded: &Loaded,
    declarations: &mut Vec<Rc<Declaration>>,
    complete: bool,
    problems: &mut Vec<Problem>,
) {
    for exclude in &loaded.excludes {
        let before = declarations.len();
        if exclude.is_sls {
            declarations.retain(|declaration| declaration.sls != exclude.name);
        } else {
            declarations.retain(|declaration| declaration.id != exclude.name);
        }
        let known = exclude.is_sls && loaded.find(&exclude.name).is_some();
        if declarations.len() == before && complete && !known {
            let what = if exclude.is_sls { "SLS" } else { "id" };
            problems.push(
                Problem::at(
                    &exclude.position,
                    format!("there is no {what} `{}` to exclude", exclude.name),
                )
                .hint("it may have been removed or renamed; if so, remove this line"),
            );
        }
    }
}

/// Applies `use`: copies arguments that are not given, except `name`, `names`, `order` and
/// requisites.
fn use_arguments(declarations: &mut [Rc<Declaration>], problems: &mut Vec<Problem>) {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    for (at, declaration) in declarations.iter().enumerate() {
        for (word, from_other) in [("use", true), ("use_in", false)] {
            let all: Vec<_> = declaration
                .all(word)
                .flat_map(|argument| references(argument, problems))
                .collect();
            for reference in all {
                let found: Vec<usize> = declarations
                    .iter()
                    .enumerate()
                    .filter(|(other, candidate)| {
                        *other != at && reference.names_declaration(candidate)
                    })
                    .map(|(other, _)| other)
                    .collect();
                if found.is_empty() {
                    problems.push(Problem::at(
                        &reference.position,
                        format!("`{word}` refers to {reference}, which does not exist"),
                    ));
                }
                pairs.extend(
                    found
                        .into_iter()
                        .map(|other| if from_other { (at, other) } else { (other, at) }),
                );
            }
        }
    }
    if pairs.is_empty() {
        return;
    }
    let own: Vec<Vec<String>> = declarations
        .iter()
        .map(|declaration| {
            let arguments = declaration.arguments.iter();
            arguments.map(|argument| argument.name.clone()).collect()
        })
        .collect();
    for (to, from) in pairs {
        if let Some(argument) = [to, from].iter().find_map(|at| joined(&declarations[*at])) {
            problems.push(
                Problem::at(
                    &argument.position,
                    format!(
                        "`{}` shares its list item with other arguments",
                        argument.name
                    ),
                )
                .hint("with `use`, each argument is an item of its own: put `- ` before it"),
            );
        }
        let given: Vec<Argument> = declarations[from]
            .arguments
            .iter()
            .filter(|argument| {
                !is_requisite(&argument.name)
                    && !matches!(argument.name.as_str(), "name" | "names" | "order")
            })
            .cloned()
            .collect();
        for argument in given {
            let is_own = |name: &String| *name == argument.name;
            if own[to].iter().any(is_own) {
                continue;
            }
            // Of several states that have it, the last counts.
            lay_over(&mut Rc::make_mut(&mut declarations[to]).arguments, argument);
        }
    }
}

fn joined(declaration: &Declaration) -> Option<&Argument> {
    let mut arguments = declaration.arguments.iter();
    arguments.find(|argument| argument.joined)
}
