//! Arguments of state functions, checked against the signatures and converted to one form.

use std::net::IpAddr;

use halite_document::yaml::{Node, NodeKind};
use halite_document::{Problem, did_you_mean};
use halite_errors::chain;
use serde_json::{Map, Value};

use super::declaration::{Argument, Declaration};
use super::globals;
use super::globals::boolean;
use super::spelling;
use crate::pattern::{Expression, LinePattern, PathPattern, PatternError};
use crate::signature::{Arg, ArgumentKind as Wanted, Signature};
use crate::signatures;

/// The signature of a declaration's function.
pub(super) fn signature(
    declaration: &Declaration,
    problems: &mut Vec<Problem>,
) -> Option<&'static Signature> {
    let (state, fun) = (declaration.state.as_str(), declaration.fun.as_str());
    if let Some(signature) = signatures::find(state, fun) {
        return Some(signature);
    }
    let all = signatures::signatures();
    let functions: Vec<&str> = all
        .iter()
        .filter(|known| known.state == state)
        .map(|known| known.fun)
        .collect();
    let hint = if functions.is_empty() {
        let modules = all.iter().map(|known| known.state);
        did_you_mean(state, modules)
            .map(|near| format!("there is no module `{state}`; did you mean `{near}.{fun}`?"))
    } else {
        did_you_mean(fun, functions.iter().copied())
            .map(|near| format!("did you mean `{state}.{near}`?"))
            .or_else(|| Some(format!("`{state}` has {}", functions.join(", "))))
    };
    problems.push(
        Problem::at(
            &declaration.position,
            format!(
                "there is no state function `{state}.{fun}` (in `{}`)",
                declaration.id
            ),
        )
        .hint(hint.unwrap_or_else(|| "docs/reference/states.md lists all".to_owned())),
    );
    None
}

/// Checks and converts the function's own arguments; the global ones are already taken out.
pub(super) fn convert(
    declaration: &Declaration,
    signature: &Signature,
    arguments: &[Argument],
    problems: &mut Vec<Problem>,
) -> Map<String, Value> {
    let mut converted = Map::new();
    let function = format!("{}.{}", declaration.state, declaration.fun);
    for argument in arguments {
        let Some(wanted) = signature
            .args
            .iter()
            .find(|known| known.name == argument.name)
        else {
            problems.push(unknown(&function, signature, argument));
            continue;
        };
        // A null is an argument that was not given, as in Salt.
        if matches!(argument.value.kind, NodeKind::Null) && wanted.kind != Wanted::Any {
            continue;
        }
        if wanted.kind.is_text() {
            let name = format!("`{}` of {function}", argument.name);
            spelling::check(&name, &argument.value, problems);
        }
        match value(wanted, &argument.value, signature.state) {
            Ok(value) => {
                converted.insert(argument.name.clone(), value);
            }
            Err(error) => problems.push(
                Problem::at(
                    &argument.value.position,
                    format!("`{}` of {function} {}", argument.name, chain(&error)),
                )
                .hint(
                    error
                        .remedy(wanted.kind)
                        .unwrap_or_else(|| wanted.doc.to_owned()),
                ),
            ),
        }
    }
    for wanted in signature.args.iter().filter(|wanted| wanted.required) {
        let given = arguments.iter().any(|argument| {
            argument.name == wanted.name && !matches!(argument.value.kind, NodeKind::Null)
        });
        if !given {
            problems.push(
                Problem::at(
                    &declaration.position,
                    format!(
                        "{function} in `{}` needs the argument `{}`",
                        declaration.id, wanted.name
                    ),
                )
                .hint(wanted.doc),
            );
        }
    }
    converted
}

fn unknown(function: &str, signature: &Signature, argument: &Argument) -> Problem {
    let problem = Problem::at(
        &argument.position,
        format!("{function} has no argument `{}`", argument.name),
    );
    if let Some(why) = globals::absent(&argument.name) {
        return problem.hint(format!(
            "Salt's `{}` is not needed here: {why}",
            argument.name
        ));
    }
    let own = signature.args.iter().map(|known| known.name);
    let hint = match did_you_mean(&argument.name, own.clone().chain(globals::names())) {
        Some(near) => format!("did you mean `{near}`?"),
        None => {
            let own: Vec<&str> = own.collect();
            if own.is_empty() {
                format!("{function} takes no arguments of its own")
            } else {
                format!("it has {}", own.join(", "))
            }
        }
    };
    problem.hint(hint)
}

/// A value that an argument does not take.
#[derive(Debug, thiserror::Error)]
enum ValueError {
    #[error("takes {takes}, but this is {found}")]
    Kind {
        takes: &'static str,
        found: &'static str,
    },
    #[error("takes a file mode of octal digits like 0644, but this is `{0}`")]
    Mode(String),
    #[error("takes texts, but one is {0}")]
    Item(&'static str),
    #[error("takes {words}, but this is `{text}`")]
    Word { text: String, words: String },
    #[error("takes an absolute path, but this is `{0}`")]
    Relative(String),
    #[error("takes IP addresses, but one is `{0}`")]
    Address(String),
    #[error("has no address")]
    NoAddress,
    #[error("takes a whole number from {least} to {most}, but this is {number}")]
    Range { number: i64, least: i64, most: i64 },
    #[error("has no text for `{0}`")]
    Variable(String),
    #[error("has more than one package in one item: `{0}`")]
    Packages(String),
    #[error("has a version of `{0}` that is not a text")]
    Version(String),
    #[error("is not understood")]
    Pattern(#[from] PatternError),
}

impl ValueError {
    /// The value to write instead, unless the argument's meaning already says it.
    fn remedy(&self, wanted: Wanted) -> Option<String> {
        match self {
            Self::Packages(_) => Some("put `- ` before each".to_owned()),
            Self::Pattern(PatternError::Regex { .. }) if wanted == Wanted::PathPatterns => {
                Some("a regular expression after `E@` has no lookaround and no references to groups; without `E@` it is a shell pattern".to_owned())
            }
            Self::Pattern(PatternError::Regex { pattern, .. }) => Some(format!(
                "a regular expression without lookaround and references to groups; for the text itself write '{}'",
                Expression::literally(pattern)
            )),
            _ => None,
        }
    }
}

/// The value of an argument in the form that its signature names.
fn value(wanted: &Arg, node: &Node, state: &str) -> Result<Value, ValueError> {
    let but = |takes| ValueError::Kind {
        takes,
        found: node.kind_name(),
    };
    match wanted.kind {
        // Objects of Kubernetes mean the same here as in a manifest.
        Wanted::Any if state == "kubernetes" => Ok(node.to_kubernetes_json()),
        Wanted::Any if wanted.name == "dataset" => Ok(node.to_json_with_key_types()),
        Wanted::Any => Ok(node.to_json()),
        Wanted::Text => text(wanted.name, node)
            .map(Value::from)
            .ok_or_else(|| but("a text")),
        Wanted::Word(words) => {
            let text = node.text().ok_or_else(|| but("a text"))?;
            known(words, text).map(Value::from)
        }
        Wanted::Words(words) => {
            let texts = texts(node)?.into_iter();
            texts
                .map(|text| known(words, text).map(Value::from))
                .collect()
        }
        Wanted::Path => match node.text() {
            Some(path) if path.starts_with('/') => Ok(Value::from(path)),
            Some(path) => Err(ValueError::Relative(path.to_owned())),
            None => Err(but("an absolute path")),
        },
        Wanted::Addresses => {
            let addresses = texts(node)?;
            match addresses
                .iter()
                .find(|text| text.parse::<IpAddr>().is_err())
            {
                Some(other) => Err(ValueError::Address((*other).to_owned())),
                None if wanted.required && addresses.is_empty() => Err(ValueError::NoAddress),
                None => Ok(Value::from(addresses)),
            }
        }
        Wanted::Scalar => match node.to_json() {
            Value::Array(_) | Value::Object(_) | Value::Null => Err(but("a text or a number")),
            value => Ok(value),
        },
        Wanted::Integer => match integer(node) {
            Some(number) => Ok(Value::from(number)),
            None => Err(but("a whole number")),
        },
        Wanted::Within(least, most) => within(node, (least, most)).map(Value::from),
        Wanted::Codes => {
            let code = |item: &Node| within(item, (i64::from(i32::MIN), i64::from(i32::MAX)));
            match &node.kind {
                NodeKind::List(items) => items
                    .iter()
                    .map(|item| code(item).map(Value::from))
                    .collect(),
                _ => code(node).map(Value::from),
            }
        }
        Wanted::Boolean => boolean(node)
            .map(Value::from)
            .ok_or_else(|| but("true or false")),
        Wanted::Mode => mode(&node.raw)
            .map(Value::from)
            .ok_or_else(|| ValueError::Mode(node.raw.clone())),
        Wanted::LinePattern => {
            let pattern = node.text().ok_or_else(|| but("a text"))?;
            LinePattern::new(pattern)?;
            Ok(Value::from(pattern))
        }
        Wanted::TextList => Ok(Value::from(texts(node)?)),
        Wanted::Sources => match &node.kind {
            NodeKind::List(items) => items.iter().map(alternative).collect(),
            _ => text(wanted.name, node)
                .map(Value::from)
                .ok_or_else(|| but("a text, or a list of texts")),
        },
        Wanted::Variables => {
            variables(node)?.ok_or_else(|| but("a mapping, or a list of mappings"))
        }
        Wanted::Packages => match &node.kind {
            NodeKind::List(items) => items.iter().map(package).collect(),
            _ => Err(but("a list of names and of `name: version`")),
        },
        Wanted::PathPatterns => {
            let patterns = texts(node)?;
            for pattern in &patterns {
                PathPattern::new(pattern)?;
            }
            Ok(Value::from(patterns))
        }
        Wanted::Mapping => match &node.kind {
            NodeKind::Map(_) => Ok(json(wanted, node)),
            // Salt's way to write a mapping as a list of pairs.
            NodeKind::List(items)
                if items
                    .iter()
                    .all(|item| matches!(item.kind, NodeKind::Map(_))) =>
            {
                Ok(Value::Object(
                    items
                        .iter()
                        .flat_map(Node::entries)
                        .map(|(key, value)| (key.raw.clone(), json(wanted, value)))
                        .collect(),
                ))
            }
            _ => Err(but("a mapping")),
        },
        Wanted::Mappings => match &node.kind {
            NodeKind::List(items) => items.iter().map(mapping).collect(),
            _ => Err(but("a list of mappings")),
        },
    }
}

/// A mapping of a Kubernetes object.
fn mapping(item: &Node) -> Result<Value, ValueError> {
    match &item.kind {
        NodeKind::Map(_) => Ok(item.to_kubernetes_json()),
        _ => Err(ValueError::Kind {
            takes: "a list of mappings",
            found: item.kind_name(),
        }),
    }
}

/// A word that an argument takes.
fn known<'a>(words: &'static [&'static str], text: &'a str) -> Result<&'a str, ValueError> {
    if words.contains(&text) {
        return Ok(text);
    }
    Err(ValueError::Word {
        text: text.to_owned(),
        words: words.join(", "),
    })
}

/// A whole number, also in quotes.
fn integer(node: &Node) -> Option<i64> {
    match &node.kind {
        NodeKind::Int(number) => Some(*number),
        NodeKind::Text(text) => text.parse().ok(),
        _ => None,
    }
}

/// A whole number that is not below the first and not above the second bound.
fn within(node: &Node, (least, most): (i64, i64)) -> Result<i64, ValueError> {
    let number = integer(node).ok_or_else(|| ValueError::Kind {
        takes: "a whole number",
        found: node.kind_name(),
    })?;
    if (least..=most).contains(&number) {
        return Ok(number);
    }
    Err(ValueError::Range {
        number,
        least,
        most,
    })
}

/// A part of a mapping. The keys of variables of a template, which are not sent to a host, keep
/// their type.
fn json(wanted: &Arg, node: &Node) -> Value {
    match wanted.name {
        "context" | "defaults" => node.to_json_with_key_types(),
        _ => node.to_json(),
    }
}

/// A list of texts; one text is a list of one.
fn texts(node: &Node) -> Result<Vec<&str>, ValueError> {
    let NodeKind::List(items) = &node.kind else {
        let one = node.text().map(|text| vec![text]);
        return one.ok_or(ValueError::Kind {
            takes: "a list of texts",
            found: node.kind_name(),
        });
    };
    let text = |item: &Node| ValueError::Item(item.kind_name());
    items
        .iter()
        .map(|item| item.text().ok_or_else(|| text(item)))
        .collect()
}

/// One of several sources: a text, or a mapping of it to its checksum.
fn alternative(item: &Node) -> Result<Value, ValueError> {
    let text = match item.entries() {
        [(source, _)] => Some(source.raw.as_str()),
        _ => item.text(),
    };
    text.map(Value::from)
        .ok_or_else(|| ValueError::Item(item.kind_name()))
}

/// A text as written; `contents` may also be a list of lines.
fn text(name: &str, node: &Node) -> Option<String> {
    match &node.kind {
        NodeKind::List(items) if name == "contents" => {
            let lines: Option<Vec<&str>> = items.iter().map(Node::text).collect();
            lines.map(|lines| lines.join("\n"))
        }
        _ => node.text().map(str::to_owned),
    }
}

/// Variables of a command: a mapping, or a list of mappings.
fn variables(node: &Node) -> Result<Option<Value>, ValueError> {
    let maps: Vec<&Node> = match &node.kind {
        NodeKind::List(items) => items.iter().collect(),
        _ => vec![node],
    };
    let mut found = Map::new();
    for map in maps {
        let NodeKind::Map(entries) = &map.kind else {
            return Ok(None);
        };
        for (key, value) in entries {
            let value = value
                .text()
                .ok_or_else(|| ValueError::Variable(key.raw.clone()))?;
            found.insert(key.raw.clone(), Value::from(value));
        }
    }
    Ok(Some(Value::Object(found)))
}

/// A package: its name, or the name with a version.
fn package(item: &Node) -> Result<Value, ValueError> {
    let NodeKind::Map(entries) = &item.kind else {
        let name = item.text().map(Value::from);
        return name.ok_or_else(|| ValueError::Item(item.kind_name()));
    };
    let [(name, version)] = entries.as_slice() else {
        let names: Vec<&str> = entries.iter().map(|(name, _)| name.raw.as_str()).collect();
        return Err(ValueError::Packages(names.join(", ")));
    };
    if matches!(version.kind, NodeKind::Null) {
        return Ok(Value::from(name.raw.as_str()));
    }
    match version.text() {
        Some(version) => Ok(Value::Object(Map::from_iter([(
            name.raw.clone(),
            Value::from(version),
        )]))),
        None => Err(ValueError::Version(name.raw.clone())),
    }
}

/// Reads a file mode: `0644`, `'0644'`, `644` or `0o644`, always octal.
fn mode(raw: &str) -> Option<u32> {
    let digits = raw.strip_prefix("0o").unwrap_or(raw);
    if !(1..=5).contains(&digits.len()) {
        return None;
    }
    u32::from_str_radix(digits, 8)
        .ok()
        .filter(|mode| *mode <= 0o7777 && digits.chars().all(|c| c.is_digit(8)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_octal_however_written() {
        for raw in ["0644", "644", "0o644"] {
            assert_eq!(mode(raw), Some(0o644), "{raw}");
        }
        assert_eq!(mode("1777"), Some(0o1777));
        for raw in ["", "888", "u=rw", "77777", "+644", "-1"] {
            assert_eq!(mode(raw), None, "{raw}");
        }
    }
}
