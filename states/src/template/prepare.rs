//! Salt's own tags, rewritten to tags of the template engine; line numbers do not change.

use super::lines::tag_end;

/// A renderer in the first line of a template that does not exist.
#[derive(Debug, thiserror::Error)]
#[error("there is no renderer `{0}`; use `jinja|yaml` (the default) or `yaml`")]
pub(super) struct UnknownRenderer(String);

/// A template in the language of the engine.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The text for the engine.
    pub text: String,
    /// False for `#!yaml`: the file is not a template.
    pub template: bool,
}

/// Rewrites `import_yaml`, `import_json`, `import_text`, `load_yaml`, `load_json`, `load_text`, and
/// sets `tplfile`, `tplpath` and `tpldir`.
///
/// # Errors
/// The first line names an unknown renderer.
pub(super) fn prepare(path: &str, source: &str) -> Result<Prepared, UnknownRenderer> {
    let mut body = source.to_owned();
    // `#!/bin/sh` is a script's own line, not a renderer.
    let renderer = |line: &&str| line.starts_with("#!") && !line[2..].trim_start().starts_with('/');
    if let Some(first) = source.lines().next().filter(renderer) {
        match first[2..].trim() {
            "jinja|yaml" | "jinja" => {}
            "yaml" => {
                return Ok(Prepared {
                    text: blank_first_line(source),
                    template: false,
                });
            }
            other => {
                return Err(UnknownRenderer(other.to_owned()));
            }
        }
        body = blank_first_line(source);
    }
    let directory = path.rsplit_once('/').map_or("", |(directory, _)| directory);
    let mut text = format!(
        "{{% set tplfile = {} %}}{{% set tplpath = tplfile %}}{{% set tpldir = {} %}}",
        quoted(path),
        quoted(if directory.is_empty() { "." } else { directory })
    );
    let mut rest = body.as_str();
    while let Some(at) = rest.find('{') {
        text.push_str(&rest[..at]);
        rest = &rest[at..];
        if !["{{", "{%", "{#"].iter().any(|open| rest.starts_with(open)) {
            text.push('{');
            rest = &rest[1..];
            continue;
        }
        let end = tag_end(rest);
        text.push_str(&rewrite(&rest[..end]).unwrap_or_else(|| rest[..end].to_owned()));
        rest = &rest[end..];
    }
    text.push_str(rest);
    Ok(Prepared {
        text,
        template: true,
    })
}

fn blank_first_line(source: &str) -> String {
    source
        .find('\n')
        .map_or_else(String::new, |at| source[at..].to_owned())
}

/// The engine's form of one of Salt's tags; `None` when it is not one.
fn rewrite(tag: &str) -> Option<String> {
    let inside = tag.strip_prefix("{%")?.strip_suffix("%}")?;
    let (open, inside) = dash(inside);
    let (close, inside) = match inside.strip_suffix(['-', '+']) {
        Some(shorter) => (&inside[shorter.len()..], shorter),
        None => ("", inside),
    };
    let lines = "\n".repeat(tag.matches('\n').count());
    let words = inside.trim();
    for format in ["yaml", "json", "text"] {
        if let Some(rest) = words
            .strip_prefix(&format!("import_{format}"))
            .filter(|rest| begins_word(rest))
        {
            let rest = rest.trim_end();
            let rest = rest
                .strip_suffix("with context")
                .or_else(|| rest.strip_suffix("without context"))
                .unwrap_or(rest)
                .trim_end();
            let (file, name) = rest.rsplit_once(" as ")?;
            return Some(format!(
                "{{%{open} set {} = import_{format}({}) {lines}{close}%}}",
                name.trim(),
                file.trim()
            ));
        }
        if let Some(rest) = words
            .strip_prefix(&format!("load_{format}"))
            .filter(|rest| begins_word(rest))
        {
            let name = rest.trim().strip_prefix("as ")?.trim();
            return Some(format!(
                "{{%{open} set {name} | load_{format} {lines}{close}%}}"
            ));
        }
    }
    (words == "endload").then(|| format!("{{%{open} endset {lines}{close}%}}"))
}

fn dash(text: &str) -> (&str, &str) {
    match text.strip_prefix(['-', '+']) {
        Some(rest) => (&text[..1], rest),
        None => ("", text),
    }
}

fn begins_word(rest: &str) -> bool {
    rest.starts_with(|c: char| c.is_whitespace() || c == '"' || c == '\'')
}

/// A text as a string literal of the template language.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after_head(text: &str) -> String {
        let text = prepare("a/b.sls", text).unwrap().text;
        text.split_once("\"a\" %}").unwrap().1.to_owned()
    }

    #[test]
    fn rewrites_salts_tags() {
        for (from, to) in [
            (
                "{% import_yaml 'x.yaml' as y %}",
                "{% set y = import_yaml('x.yaml') %}",
            ),
            (
                "{%- import_json tpldir ~ '/x' as y with context -%}",
                "{%- set y = import_json(tpldir ~ '/x') -%}",
            ),
            (
                "{% load_yaml as y %}a: 1{% endload %}",
                "{% set y | load_yaml %}a: 1{% endset %}",
            ),
            (
                "{% import 'x' as y %}{{ a }}{",
                "{% import 'x' as y %}{{ a }}{",
            ),
            (
                "{% import_yaml\n 'x' as y %}",
                "{% set y = import_yaml('x') \n%}",
            ),
        ] {
            assert_eq!(after_head(from), to);
        }
    }

    #[test]
    fn renderers_are_named_in_the_first_line() {
        assert_eq!(prepare("x", "#!yaml\na: {{\n").unwrap().text, "\na: {{\n");
        assert!(
            prepare("x", "#!py\n")
                .unwrap_err()
                .to_string()
                .contains("`py`")
        );
        assert!(
            prepare("x", "#!/bin/sh\n")
                .unwrap()
                .text
                .ends_with("#!/bin/sh\n")
        );
        assert!(after_head("#!jinja|yaml\na").ends_with("\na"));
    }
}
