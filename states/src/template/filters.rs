//! Salt's filters.

use std::sync::OnceLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minijinja::value::{Kwargs, Tuple, ValueKind};
use minijinja::{Environment, Error, ErrorKind, UndefinedBehavior, Value};
use regex::{Regex, RegexBuilder};
use serde_json::Value as Json;
use sha2::{Digest, Sha256, Sha512};

use super::error::{caused, invalid};
use super::lists::is_list;
use super::values::{deep_copy, dictionary, from_json, from_node, to_json, typed_key};
use super::{dump, lines, merge, methods, network, patch, serialize};
use crate::target::pattern::RegexError;

/// The environment of all filters, without guards.
pub(super) fn unguarded() -> &'static Environment<'static> {
    static ENV: OnceLock<Environment<'static>> = OnceLock::new();
    ENV.get_or_init(|| {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        env.set_unknown_method_callback(methods::call);
        network::add(&mut env);
        serialize::add(&mut env);
        texts(&mut env);
        structures(&mut env);
        env
    })
}

/// A regular expression; `flags` are Salt's `ignorecase` and `multiline`.
pub(super) fn compile(pattern: &str, flags: Option<&Kwargs>) -> Result<Regex, Error> {
    let mut builder = RegexBuilder::new(pattern);
    if let Some(flags) = flags {
        builder.case_insensitive(flags.get::<Option<bool>>("ignorecase")?.unwrap_or(false));
        builder.multi_line(flags.get::<Option<bool>>("multiline")?.unwrap_or(false));
        flags.assert_all_used()?;
    }
    builder.size_limit(1 << 20).build().map_err(|error| {
        caused(
            format!("`{pattern}` is not a regular expression"),
            RegexError::from(error),
        )
    })
}

/// The groups of the first match as a tuple, or the whole match if the pattern has no groups.
fn groups(regex: &Regex, text: &str) -> Value {
    let Some(found) = regex.captures(text) else {
        return Value::from(());
    };
    let group = |group: Option<regex::Match<'_>>| {
        group.map_or_else(|| Value::from(()), |group| group.as_str().into())
    };
    let whole = usize::from(found.len() > 1);
    let groups: Vec<Value> = found.iter().skip(whole).map(group).collect();
    Value::from(Tuple::from(groups))
}

fn texts(env: &mut Environment<'static>) {
    env.add_filter("yaml_encode", |value: &Value| -> Result<String, Error> {
        match to_json(value)? {
            Json::Array(_) | Json::Object(_) => Err(invalid(
                "yaml_encode takes a scalar; use `yaml` for lists and mappings",
            )),
            scalar => Ok(dump::flow(&scalar)),
        }
    });
    env.add_filter("yaml_dquote", |value: &Value| {
        dump::flow(&Json::from(value.to_string()))
    });
    env.add_filter("yaml_squote", |value: &Value| {
        format!("'{}'", value.to_string().replace('\'', "''"))
    });
    env.add_filter("quote", |value: &Value| {
        let text = value.to_string();
        let plain = |c: char| c.is_ascii_alphanumeric() || "@%+=:,./-_".contains(c);
        if !text.is_empty() && text.chars().all(plain) {
            text
        } else {
            format!("'{}'", text.replace('\'', "'\"'\"'"))
        }
    });
    env.add_filter("to_bool", |value: &Value| match value.kind() {
        ValueKind::String => {
            matches!(
                value.as_str().unwrap_or_default().to_lowercase().as_str(),
                "yes" | "1" | "true"
            )
        }
        // Salt takes a number with a fraction for false.
        ValueKind::Number => {
            i64::try_from(value.clone()).is_ok_and(|number| value.is_integer() && number > 0)
        }
        _ => value.is_true(),
    });
    for name in ["base64_encode", "b64encode"] {
        env.add_filter(name, |value: &Value| STANDARD.encode(value.to_string()));
    }
    for name in ["base64_decode", "b64decode"] {
        env.add_filter(name, |value: &str| -> Result<String, Error> {
            let bytes = STANDARD
                .decode(value.trim())
                .map_err(|error| caused("the text is not base64", error))?;
            String::from_utf8(bytes)
                .map_err(|error| caused("the decoded base64 is not text", error))
        });
    }
    // Halite's own: a Kubernetes object with strategic merge patches applied, in order.
    env.add_filter(
        "strategic_merge",
        |object: &Value, patches: &Value| -> Result<Value, Error> {
            let (Json::Object(mut object), Json::Array(patches)) =
                (to_json(object)?, to_json(patches)?)
            else {
                return Err(invalid(
                    "strategic_merge takes a mapping and a list of mappings",
                ));
            };
            for one in patches.iter().filter_map(Json::as_object) {
                patch::strategic_merge(&mut object, one);
            }
            Ok(from_json(&Json::Object(object)))
        },
    );
    env.add_filter("indent", indent);
    env.add_filter("sha256", |value: &Value| {
        hex(&Sha256::digest(value.to_string()))
    });
    env.add_filter("sha512", |value: &Value| {
        hex(&Sha512::digest(value.to_string()))
    });
    env.add_filter("regex_escape", |value: &str| -> String {
        let special = |c: char| "()[]{}?*+-|^$\\.&~# \t\n\r\x0b\x0c".contains(c);
        value
            .chars()
            .flat_map(|c| special(c).then_some('\\').into_iter().chain([c]))
            .collect()
    });
    env.add_filter(
        "replace",
        |text: &Value, from: &str, to: &Value, count: Option<usize>| {
            let (text, to) = (text.to_string(), to.to_string());
            match count {
                Some(count) => text.replacen(from, &to, count),
                None => text.replace(from, &to),
            }
        },
    );
    env.add_filter(
        "regex_match",
        |value: &str, pattern: &str, flags: Kwargs| {
            Ok::<_, Error>(groups(
                &compile(&format!("^(?:{pattern})"), Some(&flags))?,
                value,
            ))
        },
    );
    env.add_filter(
        "regex_search",
        |value: &str, pattern: &str, flags: Kwargs| {
            Ok::<_, Error>(groups(&compile(pattern, Some(&flags))?, value))
        },
    );
    env.add_filter(
        "regex_replace",
        |value: &str, pattern: &str, with: &str, flags: Kwargs| {
            let regex = compile(pattern, Some(&flags))?;
            Ok::<_, Error>(
                regex
                    .replace_all(value, replacement(with).as_str())
                    .into_owned(),
            )
        },
    );
}

/// Jinja's `indent(width=4, first=False, blank=False)`: a newline at the end stays.
fn indent(
    text: &Value,
    width: Option<&Value>,
    first: Option<bool>,
    blank: Option<bool>,
    kwargs: Kwargs,
) -> Result<String, Error> {
    let width = match width {
        Some(width) => Some(width.clone()),
        None => kwargs.get("width")?,
    };
    let first = first.or(kwargs.get("first")?).unwrap_or(false);
    let blank = blank.or(kwargs.get("blank")?).unwrap_or(false);
    kwargs.assert_all_used()?;
    let pad = match width.unwrap_or_else(|| Value::from(4)) {
        width if width.kind() == ValueKind::String => width.to_string(),
        width => " ".repeat(usize::try_from(width)?.min(1000)),
    };
    let text = text.to_string();
    let mut out = if first { pad.clone() } else { String::new() };
    for (number, line) in text.split('\n').enumerate() {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if number > 0 {
            out.push('\n');
            if blank || !line.is_empty() {
                out.push_str(&pad);
            }
        }
        out.push_str(line);
    }
    Ok(out)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Python's `\1` and `\g<name>` as the regex crate writes them.
fn replacement(python: &str) -> String {
    let mut out = String::new();
    let mut chars = python.chars().peekable();
    while let Some(c) = chars.next() {
        match (c, chars.peek().copied()) {
            ('$', _) => out.push_str("$$"),
            ('\\', Some(digit)) if digit.is_ascii_digit() => {
                chars.next();
                out.push_str(&format!("${{{digit}}}"));
            }
            ('\\', Some('g')) => {
                chars.next();
                let name: String = chars
                    .by_ref()
                    .skip_while(|c| *c == '<')
                    .take_while(|c| *c != '>')
                    .collect();
                out.push_str(&format!("${{{name}}}"));
            }
            ('\\', Some('\\')) => {
                chars.next();
                out.push('\\');
            }
            _ => out.push(c),
        }
    }
    out
}

fn structures(env: &mut Environment<'static>) {
    env.add_filter("is_list", is_list);
    env.add_filter("unique", |values: &Value| -> Result<Vec<Value>, Error> {
        let mut unique: Vec<Value> = Vec::new();
        for item in values.try_iter()? {
            if !unique.contains(&item) {
                unique.push(item);
            }
        }
        Ok(unique)
    });
    env.add_filter("is_iter", |value: &Value| {
        matches!(
            value.kind(),
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable
        )
    });
    env.add_filter("sequence", |value: Value| match value.kind() {
        ValueKind::Seq | ValueKind::Map | ValueKind::Iterable => value,
        _ => Value::from(vec![value]),
    });
    env.add_filter("load_yaml", |text: &Value| -> Result<Value, Error> {
        let text = lines::strip(&text.to_string());
        let node = halite_secrets::yaml::parse("load_yaml", &text)
            .map_err(|problem| caused("the text is not YAML", problem))?;
        Ok(from_node(&node))
    });
    env.add_filter("load_json", |text: &Value| -> Result<Value, Error> {
        let json: Json = serde_json::from_str(&lines::strip(&text.to_string()))
            .map_err(|error| caused("the text is not JSON", error))?;
        Ok(from_json(&json))
    });
    env.add_filter("load_text", |text: &Value| text.to_string());
    env.add_filter(
        "traverse",
        |value: &Value, path: &str, default: Option<Value>, delimiter: Option<&str>| {
            Ok::<_, Error>(
                traverse(value, path, delimiter.unwrap_or(":"))?
                    .or(default)
                    .unwrap_or_else(|| Value::from(())),
            )
        },
    );
    env.add_filter(
        "set_dict_key_value",
        |value: &Value, path: &str, new: &Value, delimiter: Option<&str>| {
            let copy = match value.kind() {
                ValueKind::Map => deep_copy(value),
                _ => dictionary([]),
            };
            if new.is_undefined() {
                return Err(Error::from(ErrorKind::UndefinedError));
            }
            let parts: Vec<&str> = path.split(delimiter.unwrap_or(":")).collect();
            let mut place = copy.clone();
            for (number, part) in parts.iter().enumerate() {
                let key = Value::from(*part);
                let old = place.get_item(&key)?;
                let next = match (number + 1 == parts.len(), old.kind()) {
                    (true, _) => deep_copy(new),
                    (false, ValueKind::Map) => old,
                    (false, _) => dictionary([]),
                };
                merge::set(&place, &key, next.clone())?;
                place = next;
            }
            Ok::<_, Error>(copy)
        },
    );
    env.add_filter("max", |items: &Value| -> Result<Value, Error> {
        Ok(items.try_iter()?.max().unwrap_or_default())
    });
    env.add_filter("min", |items: &Value| -> Result<Value, Error> {
        Ok(items.try_iter()?.min().unwrap_or_default())
    });
    for (name, keep) in [
        ("union", (|_, _| true) as fn(bool, bool) -> bool),
        ("intersect", |a, b| a && b),
        ("difference", |a, b| a && !b),
        ("symmetric_difference", |a, b| a != b),
    ] {
        env.add_filter(
            name,
            move |one: &Value, two: &Value| -> Result<Vec<Value>, Error> {
                let (one, two): (Vec<Value>, Vec<Value>) =
                    (one.try_iter()?.collect(), two.try_iter()?.collect());
                let mut kept: Vec<Value> = Vec::new();
                for item in one.iter().chain(&two) {
                    if keep(one.contains(item), two.contains(item)) && !kept.contains(item) {
                        kept.push(item.clone());
                    }
                }
                Ok(kept)
            },
        );
    }
}

/// Follows a path through dictionaries and lists, as `pillar.get` does: in a list a number is an
/// index, from its end if it is negative, and a name the key of the first dictionary that has it.
pub(super) fn traverse(value: &Value, path: &str, delimiter: &str) -> Result<Option<Value>, Error> {
    let mut at = value.clone();
    for part in path.split(delimiter) {
        let next = match at.kind() {
            ValueKind::Seq => match part.parse::<i64>() {
                Ok(number) => at.get_item(&Value::from(number))?,
                Err(_) => at
                    .try_iter()?
                    .filter(|item| item.kind() == ValueKind::Map)
                    .find_map(|item| item.get_item(&Value::from(part)).ok().filter(is_there))
                    .unwrap_or_default(),
            },
            ValueKind::Map => match at.get_item(&Value::from(part))? {
                next if next.is_undefined() => at.get_item(&typed_key(part))?,
                next => next,
            },
            _ => Value::UNDEFINED,
        };
        if next.is_undefined() {
            return Ok(None);
        }
        at = next;
    }
    Ok(Some(at))
}

fn is_there(value: &Value) -> bool {
    !value.is_undefined()
}

#[cfg(test)]
mod tests {
    use super::super::guard::Purpose;
    use super::super::guard::tests::render;

    #[test]
    fn filters_are_salts() {
        for (text, wanted) in [
            ("{{ {'a': [1, True]} | tojson }}", r#"{"a": [1, true]}"#),
            ("{{ {'a': [1]} | yaml(False) }}", "a:\n- 1"),
            (
                "{{ 'x\"y' | yaml_dquote }} {{ 5 | yaml_encode }}",
                r#""x\"y" 5"#,
            ),
            (
                "{{ 'Yes' | to_bool }} {{ 'no' | to_bool }} {{ 2 | to_bool }}",
                "True False True",
            ),
            (
                "{{ 'abcd' | regex_search('(b)(c)') }} {{ 'x' | regex_match('y') }}",
                "('b', 'c') None",
            ),
            (
                r"{{ 'lets replace spaces' | regex_replace('\s+', '_') }}",
                "lets_replace_spaces",
            ),
            (
                r"{{ 'ab' | regex_replace('(a)(B)', '\\2\\1', ignorecase=True) }}",
                "ba",
            ),
            (
                "{{ 'hi' | base64_encode }} {{ 'aGk=' | b64decode }}",
                "aGk= hi",
            ),
            (
                "{{ [1, 2] | union([2, 3]) }} {{ [1, 2] | difference([2]) }}",
                "[1, 2, 3] [1]",
            ),
            ("{{ {'a': {'b': [5]}} | traverse('a:b:0') }}", "5"),
            (
                "{{ {'a': 1} | set_dict_key_value('b:c', 2) }}",
                "{'a': 1, 'b': {'c': 2}}",
            ),
            (
                "{{ [3, 1] | sort | join('-') }} {{ \"it's\" | quote }}",
                "1-3 'it'\"'\"'s'",
            ),
            ("{{ ['a', 'b'] | map('upper') | list }}", "['A', 'B']"),
            ("{{ missing | default('x') }}", "x"),
        ] {
            assert_eq!(render(text, Purpose::Sls), wanted, "{text}");
        }
    }

    #[test]
    fn groups_have_a_default_and_dictsort_takes_positions() {
        for (text, wanted) in [
            (
                "{% for g in [{'t': 'b'}, {}] | groupby('t', default='a') %}{{ g[0] }}{% endfor %}",
                "ab",
            ),
            (
                "{{ {'a': 2, 'b': 1} | dictsort(false, 'value') }}",
                "[('b', 1), ('a', 2)]",
            ),
            (
                "{{ {'a': 2, 'b': 1} | dictsort(false, reverse=true) }}",
                "[('b', 1), ('a', 2)]",
            ),
        ] {
            assert_eq!(render(text, Purpose::Sls), wanted, "{text}");
        }
        for text in [
            "{{ [{'t': 'b'}, {}] | groupby('t') }}",
            "{{ {'a': 2, 'b': '1'} | dictsort(false, 'value') }}",
        ] {
            let error = render(text, Purpose::Sls);
            assert!(error.contains("in an order"), "{error}");
        }
    }
}
