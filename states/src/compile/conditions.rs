//! The conditions of `unless` and `onlyif`: shell commands, and calls of the few functions that a
//! minion answers itself. A call is checked as strictly as a state, and its arguments are named.

use halite_document::yaml::{Node, NodeKind};
use halite_document::{Problem, did_you_mean};
use serde_json::{Map, Value};

use super::declaration::Argument;

/// A function that can be a condition.
struct Function {
    name: &'static str,
    /// Its arguments in order.
    args: &'static [&'static str],
    /// The number of arguments, from the first, that must be given.
    required: usize,
}

const fn function(name: &'static str, args: &'static [&'static str], required: usize) -> Function {
    Function {
        name,
        args,
        required,
    }
}

const FUNCTIONS: &[Function] = &[
    function("file.directory_exists", &["path"], 1),
    function("file.file_exists", &["path"], 1),
    function("http.query", &["url", "status", "ca", "verify_ssl"], 1),
    function("kmod.is_loaded", &["mod"], 1),
    function("pkg.version", &["name"], 1),
    function("service.available", &["name"], 1),
    function("service.enabled", &["name"], 1),
    function("service.status", &["name"], 1),
    function("test.false", &[], 0),
    function("test.true", &[], 0),
    function("user.info", &["name"], 1),
    function("x509.current", &["path", "ca"], 2),
];

/// Functions of Salt that are often used and not here, each with what to write.
const ABSENT: &[(&str, &str)] = &[
    (
        "cmd.retcode",
        "exit code 0 is false in Salt; write the command itself, which holds when it succeeds: `- COMMAND`",
    ),
    ("file.access", "write a shell command: `- test -x PATH`"),
    (
        "file.path_exists_glob",
        "write a shell command: `- ls PATTERN`",
    ),
];

/// Reads one condition, or a list of them.
pub(super) fn read(argument: &Argument, problems: &mut Vec<Problem>) -> Vec<Value> {
    let items: Vec<&Node> = match &argument.value.kind {
        NodeKind::List(items) => items.iter().collect(),
        NodeKind::Null => Vec::new(),
        _ => vec![&argument.value],
    };
    items
        .into_iter()
        .filter_map(|item| match &item.kind {
            NodeKind::Map(_) if item.get("fun").is_some_and(|fun| fun.text().is_some()) => {
                call(item, problems)
            }
            NodeKind::Map(_) | NodeKind::List(_) | NodeKind::Null => {
                problems.push(Problem::at(
                    &item.position,
                    format!(
                        "`{}` takes shell commands, or `fun: module.function` with arguments",
                        argument.name
                    ),
                ));
                None
            }
            // `unless: false` is the command of that name, as in Salt.
            NodeKind::Bool(value) => Some(Value::from(if *value { "true" } else { "false" })),
            _ => Some(Value::from(item.raw.as_str())),
        })
        .collect()
}

/// Checks a call and names its arguments.
fn call(item: &Node, problems: &mut Vec<Problem>) -> Option<Value> {
    let fun = item.get("fun")?;
    let name = fun.text()?;
    // YAML reads `true` in a name of its own; Salt has both spellings.
    let Some(function) = FUNCTIONS
        .iter()
        .find(|known| known.name == name.trim_end_matches('_'))
    else {
        problems.push(unknown(fun, name));
        return None;
    };
    let before = problems.len();
    let mut given = Map::from_iter([("fun".to_owned(), Value::from(function.name))]);
    let listed = item.get("args");
    for (number, value) in listed.iter().flat_map(|args| args.items()).enumerate() {
        match function.args.get(number) {
            Some(arg) => give(&mut given, arg, value, problems),
            None => problems.push(Problem::at(
                &value.position,
                format!(
                    "`{name}` has no further argument here; it takes {}",
                    takes(function)
                ),
            )),
        }
    }
    for (key, value) in item.entries() {
        match key.raw.as_str() {
            "fun" | "args" => {}
            arg if function.args.contains(&arg) => give(&mut given, arg, value, problems),
            other => problems.push(
                Problem::at(
                    &key.position,
                    format!("`{name}` has no argument `{other}` here"),
                )
                .hint(match did_you_mean(other, function.args.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("it takes {}", takes(function)),
                }),
            ),
        }
    }
    for arg in &function.args[..function.required] {
        if !given.contains_key(*arg) && problems.len() == before {
            problems.push(Problem::at(
                &fun.position,
                format!("the condition `{name}` needs the argument `{arg}`"),
            ));
        }
    }
    Some(Value::Object(given))
}

fn give(given: &mut Map<String, Value>, arg: &str, value: &Node, problems: &mut Vec<Problem>) {
    let value = match (&value.kind, value.text()) {
        (NodeKind::Int(number), _) if arg == "status" => Value::from(*number),
        (NodeKind::Bool(flag), _) if arg == "verify_ssl" => Value::from(*flag),
        (_, Some(text)) if !matches!(arg, "status" | "verify_ssl") => Value::from(text),
        _ => {
            let wanted = match arg {
                "status" => "a number",
                "verify_ssl" => "true or false",
                _ => "a text",
            };
            problems.push(Problem::at(
                &value.position,
                format!("`{arg}` takes {wanted}, but this is {}", value.kind_name()),
            ));
            return;
        }
    };
    given.insert(arg.to_owned(), value);
}

fn takes(function: &Function) -> String {
    match function.args {
        [] => "no arguments".to_owned(),
        args => args.join(", "),
    }
}

fn unknown(fun: &Node, name: &str) -> Problem {
    let problem = Problem::at(
        &fun.position,
        format!("the condition `{name}` is not known"),
    );
    if let Some((_, instead)) = ABSENT.iter().find(|(known, _)| *known == name) {
        return problem.hint(*instead);
    }
    let names = FUNCTIONS.iter().map(|known| known.name);
    problem.hint(match did_you_mean(name, names.clone()) {
        Some(near) => format!("did you mean `{near}`?"),
        None => format!(
            "use a shell command, or one of {}",
            names.collect::<Vec<_>>().join(", ")
        ),
    })
}
