//! Tags of Salt and Jinja, rewritten to what the template engine has.

use super::expression::{
    Token, format_texts, joined, own_containers, own_sums, refuse_questions_for_functions, tokens,
};

/// Functions that change their first argument, and the one that changes a row of its table.
const CHANGING: &[&str] = &["defaults.", "slsutil.", "filter_by"];

/// In place of `salt` where a template asks which functions exist.
const NO_FUNCTIONS: &str = "raise('a template cannot ask which functions exist: they are those of the \
                            minion in Salt, but templates are rendered on the master; use a grain')";

/// The engine's form of a tag; `None` if it is unchanged.
pub(super) fn rewrite(tag: &str) -> Option<String> {
    let (open, inside, close) = parts(tag)?;
    let statement = if open.starts_with("{%") {
        statement(inside)
    } else {
        None
    };
    let new = match statement {
        // Keeps the lines of the tag if its new text has fewer.
        Some(new) => {
            let lines = inside.matches('\n').count();
            let missing = lines.saturating_sub(new.matches('\n').count());
            format!(" {new} {}", "\n".repeat(missing))
        }
        None => expressions(inside)?,
    };
    Some(format!("{open}{new}{close}"))
}

/// The opening of a tag with its sign, the inside, and its end; `None` for a comment.
pub(super) fn parts(tag: &str) -> Option<(&str, &str, &str)> {
    let close = match tag.get(..2)? {
        "{%" => "%}",
        "{{" => "}}",
        _ => return None,
    };
    let inside = tag.get(2..)?.strip_suffix(close)?;
    let start = 2 + usize::from(inside.starts_with(['-', '+']));
    let end = 2 + inside.len();
    let sign = end > start && inside.ends_with(['-', '+']);
    let end = end - usize::from(sign);
    Some((&tag[..start], &tag[start..end], &tag[end..]))
}

/// The inside of a tag with its expressions rewritten; `None` if it is unchanged.
fn expressions(inside: &str) -> Option<String> {
    let percent = inside.contains('%');
    let word = inside.split_whitespace().next().unwrap_or_default();
    let names = matches!(word, "set" | "do" | "with" | "macro");
    let changes = names || CHANGING.iter().any(|name| inside.contains(name));
    let containers = changes && inside.contains(['{', '[']);
    let sums = word == "set" && inside.contains(['+', '*', ':', '|']);
    let salt = inside.contains("salt") && (inside.contains(" in ") || inside.contains(" is "));
    if !percent && !containers && !sums && !salt {
        return None;
    }
    let mut tokens = tokens(inside)?;

    if salt {
        refuse_questions_for_functions(&mut tokens, NO_FUNCTIONS);
    }
    if percent {
        format_texts(&mut tokens);
    }
    if sums {
        own_sums(&mut tokens);
    }
    if containers {
        own_containers(&mut tokens);
    }
    Some(joined(&tokens))
}

/// The engine's form of a statement that it does not have, or has with another meaning.
fn statement(inside: &str) -> Option<String> {
    let rest = inside.trim_start().strip_prefix("do");
    if let Some(value) = rest.filter(|value| value.starts_with(char::is_whitespace)) {
        // The engine's `do` takes only calls, not `do f() if x`.
        let value = format!("set __done = {}", value.trim());
        return Some(expressions(&value).unwrap_or(value));
    }
    let begins = ["import", "from", "include", "load_", "endload", "with"];
    if !begins
        .iter()
        .any(|word| inside.trim_start().starts_with(word))
    {
        return None;
    }
    let mut tokens = tokens(inside)?;
    format_texts(&mut tokens);
    let (keyword, rest) = tokens.split_first()?;
    for format in ["yaml", "json", "text"] {
        if keyword.is_name(&format!("import_{format}")) {
            let (file, name) = split(rest, "as")?;
            let (name, with_context) = context(name, false);
            let (file, name) = (joined(file), joined(name));
            let (file, name) = (file.trim(), name.trim());
            let imported = if with_context {
                file.to_owned()
            } else {
                format!("__isolate({file})")
            };
            return Some(format!(
                "import {imported} as {name} %}}{{% set {name} = __parse_{format}({name}, {file})"
            ));
        }
        if keyword.is_name(&format!("load_{format}")) {
            let (before, name) = split(rest, "as")?;
            let name = joined(name);
            return (before.is_empty()).then(|| format!("set {} | load_{format}", name.trim()));
        }
    }
    if keyword.is_name("with") {
        return with_values(rest);
    }
    if keyword.is_name("endload") {
        return Some("endset".to_owned());
    }
    let (word, default_context) = match () {
        () if keyword.is_name("import") => ("as", false),
        () if keyword.is_name("from") => ("import", false),
        () if keyword.is_name("include") => {
            let (rest, with_context) = context(rest, true);
            if with_context {
                return None;
            }
            let end = rest.iter().position(|token| token.is_name("ignore"));
            let (file, rest) = rest.split_at(end.unwrap_or(rest.len()));
            let (file, rest) = (joined(file), joined(rest));
            return Some(format!("include __isolate({}){rest}", file.trim()));
        }
        () => return None,
    };
    let (file, names) = split(rest, word)?;
    let (names, with_context) = context(names, default_context);
    if with_context {
        return None;
    }
    let (file, names) = (joined(file), joined(names));
    let (file, names) = (file.trim(), names.trim());
    let keyword = if word == "as" { "import" } else { "from" };
    Some(format!("{keyword} __isolate({file}) {word} {names}"))
}

/// `with` of several names: all values are those outside of it, also where one uses another name.
fn with_values(tokens: &[Token]) -> Option<String> {
    let mut depth = 0usize;
    let assignments: Vec<&[Token]> = tokens
        .split(|token| {
            depth = match () {
                () if token.opens() => depth + 1,
                () if token.closes() => depth.saturating_sub(1),
                () => depth,
            };
            depth == 0 && token.is(",")
        })
        .collect();
    if assignments.len() < 2 {
        return None;
    }
    let (mut values, mut names) = (Vec::new(), Vec::new());
    for (number, assignment) in assignments.iter().enumerate() {
        let [name, sign, value @ ..] = assignment else {
            return None;
        };
        if !sign.is("=") {
            return None;
        }
        let mut value = value.to_vec();
        own_containers(&mut value);
        let value = joined(&value);
        values.push(format!("__with{number} = {}", value.trim()));
        names.push(format!("{} = __with{number}", name.text));
    }
    Some(format!("with {}, {}", values.join(", "), names.join(", ")))
}

/// The tokens before and after a word.
fn split<'t>(tokens: &'t [Token], word: &str) -> Option<(&'t [Token], &'t [Token])> {
    let at = tokens.iter().position(|token| token.is_name(word))?;
    Some((&tokens[..at], &tokens[at + 1..]))
}

/// The tokens without `with context` or `without context` at their end, and whether the context is
/// visible.
fn context(tokens: &[Token], default: bool) -> (&[Token], bool) {
    // The last token is the end of the tag.
    if let [before @ .., with, context, _] = tokens
        && context.is_name("context")
    {
        if with.is_name("with") {
            return (before, true);
        }
        if with.is_name("without") {
            return (before, false);
        }
    }
    (tokens, default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_the_engines() {
        for (from, to) in [
            (
                "{% import_yaml 'x.yaml' as y %}",
                "{% import __isolate('x.yaml') as y %}{% set y = __parse_yaml(y, 'x.yaml') %}",
            ),
            (
                "{%- import_json tpldir ~ '/x' as y with context -%}",
                "{%- import tpldir ~ '/x' as y %}{% set y = __parse_json(y, tpldir ~ '/x') -%}",
            ),
            ("{% load_yaml as y %}", "{% set y | load_yaml %}"),
            ("{%- endload -%}", "{%- endset -%}"),
            (
                "{% import_text\n 'x' as y %}",
                "{% import __isolate('x') as y %}{% set y = __parse_text(y, 'x') \n%}",
            ),
            ("{% import 'x' as y %}", "{% import __isolate('x') as y %}"),
            (
                "{% from 'x' import a, b as c %}",
                "{% from __isolate('x') import a, b as c %}",
            ),
            (
                "{% from 'import' import a without context %}",
                "{% from __isolate('import') import a %}",
            ),
            (
                "{% include 'x' ignore missing without context %}",
                "{% include __isolate('x') ignore missing %}",
            ),
            (
                "{{ 'a.b' in salt and x in salt['a'] and salt.a.b is not defined and y.salt is defined }}",
                "{{ 'a.b' in R and x in salt['a'] and R.a.b is not defined and y.salt is defined }}",
            ),
            (
                "{% if salt['a.b'] is defined and salt['a.b']() is defined %}",
                "{% if R['a.b'] is defined and salt['a.b']() is defined %}",
            ),
            (
                "{% with a = [1, 2], b = a %}",
                "{% with __with0 = __list([1, 2]), __with1 = a, a = __with0, b = __with1 %}",
            ),
            (
                "{% set x = {'a': '%s' % 1} %}",
                "{% set x = __dictionary({'a': __format_text('%s', 1)}) %}",
            ),
        ] {
            let rewritten = rewrite(from).unwrap().replace(NO_FUNCTIONS, "R");
            assert_eq!(rewritten, to, "{from}");
        }
        for same in [
            "{% import 'x' as y with context %}",
            "{% from 'x' import a with context %}",
            "{% include 'x' %}",
            "{% include 'x' ignore missing with context %}",
            "{{ {'a': 1} }}",
            "{# % #}",
            "{% with a = 1 %}",
            "{% set a = 1 %}",
        ] {
            assert_eq!(rewrite(same), None, "{same}");
        }
    }
}
