//! Global arguments, which every state takes: requisites, and controls over when and how it runs.

use halite_document::Problem;
use halite_document::yaml::{Node, NodeKind, scalar};

use super::conditions;
use super::declaration::Argument;
use super::requisite_words::{INVERTED, REQUISITES};
use super::spelling;
use crate::low::{Controls, Retry};

/// Global arguments that are not requisites.
pub(super) const CONTROLS: &[&str] = &[
    "unless",
    "onlyif",
    "creates",
    "check_cmd",
    "retry",
    "parallel",
    "failhard",
    "onfail_stop",
    "runas",
    "reload_grains",
    "reload_modules",
    "reload_pillar",
    "order",
    "name",
    "names",
];

/// Salt's global arguments that do not exist here, each with the reason.
const ABSENT: &[(&str, &str)] = &[
    (
        "aggregate",
        "packages of one state are always one transaction",
    ),
    (
        "cmd_opts_exclude",
        "set the options of a command at the command",
    ),
    ("fire_event", "every state already sends an event"),
    ("no_log", "values of a state with a secret are never shown"),
    (
        "runas_password",
        "commands run as root or as `runas`, without passwords",
    ),
    ("saltenv", "the state tree is one environment"),
    ("umask", "give modes where they matter"),
];

/// The reason why one of Salt's arguments does not exist here.
pub(super) fn absent(name: &str) -> Option<&'static str> {
    ABSENT
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, why)| *why)
}

/// All names that are not arguments of the function itself, for suggestions.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    REQUISITES
        .iter()
        .chain(INVERTED)
        .chain(CONTROLS)
        .copied()
        .chain(["use", "use_in"])
}

/// The `order` of a state; requisites take precedence over it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Order {
    /// In the order of the files.
    Auto,
    /// `order: N`; negative from the end.
    Number(i64),
    /// `order: first`.
    First,
    /// `order: last`.
    Last,
}

/// Reads one global argument into `controls` or `order`; `false` if it is not a global argument.
pub(super) fn read(
    argument: &Argument,
    controls: &mut Controls,
    order: &mut Order,
    problems: &mut Vec<Problem>,
) -> bool {
    let value = &argument.value;
    let mut flag =
        |problems: &mut Vec<Problem>, place: fn(&mut Controls) -> &mut bool| match boolean(value) {
            Some(read) => *place(controls) = read,
            None => problems.push(wrong(argument, "true or false")),
        };
    match argument.name.as_str() {
        "parallel" => flag(problems, |controls| &mut controls.parallel),
        "failhard" => flag(problems, |controls| &mut controls.failhard),
        "onfail_stop" => flag(problems, |controls| &mut controls.onfail_stop),
        "unless" => controls.unless = conditions::read(argument, problems),
        "onlyif" => controls.onlyif = conditions::read(argument, problems),
        "creates" => controls.creates = texts(argument, problems),
        "check_cmd" => controls.check_cmd = texts(argument, problems),
        "runas" => match value.text() {
            Some(user) => {
                spelling::check("`runas`", value, problems);
                controls.runas = Some(user.to_owned());
            }
            None => problems.push(wrong(argument, "the name of a user")),
        },
        "retry" => controls.retry = retry(argument, problems),
        // Halite loads no modules, so this has no effect. `warning` covers the other two.
        "reload_modules" | "reload_grains" | "reload_pillar" => {
            if boolean(value).is_none() {
                problems.push(wrong(argument, "true or false"));
            }
        }
        "order" => match (&value.kind, value.raw.as_str()) {
            (NodeKind::Int(number), _) => *order = Order::Number(*number),
            (_, "first") => *order = Order::First,
            (_, "last") => *order = Order::Last,
            _ => problems.push(wrong(argument, "a whole number, `first` or `last`")),
        },
        _ => return false,
    }
    true
}

/// The warning about a global argument whose effect is not the same as in Salt.
pub(super) fn warning(argument: &Argument) -> Option<Problem> {
    let what = match argument.name.as_str() {
        "reload_grains" => "grains",
        "reload_pillar" => "the pillar",
        _ => return None,
    };
    let message = format!("`{}` has no effect", argument.name);
    let hint = format!(
        "all templates are rendered before the run, and read changes of {what} in the next one"
    );
    let is_set = boolean(&argument.value) == Some(true);
    is_set.then(|| Problem::at(&argument.position, message).hint(hint))
}

fn wrong(argument: &Argument, wanted: &str) -> Problem {
    Problem::at(
        &argument.value.position,
        format!(
            "`{}` takes {wanted}, but this is {}",
            argument.name,
            argument.value.kind_name()
        ),
    )
}

/// Reads true or false in any of YAML 1.1's spellings, also quoted.
pub(super) fn boolean(node: &Node) -> Option<bool> {
    match &node.kind {
        NodeKind::Bool(value) => Some(*value),
        NodeKind::Text(text) => match scalar::resolve(text) {
            NodeKind::Bool(value) => Some(value),
            _ => None,
        },
        _ => None,
    }
}

fn texts(argument: &Argument, problems: &mut Vec<Problem>) -> Vec<String> {
    let items: Vec<&Node> = match &argument.value.kind {
        NodeKind::List(items) => items.iter().collect(),
        NodeKind::Null => Vec::new(),
        _ => vec![&argument.value],
    };
    let mut found = Vec::new();
    for item in items {
        match item.text() {
            Some(text) => found.push(text.to_owned()),
            None => problems.push(wrong(argument, "a text or a list of texts")),
        }
    }
    found
}

/// `retry: True`, or a mapping of `attempts` (2), `interval` (30 s), `splay` (0 s) and `until`
/// (true).
fn retry(argument: &Argument, problems: &mut Vec<Problem>) -> Option<Retry> {
    let mut retry = Retry {
        attempts: 2,
        interval: 30.0,
        until: true,
        splay: 0,
    };
    let entries = match &argument.value.kind {
        NodeKind::Bool(wanted) => return wanted.then_some(retry),
        NodeKind::Map(entries) => entries
            .iter()
            .map(|(key, value)| (key, value))
            .collect::<Vec<_>>(),
        // Salt also takes a list of single pairs.
        NodeKind::List(items) => items
            .iter()
            .flat_map(|item| item.entries())
            .map(|(key, value)| (key, value))
            .collect(),
        _ => {
            problems.push(wrong(
                argument,
                "true, or a mapping of attempts, interval, splay and until",
            ));
            return None;
        }
    };
    for (key, value) in entries {
        let read = match (key.raw.as_str(), &value.kind) {
            ("attempts", NodeKind::Int(number)) if (1..=10_000).contains(number) => {
                retry.attempts = u32::try_from(*number).unwrap_or(1);
                true
            }
            ("interval", NodeKind::Int(number)) if *number >= 0 => {
                retry.interval = u32::try_from(*number).map_or(f64::from(u32::MAX), f64::from);
                true
            }
            ("interval", NodeKind::Float(number)) if *number >= 0.0 => {
                retry.interval = *number;
                true
            }
            ("until", _) => boolean(value).is_some_and(|until| {
                retry.until = until;
                true
            }),
            ("splay", NodeKind::Int(number)) if (0..=86_400).contains(number) => {
                retry.splay = u32::try_from(*number).unwrap_or_default();
                true
            }
            _ => false,
        };
        if !read {
            problems.push(
                Problem::at(
                    &key.position,
                    format!("`retry` has no `{}: {}`", key.raw, value.raw),
                )
                .hint(
                    "it takes attempts (1 to 10000), interval and splay (seconds) and until (true or false)",
                ),
            );
        }
    }
    Some(retry)
}
