//! Templates in the language of the template engine; line numbers do not change.

use super::lines::replace_tags;
use super::{tags, variadic};

/// A first line that is not understood.
#[derive(Debug, thiserror::Error)]
pub(super) enum HeaderError {
    /// A renderer that does not exist.
    #[error("there is no renderer `{0}`; use `jinja|yaml` (the default) or `yaml`")]
    Renderer(String),
    /// Options of the template engine.
    #[error(
        "`#jinja2:` and options are not supported; remove the line, and write `-%}}` where \
         `trim_blocks` would remove a newline and `{{%-` where `lstrip_blocks` would remove blanks"
    )]
    Options,
}

/// A template in the language of the engine.
#[derive(Debug)]
pub(super) struct Prepared {
    /// The text for the engine.
    pub text: String,
    /// False for `#!yaml`: the file is not a template.
    pub template: bool,
}

/// Rewrites Salt's own tags (`import_yaml`, `load_yaml`, …), imports without context and `%` of
/// texts; a file that is imported without context gets its own `tplfile`, `tplpath` and `tpldir`.
///
/// # Errors
/// The first line, or the second after a renderer, is not understood.
pub(super) fn prepare(path: &str, source: &str) -> Result<Prepared, HeaderError> {
    let mut body = source.to_owned();
    // `#!/bin/sh` is a script's own line, not a renderer.
    let renderer = |line: &&str| line.starts_with("#!") && !line[2..].trim_start().starts_with('/');
    let mut lines = source.lines();
    let mut first = lines.next();
    if let Some(line) = first.filter(renderer) {
        match line[2..].trim() {
            "jinja|yaml" | "jinja" => {}
            "yaml" => {
                return Ok(Prepared {
                    text: blank_first_line(source),
                    template: false,
                });
            }
            other => {
                return Err(HeaderError::Renderer(other.to_owned()));
            }
        }
        body = blank_first_line(source);
        first = lines.next();
    }
    let options = first.and_then(|line| line.strip_prefix("#jinja2:"));
    if options.is_some_and(|options| !options.trim().is_empty()) {
        return Err(HeaderError::Options);
    }
    let text = own_place(path) + &variadic::rewrite(replace_tags(&body, tags::rewrite));
    Ok(Prepared {
        text,
        template: true,
    })
}

/// Statements that set a file's own `tplfile`, `tplpath` and `tpldir` if it, or a file that imports
/// it, was imported without context. All other files have those of the file that is rendered.
fn own_place(path: &str) -> String {
    format!(
        "{{% if __take_isolated() or __isolated is defined %}}{{% set __isolated = true %}}\
         {{% set tplfile = {file} %}}{{% set tplpath = tplfile %}}{{% set tpldir = {directory} %}}\
         {{% endif %}}",
        file = quoted(path),
        directory = quoted(directory(path)),
    )
}

/// The folder of a file of the tree; `.` for the root.
pub(super) fn directory(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some((directory, _)) if !directory.is_empty() => directory,
        _ => ".",
    }
}

fn blank_first_line(source: &str) -> String {
    source
        .find('\n')
        .map_or_else(String::new, |at| source[at..].to_owned())
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
        text.split_once("{% endif %}").unwrap().1.to_owned()
    }

    #[test]
    fn tags_are_rewritten_but_not_raw_text_and_comments() {
        assert_eq!(
            after_head("{{ '%d' % x }}{# {{ '%d' % x }} #}{% raw %}{{ '%d' % x }}{% endraw %}{"),
            "{{ __format_text('%d', x) }}{# {{ '%d' % x }} #}{% raw %}{{ '%d' % x }}{% endraw %}{"
        );
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

    #[test]
    fn options_of_the_engine_are_refused() {
        for text in [
            "#jinja2: {\"trim_blocks\": true}\n",
            "#!jinja|yaml\n#jinja2: trim_blocks: true\na",
        ] {
            let error = prepare("x", text).unwrap_err().to_string();
            assert!(error.contains("write `-%}` where"), "{error}");
        }
        for text in ["#jinja2:\n", "a\n#jinja2: {}\n", "#!/bin/sh\n#jinja2: {}\n"] {
            assert!(prepare("x", text).is_ok(), "{text}");
        }
    }
}
