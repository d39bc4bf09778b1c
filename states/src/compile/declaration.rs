//! The content of an SLS: state declarations in all of Salt's forms, `extend` and `exclude`.

use std::rc::Rc;

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind};

use super::requisite_words::is_requisite;
use crate::low::Position;

/// One state call as written, before `names` are expanded.
#[derive(Debug, Clone)]
pub(super) struct Declaration {
    pub id: String,
    pub sls: String,
    pub state: String,
    pub fun: String,
    /// Position of the id.
    pub id_position: Position,
    /// Position of `module.function`.
    pub position: Position,
    pub arguments: Vec<Argument>,
}

/// One argument.
#[derive(Debug, Clone)]
pub(super) struct Argument {
    pub name: String,
    pub value: Node,
    pub position: Position,
    /// It shares its list item with others. Salt looks only at the first of them where it resolves
    /// `extend`, `use` and `_in`.
    pub joined: bool,
}

impl Declaration {
    /// The argument of this name; the last one counts.
    pub(super) fn argument(&self, name: &str) -> Option<&Argument> {
        self.all(name).next_back()
    }

    /// All arguments of this name.
    pub(super) fn all(&self, name: &str) -> impl DoubleEndedIterator<Item = &Argument> {
        self.arguments
            .iter()
            .filter(move |argument| argument.name == name)
    }
}

/// An entry of `extend`.
#[derive(Debug, Clone)]
pub(super) struct Extension {
    pub sls: String,
    pub id: String,
    pub id_position: Position,
    pub state: String,
    /// Empty if the function does not change.
    pub fun: String,
    pub position: Position,
    pub arguments: Vec<Argument>,
}

/// An entry of `exclude`.
#[derive(Debug, Clone)]
pub(super) struct Exclude {
    /// True: an SLS; false: an id.
    pub is_sls: bool,
    pub name: String,
    pub position: Position,
}

/// The declarations of one SLS file.
#[derive(Debug, Default)]
pub(super) struct Declared {
    /// Names of the SLS files that it includes.
    pub includes: Vec<String>,
    pub declarations: Vec<Rc<Declaration>>,
    pub extensions: Vec<Extension>,
    pub excludes: Vec<Exclude>,
}

/// Reads everything in a file except its `include`.
pub(super) fn read(sls: &str, node: &Node, declared: &mut Declared, problems: &mut Vec<Problem>) {
    if !matches!(node.kind, NodeKind::Map(_) | NodeKind::Null) {
        problems.push(
            Problem::at(
                &node.position,
                format!(
                    "an SLS must be a mapping of ids, but this is {}",
                    node.kind_name()
                ),
            )
            .hint(
                "write `id:` and below it, indented, `module.function:` with a list of arguments",
            ),
        );
        return;
    }
    for (key, value) in node.entries() {
        match key.raw.as_str() {
            "include" => {}
            "extend" => extend(sls, value, declared, problems),
            "exclude" => exclude(value, declared, problems),
            id if id.starts_with("__") => {}
            id => {
                if !matches!(key.kind, NodeKind::Text(_)) {
                    let message =
                        format!("an id must be a text, but `{id}` is {}", key.kind_name());
                    let hint = format!("write '{id}' in quotes");
                    problems.push(Problem::at(&key.position, message).hint(hint));
                }
                for call in calls(key, value, false, problems) {
                    declared.declarations.push(Rc::new(Declaration {
                        id: key.raw.clone(),
                        sls: sls.to_owned(),
                        state: call.state,
                        fun: call.fun,
                        id_position: key.position.clone(),
                        position: call.position,
                        arguments: call.arguments,
                    }));
                }
            }
        }
    }
}

struct Call {
    state: String,
    fun: String,
    position: Position,
    arguments: Vec<Argument>,
}

/// The calls below an id. `partial`: in `extend`, where the function may be missing.
fn calls(id: &Node, value: &Node, partial: bool, problems: &mut Vec<Problem>) -> Vec<Call> {
    let mut found: Vec<Call> = Vec::new();
    match &value.kind {
        NodeKind::Text(text) => match text.split_once('.') {
            Some((state, fun)) => found.push(Call {
                state: state.to_owned(),
                fun: fun.to_owned(),
                position: value.position.clone(),
                arguments: Vec::new(),
            }),
            None => problems.push(
                Problem::at(&value.position, format!("`{text}` is not a function"))
                    .hint("a state names `module.function`, for example `file.managed`"),
            ),
        },
        NodeKind::Map(entries) => {
            for (function, arguments) in entries {
                if function.raw.starts_with("__") {
                    continue;
                }
                let Some(call) = call(&id.raw, function, arguments, partial, problems) else {
                    continue;
                };
                if let Some(first) = found.iter().find(|other| other.state == call.state) {
                    problems.push(
                        Problem::at(
                            &call.position,
                            format!(
                                "`{}` uses the module `{}` twice: first in line {}",
                                id.raw, call.state, first.position.line
                            ),
                        )
                        .hint("an id may have one call of each module; give the second an id of its own"),
                    );
                    continue;
                }
                found.push(call);
            }
        }
        _ => problems.push(
            Problem::at(
                &value.position,
                format!(
                    "`{}` must hold `module.function` with arguments, but it is {}",
                    id.raw,
                    value.kind_name()
                ),
            )
            .hint("write `module.function:` below the id, indented by two"),
        ),
    }
    found
}

fn call(
    id: &str,
    function: &Node,
    arguments: &Node,
    partial: bool,
    problems: &mut Vec<Problem>,
) -> Option<Call> {
    let (state, mut fun) = match function.raw.split_once('.') {
        Some((state, fun)) => (state.to_owned(), fun.to_owned()),
        None => (function.raw.clone(), String::new()),
    };
    let mut read = Vec::new();
    match &arguments.kind {
        NodeKind::Null => {}
        NodeKind::Text(text) if fun.is_empty() => fun.clone_from(text),
        NodeKind::List(items) => {
            for item in items {
                match &item.kind {
                    NodeKind::Text(text) if fun.is_empty() => fun.clone_from(text),
                    NodeKind::Map(entries) => {
                        refuse_joined(entries, problems);
                        read.extend(entries.iter().map(|(key, value)| Argument {
                            name: key.raw.clone(),
                            value: value.clone(),
                            position: key.position.clone(),
                            joined: entries.len() > 1,
                        }));
                    }
                    _ => problems.push(
                        Problem::at(
                            &item.position,
                            format!(
                                "an argument must be `- name: value`, but this is {}",
                                item.kind_name()
                            ),
                        )
                        .hint(
                            if item.text().is_some() && fun == item.raw {
                                "the function is already named"
                            } else {
                                ""
                            },
                        ),
                    ),
                }
            }
        }
        // `mod.fun: {}` is common in templates and means no arguments.
        NodeKind::Map(entries) if entries.is_empty() => {}
        _ => {
            problems.push(
                Problem::at(
                    &arguments.position,
                    format!(
                        "the arguments of `{}` in `{id}` must be a list, but they are {}",
                        function.raw,
                        arguments.kind_name()
                    ),
                )
                .hint("put `- ` before each argument"),
            );
            return None;
        }
    }
    if fun.is_empty() && !partial {
        problems.push(
            Problem::at(
                &function.position,
                format!("`{}` in `{id}` names no function", function.raw),
            )
            .hint(format!(
                "write `{state}.FUNCTION`, for example `file.managed`"
            )),
        );
        return None;
    }
    Some(Call {
        state,
        fun,
        position: function.position.clone(),
        arguments: read,
    })
}

/// Refuses arguments in one list item if Salt would ignore one that is not the first.
fn refuse_joined(entries: &[(Node, Node)], problems: &mut Vec<Problem>) {
    let is_alone = |name: &str| is_requisite(name) || matches!(name, "name" | "names" | "order");
    let [first, others @ ..] = entries else {
        return;
    };
    let alone = entries.iter().find(|(name, _)| is_alone(&name.raw));
    if let (Some((alone, _)), [(second, _), ..]) = (alone, others) {
        let other = if alone.raw == first.0.raw {
            second
        } else {
            &first.0
        };
        problems.push(
            Problem::at(
                &second.position,
                format!("`{}` is in the same list item as `{}`", alone.raw, other.raw),
            )
            .hint("each argument is an item of its own: put `- ` before it, in the same column as the others"),
        );
    }
}

fn extend(sls: &str, value: &Node, declared: &mut Declared, problems: &mut Vec<Problem>) {
    if !matches!(value.kind, NodeKind::Map(_) | NodeKind::Null) {
        problems.push(Problem::at(
            &value.position,
            format!(
                "`extend` must be a mapping of ids, but it is {}",
                value.kind_name()
            ),
        ));
    }
    for (id, value) in value.entries() {
        for call in calls(id, value, true, problems) {
            declared.extensions.push(Extension {
                sls: sls.to_owned(),
                id: id.raw.clone(),
                id_position: id.position.clone(),
                state: call.state,
                fun: call.fun,
                position: call.position,
                arguments: call.arguments,
            });
        }
    }
}

fn exclude(value: &Node, declared: &mut Declared, problems: &mut Vec<Problem>) {
    let NodeKind::List(items) = &value.kind else {
        problems.push(Problem::at(
            &value.position,
            format!("`exclude` must be a list, but it is {}", value.kind_name()),
        ));
        return;
    };
    for item in items {
        let (is_sls, name) = match (&item.kind, item.entries()) {
            (_, [(key, name)]) if key.raw == "sls" => (true, name),
            (_, [(key, name)]) if key.raw == "id" => (false, name),
            (NodeKind::Text(_), _) => (true, item),
            _ => {
                problems.push(Problem::at(
                    &item.position,
                    "an exclude is `- sls: NAME` or `- id: ID`",
                ));
                continue;
            }
        };
        declared.excludes.push(Exclude {
            is_sls,
            name: name.raw.clone(),
            position: item.position.clone(),
        });
    }
}
