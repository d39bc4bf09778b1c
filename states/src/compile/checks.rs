//! Checks of arguments that depend on each other.

use std::net::Ipv4Addr;

use halite_document::Problem;
use halite_errors::chain;
use serde_json::Value;

use super::call::Call;
use crate::certificates::{DAYS, renewed_from};
use crate::firewall;
use crate::pattern::{Commented, Flags, LinePattern, PathPattern, Substitution};

/// Refuses combinations of arguments that a state function would refuse on the host, or would
/// interpret differently from what they seem to say.
pub(super) fn check(call: &Call, problems: &mut Vec<Problem>) {
    let chunk = &call.chunk;
    match (chunk.state.as_str(), chunk.fun.as_str()) {
        ("file", "line") => problems.extend(line(call)),
        ("file", "replace" | "comment" | "uncomment") => problems.extend(edit(call)),
        ("file", "blockreplace") => problems.extend(block(call)),
        ("pkg", _) => problems.extend(packages(call)),
        ("x509" | "kubeconfig", _) => problems.extend(certificate(call)),
        ("http", _) if has(call, "ca") && flag(call, "verify_ssl") == Some(false) => {
            let message = "`ca` and `verify_ssl: False` exclude each other";
            problems.push(problem(call, message));
        }
        ("group", "present") => {
            problems.extend(members(call).map(|text| problem(call, text)));
            problems.extend(names(call, &["members", "addusers", "delusers"]));
        }
        ("firewalld", "zone" | "policy") => problems.extend(firewall(call)),
        ("firewalld", "ipsets") => problems.extend(sets(call).map(|text| problem(call, text))),
        ("etcd", "joined") => problems.extend(ids(call).map(|text| problem(call, text))),
        ("user", "present") => {
            problems.extend(full_name(call).map(|text| problem(call, text)));
            problems.extend(names(call, &["groups"]));
        }
        ("pkgrepo", "managed") if texts(call, "uris").is_empty() => {
            let message = "`uris` is missing: the address of the repository";
            problems.push(problem(call, message));
        }
        _ => {}
    }
}

/// A problem of a call as a whole.
fn problem(call: &Call, message: impl AsRef<str>) -> Problem {
    let (function, id) = (call.chunk.function(), &call.chunk.id);
    let message = format!("{function} in `{id}`: {}", message.as_ref());
    Problem::at(&call.chunk.source, message)
}

fn has(call: &Call, name: &str) -> bool {
    call.chunk.args.contains_key(name)
}

fn text<'a>(call: &'a Call, name: &str) -> Option<&'a str> {
    call.chunk.args.get(name).and_then(Value::as_str)
}

fn flag(call: &Call, name: &str) -> Option<bool> {
    call.chunk.args.get(name).and_then(Value::as_bool)
}

/// The texts of a list; empty if it is missing.
fn texts<'a>(call: &'a Call, name: &str) -> Vec<&'a str> {
    let list = call.chunk.args.get(name).and_then(Value::as_array);
    list.into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

/// Checks the lifetime of a certificate, and the files of another one.
fn certificate(call: &Call) -> Vec<Problem> {
    let number = |name: &str| call.chunk.args.get(name).and_then(Value::as_i64);
    let days = number("days").unwrap_or(DAYS);
    let renew = number("renew_days").unwrap_or(renewed_from(days));
    let mut problems = Vec::new();
    if renew >= days {
        let message = format!("`renew_days` ({renew}) must be less than `days` ({days})");
        problems.push(problem(call, message));
    }
    if call.chunk.state != "kubeconfig" {
        return problems;
    }
    let files = ["client_certificate_file", "client_key_file"].map(|name| has(call, name));
    match files {
        [true, true] => {}
        [false, false] if has(call, "common_name") => {}
        [false, false] => problems.push(problem(
            call,
            "give `common_name`, or `client_certificate_file` and `client_key_file`",
        )),
        _ => problems.push(problem(
            call,
            "`client_certificate_file` and `client_key_file` go together",
        )),
    }
    problems
}

/// Refuses content in which the block would end.
fn block(call: &Call) -> Option<Problem> {
    let (content, end) = (text(call, "content")?, text(call, "marker_end")?);
    let line = content.lines().find(|line| line.contains(end))?;
    let message = format!(
        "the line `{line}` of `content` contains `marker_end`, so that each run would add lines"
    );
    Some(problem(call, message).hint("use a marker that `content` does not contain"))
}

/// Checks the members of a group.
fn members(call: &Call) -> Option<String> {
    let (add, remove) = (texts(call, "addusers"), texts(call, "delusers"));
    if has(call, "members") && !(add.is_empty() && remove.is_empty()) {
        return Some("`members` excludes `addusers` and `delusers`".to_owned());
    }
    let both = add.iter().find(|user| remove.contains(user))?;
    Some(format!("{both} is both in `addusers` and in `delusers`"))
}

/// Checks the full name of an account, which is one of several fields of a text.
fn full_name(call: &Call) -> Option<String> {
    let is_bad = text(call, "fullname")?.contains([',', ':']);
    is_bad.then(|| {
        "`fullname` contains a comma or colon, which would end that field of the account".to_owned()
    })
}

/// Refuses several names in one text.
fn names(call: &Call, arguments: &[&str]) -> Option<Problem> {
    let has_comma = |name: &&&str| texts(call, name).iter().any(|text| text.contains(','));
    let argument = arguments.iter().find(has_comma)?;
    let message = format!("`{argument}` has several names in one text");
    Some(problem(call, message).hint("write a list: `[a, b]`"))
}

/// Refuses settings that firewalld does not understand.
fn firewall(call: &Call) -> Vec<Problem> {
    let list = |name: &str| -> Vec<String> {
        let texts = texts(call, name).into_iter();
        texts.map(str::to_owned).collect()
    };
    let ports = firewall::ports(&list("ports")).err();
    let sources = list("sources");
    let sources = sources
        .iter()
        .filter_map(|source| firewall::source(source).err());
    let rules = list("rich_rules");
    let rules = rules
        .iter()
        .filter_map(|rule| firewall::rich_rule(rule).err());
    let errors = ports.into_iter().chain(sources).chain(rules);
    errors.map(|error| problem(call, chain(&error))).collect()
}

/// Checks the entries of sets of addresses.
fn sets(call: &Call) -> Option<String> {
    let sets = call.chunk.args.get("sets")?.as_object()?;
    let is_address = |entry: &Value| {
        let address = entry.as_str().map(str::parse::<Ipv4Addr>);
        address.is_some_and(|address| address.is_ok())
    };
    let is_good = |entries: &Value| {
        let entries = entries.as_array();
        entries.is_some_and(|entries| entries.iter().all(is_address))
    };
    let (name, _) = sets.iter().find(|(_, entries)| !is_good(entries))?;
    Some(format!("`sets.{name}` must be a list of IPv4 addresses"))
}

/// Checks the ids of a member of etcd.
fn ids(call: &Call) -> Option<String> {
    let is_bad = |name: &&str| {
        let id = call.chunk.args.get(*name).and_then(Value::as_str);
        id.is_some_and(|id| u64::from_str_radix(id, 16).is_err())
    };
    let name = ["cluster_id", "member_id"].into_iter().find(is_bad)?;
    Some(format!("`{name}` must be an etcd id in hexadecimal"))
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
        if let Some((name, version)) = name.split_once('=') {
            refuse(
                format!("the package `{name}={version}` names a version"),
                &format!("write `{name}: '{version}'` in `pkgs`, or the version in `version`"),
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
