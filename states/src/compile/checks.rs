//! Checks of arguments that depend on each other.

use halite_document::Problem;
use halite_errors::chain;
use serde_json::Value;

use super::call::Call;
use crate::pattern::{Commented, Flags, LinePattern, PathPattern, Substitution};

/// Refuses combinations of arguments that a state function would refuse on the host, or would
/// interpret differently from what they seem to say.
pub(super) fn check(call: &Call, problems: &mut Vec<Problem>) {
    let chunk = &call.chunk;
    match (chunk.state.as_str(), chunk.fun.as_str()) {
        ("file", "line") => problems.extend(line(call)),
        ("file", "replace" | "comment" | "uncomment") => problems.extend(edit(call)),
        ("pkg", _) => problems.extend(packages(call)),
        _ => {}
    }
}

/// Checks the expressions of edits.
fn edit(call: &Call) -> Option<Problem> {
    let chunk = &call.chunk;
    let text = |name: &str| chunk.args.get(name).and_then(Value::as_str);
    let flag = |name: &str| chunk.args.get(name).and_then(Value::as_bool) == Some(true);
    let problem = |message: String| {
        let (function, id) = (chunk.function(), &chunk.id);
        Problem::at(&chunk.source, format!("{function} in `{id}`: {message}"))
    };
    match chunk.args.get("backup") {
        None | Some(Value::Null | Value::Bool(false)) => {}
        Some(Value::String(text)) if text == ".bak" || text.is_empty() => {}
        Some(_) => {
            let hint = "leave it out: the return has the difference";
            return Some(problem("file backups are not supported".to_owned()).hint(hint));
        }
    }
    if flag("append_if_not_found") && flag("prepend_if_not_found") {
        let message = "`append_if_not_found` and `prepend_if_not_found` exclude each other";
        return Some(problem(message.to_owned()));
    }
    let read = match chunk.fun.as_str() {
        "replace" => Flags::read(chunk.args.get("flags")).and_then(|flags| {
            let (pattern, repl) = (text("pattern"), text("repl"));
            let literal = flag("backslash_literal");
            Substitution::new(
                pattern.unwrap_or_default(),
                repl.unwrap_or_default(),
                flags,
                literal,
            )
            .map(drop)
        }),
        _ => {
            let sign = text("char").unwrap_or("#");
            Commented::new(text("regex").unwrap_or_default(), sign).map(drop)
        }
    };
    let error = read.err()?;
    Some(problem(chain(&error)).hint(
        "a regular expression without lookaround and without references to groups in the expression itself",
    ))
}

/// Refuses names and versions of packages that mean something in Salt and would be searched for
/// literally here.
fn packages(call: &Call) -> Vec<Problem> {
    let chunk = &call.chunk;
    let args = &chunk.args;
    let mut wanted: Vec<(&str, Option<&str>)> = Vec::new();
    match args.get("pkgs") {
        Some(Value::Array(items)) => {
            for item in items {
                match item {
                    Value::Object(pins) => wanted.extend(
                        pins.iter()
                            .map(|(name, version)| (name.as_str(), version.as_str())),
                    ),
                    name => wanted.extend(name.as_str().map(|name| (name, None))),
                }
            }
        }
        _ => wanted.push((&chunk.name, args.get("version").and_then(Value::as_str))),
    }
    let mut problems = Vec::new();
    let mut refuse = |message: String, hint: &str| {
        let message = format!("{message} (in `{}`)", chunk.id);
        problems.push(Problem::at(&chunk.source, message).hint(hint));
    };
    for (name, version) in wanted {
        if name.contains(':') {
            refuse(
                format!("the package `{name}` names an architecture"),
                "write the name alone: packages are those of the host's own architecture",
            );
        }
        let version = version.unwrap_or("1");
        let is_pattern = PathPattern::new(version).is_ok();
        if !is_pattern
            || version.is_empty()
            || version == "latest"
            || version.starts_with(['<', '>', '=', '!'])
        {
            refuse(
                format!("`{version}` is not a version of the package `{name}`"),
                "write an exact version, a pattern such as `1.2.*`, or omit the version if any will do",
            );
        }
    }
    problems
}

/// Checks that the arguments of `file.line` say which line its mode means.
fn line(call: &Call) -> Option<Problem> {
    let text = |name: &str| call.chunk.args.get(name).and_then(Value::as_str);
    let problem = |message: String, hint: &str| {
        Some(
            Problem::at(
                &call.chunk.source,
                format!("{message} (in `{}`)", call.chunk.id),
            )
            .hint(hint),
        )
    };
    let by_neighbour = ["before", "after"]
        .into_iter()
        .find(|name| text(name).is_some());
    match text("mode")?.to_lowercase().as_str() {
        mode @ ("replace" | "delete") => {
            if let Some(name) = by_neighbour {
                return problem(
                    format!("`mode: {mode}` of file.line has no `{name}`"),
                    "`match` names the line",
                );
            }
            // Without `match` the content is the pattern.
            let content = text("content").filter(|_| text("match").is_none())?;
            let error = LinePattern::new(content).err()?;
            problem(
                format!(
                    "`content` of file.line, which names the line here, is not understood: {}",
                    chain(&error)
                ),
                "give `match`: a regular expression, or text in the line",
            )
        }
        mode @ ("ensure" | "insert") => match text("location") {
            Some("start" | "end") if mode == "insert" => None,
            Some(_) if mode == "insert" => problem(
                "`location` of file.line is not known".to_owned(),
                "it is `start` or `end`",
            ),
            None if by_neighbour.is_none() => problem(
                format!("`mode: {mode}` of file.line does not say where"),
                if mode == "insert" {
                    "give `location`, `after` or `before`"
                } else {
                    "give `after` or `before`"
                },
            ),
            _ => None,
        },
        mode => problem(
            format!("file.line has no mode `{mode}`"),
            "it has ensure, replace, insert and delete",
        ),
    }
}
