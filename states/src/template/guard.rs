//! Guards around all filters and tests of templates: none may compute with a reference to a secret,
//! because the result would be wrong.

use minijinja::value::{Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State, Value};

use super::filter_arguments::{arranged, refuse_unordered};
use super::filters::{compile, unguarded};
use super::lists;
use super::values::{Secret, holds_secret};

/// Filters that pass a secret on without reading it.
const PASS: &[&str] = &[
    "attr",
    "batch",
    "chain",
    "default",
    "d",
    "dictsort",
    "first",
    "groupby",
    "items",
    "last",
    "list",
    "load_json",
    "load_text",
    "load_yaml",
    "map",
    "reject",
    "rejectattr",
    "safe",
    "select",
    "selectattr",
    "sequence",
    "set_dict_key_value",
    "slice",
    "string",
    "traverse",
    "zip",
    "union",
    "join",
];

/// Filters whose result is parsed as YAML or JSON before the secret is filled in: allowed in an
/// SLS, wrong in a file.
const QUOTE: &[&str] = &[
    "indent",
    "json",
    "tojson",
    "yaml",
    "yaml_dquote",
    "yaml_encode",
    "yaml_squote",
];

/// All other filters, the engine's and Halite's; none may take a secret.
const OTHERS: &[&str] = &[
    "abs",
    "bool",
    "capitalize",
    "count",
    "e",
    "escape",
    "float",
    "format",
    "int",
    "length",
    "lines",
    "lower",
    "max",
    "min",
    "pprint",
    "replace",
    "reverse",
    "round",
    "sort",
    "split",
    "sum",
    "title",
    "trim",
    "unique",
    "upper",
    "base64_decode",
    "base64_encode",
    "b64decode",
    "b64encode",
    "difference",
    "in_network",
    "intersect",
    "ipaddr",
    "ipv4",
    "ipv6",
    "is_ip",
    "is_ipv4",
    "is_ipv6",
    "is_iter",
    "is_list",
    "network_host",
    "network_hosts",
    "network_prefix",
    "network_size",
    "quote",
    "regex_escape",
    "regex_match",
    "regex_replace",
    "regex_search",
    "sha256",
    "sha512",
    "strategic_merge",
    "symmetric_difference",
    "to_bool",
];

/// Filters whose result is a new list, which the template may change.
const NEW_LISTS: &[&str] = &[
    "difference",
    "intersect",
    "lines",
    "list",
    "sort",
    "split",
    "symmetric_difference",
    "union",
    "unique",
];

/// The use of a rendered text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Purpose {
    /// YAML that is parsed before secrets are filled in.
    Sls,
    /// A file; secrets are filled into the finished text.
    File,
}

/// Adds all filters and tests to an environment.
pub(super) fn add(env: &mut Environment<'static>, purpose: Purpose) {
    for name in PASS.iter().chain(QUOTE).chain(OTHERS) {
        env.add_filter(
            *name,
            move |_: &mut State, args: Rest<ValueOrKwargs>| -> Result<Value, Error> {
                let args: Vec<Value> = args.0.into_iter().map(ValueOrKwargs::into_value).collect();
                let args = arranged(name, args)?;
                guard(name, &args, purpose)?;
                refuse_undefined(name, &args)?;
                refuse_unordered(name, &args)?;
                let value = unguarded().empty_state().apply_filter(name, &args)?;
                Ok(if NEW_LISTS.contains(name) && lists::is_list(&value) {
                    lists::list(value.try_iter()?)
                } else {
                    value
                })
            },
        );
    }
    for name in READING {
        env.add_test(*name, move |args: Rest<Value>| -> Result<bool, Error> {
            if args.0.iter().any(holds_secret) {
                return Err(secret_tested(name));
            }
            unguarded().empty_state().perform_test(name, &args.0)
        });
    }
    for (name, whole) in [("match", true), ("search", false)] {
        env.add_test(name, move |value: &str, pattern: &str, flags: Kwargs| {
            let pattern = if whole {
                format!("^(?:{pattern})")
            } else {
                pattern.to_owned()
            };
            Ok::<_, Error>(compile(&pattern, Some(&flags))?.is_match(value))
        });
    }
    env.add_test("list", lists::is_list);
    // As in Python, a value with a length and elements by number or key.
    env.add_test("sequence", |value: &Value| match value.kind() {
        ValueKind::String | ValueKind::Seq | ValueKind::Map => true,
        ValueKind::Iterable => value.len().is_some(),
        _ => false,
    });
}

/// The engine's tests that read a value.
const READING: &[&str] = &[
    "!=",
    "<",
    "<=",
    "==",
    ">",
    ">=",
    "divisibleby",
    "endingwith",
    "eq",
    "equalto",
    "even",
    "false",
    "filter",
    "ge",
    "greaterthan",
    "gt",
    "in",
    "le",
    "lessthan",
    "lower",
    "lt",
    "ne",
    "odd",
    "sameas",
    "startingwith",
    "test",
    "true",
    "upper",
];

fn secret_tested(name: &str) -> Error {
    Error::new(
        ErrorKind::InvalidOperation,
        format!(
            "`{name}` cannot test a secret: a template sees only a reference to it, so the result would be wrong"
        ),
    )
}

/// Refuses `select`, `reject` and their forms for attributes if their test would read a secret.
fn refuse_selection(name: &str, args: &[Value]) -> Result<(), Error> {
    let by_attribute = matches!(name, "selectattr" | "rejectattr");
    if !by_attribute && !matches!(name, "select" | "reject") {
        return Ok(());
    }
    let (Some(items), path) = (
        args.first().filter(|items| items.len().is_some()),
        args.get(1).filter(|_| by_attribute).and_then(Value::as_str),
    ) else {
        return Ok(());
    };
    let test = args.get(1 + usize::from(by_attribute));
    let test = test.and_then(Value::as_str).unwrap_or("true");
    if TESTS_OF_KIND.contains(&test) {
        return Ok(());
    }
    let of = |at: Value, part: &str| at.get_attr(part).unwrap_or_default();
    let reads = |item: Value| match path {
        Some(path) => holds_secret(&path.split('.').fold(item, of)),
        None => holds_secret(&item),
    };
    if items.kind() != ValueKind::String && items.try_iter()?.any(reads) {
        return Err(secret_tested(test));
    }
    Ok(())
}

/// Tests of a value's kind only; they also accept undefined values.
const TESTS_OF_KIND: &[&str] = &[
    "defined",
    "undefined",
    "none",
    "string",
    "number",
    "mapping",
    "iterable",
    "sequence",
    "list",
    "boolean",
    "integer",
    "float",
    "callable",
];

/// Refuses undefined values where the engine would take them for empty or false.
fn refuse_undefined(name: &str, args: &[Value]) -> Result<(), Error> {
    let Some(items) = args.first().filter(|items| items.len().is_some()) else {
        return Ok(());
    };
    let undefined = match name {
        "join" if items.kind() != ValueKind::String => {
            items.try_iter()?.any(|item| item.is_undefined())
        }
        "selectattr" | "rejectattr" => {
            let test = args.get(2).and_then(Value::as_str);
            let Some(path) = args.get(1).and_then(Value::as_str) else {
                return Ok(());
            };
            !test.is_some_and(|test| TESTS_OF_KIND.contains(&test))
                && items.try_iter()?.any(|item| {
                    let of = |at: Value, part: &str| at.get_attr(part).unwrap_or_default();
                    path.split('.').fold(item, of).is_undefined()
                })
        }
        _ => false,
    };
    if undefined {
        return Err(Error::new(
            ErrorKind::UndefinedError,
            format!("an item that `{name}` reads is undefined"),
        ));
    }
    Ok(())
}

/// Refuses a filter that would compute with a secret.
pub(super) fn guard(name: &str, args: &[Value], purpose: Purpose) -> Result<(), Error> {
    if !args.iter().any(holds_secret) {
        return Ok(());
    }
    refuse_selection(name, args)?;
    let itself = args.first().is_some_and(|value| {
        value.downcast_object_ref::<Secret>().is_some() || value.kind() == ValueKind::String
    });
    let reads_it = match name {
        "first" | "last" | "list" | "batch" | "slice" => itself,
        // `map(attribute='x')` passes on, `map('upper')` computes.
        "map" => !args.get(1).is_some_and(Value::is_kwargs),
        _ => false,
    };
    let passes = PASS.contains(&name) && !reads_it;
    if passes || (purpose == Purpose::Sls && QUOTE.contains(&name)) {
        return Ok(());
    }
    let why = if QUOTE.contains(&name) {
        "the text of the file is finished before the secret, which may have several lines, is put in"
    } else {
        "a template sees only a reference to it, so the result would be wrong"
    };
    Err(Error::new(
        ErrorKind::InvalidOperation,
        format!("`{name}` cannot be used on a secret: {why}"),
    ))
}

/// Refuses a method that would compute with a secret.
pub(super) fn guard_method(method: &str, value: &Value, args: &[Value]) -> Result<(), Error> {
    let on_text =
        value.kind() == ValueKind::String || value.downcast_object_ref::<Secret>().is_some();
    let fine = matches!(method, "join" | "format");
    if on_text && !fine && std::iter::once(value).chain(args).any(holds_secret) {
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            format!(
                "`{method}` cannot be used on a secret: a template sees only a reference to it, so the result would be wrong"
            ),
        ));
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests {
    use minijinja::UndefinedBehavior;
    use serde_json::json;

    use super::super::values::from_json;
    use super::*;

    /// The rendered text or the error; `s` and `d.k` are secrets, `t` is a text.
    pub(in crate::template) fn render(text: &str, purpose: Purpose) -> String {
        let mut env = Environment::new();
        env.set_undefined_behavior(UndefinedBehavior::Strict);
        add(&mut env, purpose);
        let context = from_json(
            &json!({"s": "halite-secret::pki.key::", "d": {"k": "halite-secret::x::"}, "t": "text"}),
        );
        env.render_str(text, context)
            .unwrap_or_else(|error| error.to_string())
    }

    #[test]
    fn secrets_can_be_passed_on_but_not_computed_with() {
        for text in [
            "{{ s }}",
            "{{ 'a ' ~ s }}",
            "{{ s | default('x') }}",
            "{{ [s, 'a'] | join(' ') }}",
            "{{ d | items | list }}",
            "{{ s }}{{ s is defined }}{{ s is string }}",
            "{{ [d] | selectattr('k', 'defined') | list }}",
        ] {
            for purpose in [Purpose::Sls, Purpose::File] {
                assert!(render(text, purpose).contains("halite-secret::"), "{text}");
            }
        }
        for text in [
            "{{ s | indent(8) }}",
            "{{ d | tojson }}",
            "{{ s | yaml_dquote }}",
            "{{ d | yaml(False) }}",
        ] {
            assert!(
                render(text, Purpose::Sls).contains("halite-secret::"),
                "{text}"
            );
            assert!(
                render(text, Purpose::File).contains("cannot be used on a secret"),
                "{text}"
            );
        }
        for text in [
            "{{ s | b64encode }}",
            "{{ s | upper }}",
            "{{ s | length }}",
            "{{ s | sha256 }}",
            "{{ s | trim }}",
            "{{ s | replace('a', 'b') }}",
            "{{ ('x' ~ s) | upper }}",
            "{{ s | regex_search('x') }}",
            "{{ s | first }}",
            "{{ [s] | map('upper') | list }}",
            "{{ s[2:5] }}",
            "{{ s | list }}",
            "{{ s.split(':') }}",
            "{{ s is eq 'x' }}",
            "{{ 'x' is in [s] }}",
            "{{ [s] | select('equalto', 'x') | list }}",
            "{{ [d] | selectattr('k', 'equalto', 'x') | list }}",
            "{{ [d] | rejectattr('k') | list }}",
        ] {
            for purpose in [Purpose::Sls, Purpose::File] {
                let out = render(text, purpose);
                assert!(
                    out.contains("secret") && out.contains("cannot") || out.contains("(in "),
                    "{text}: {out}"
                );
            }
        }
    }
}
