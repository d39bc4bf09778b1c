use proptest::prelude::*;

use super::*;
use crate::yaml;

/// Texts of the format `lower` consist of lower-case letters; `hidden.` is secret.
struct Lower;

impl Rules for Lower {
    fn check(&self, format: &str, text: &str) -> Result<(), Misfit> {
        if format == "lower" && !text.chars().all(|c| c.is_ascii_lowercase()) {
            return Err(Misfit::new("is not in lower case", "use a to z"));
        }
        Ok(())
    }

    fn secret_paths(&self) -> &'static [&'static str] {
        &["hidden."]
    }
}

fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "format": {"type": "integer", "const": 1, "description": "The format."},
            "program": {
                "type": ["string", "object"],
                "minLength": 1,
                "description": "A path, or an address.",
                "properties": {
                    "url": {"type": "string", "description": "The address."},
                    "member": {"type": ["string", "null"], "description": "A path | in it."},
                },
                "required": ["url"],
                "additionalProperties": false,
            },
            "names": {
                "type": "array",
                "description": "Names.",
                "items": {"type": "string", "format": "lower"},
            },
            "entries": {
                "type": "array",
                "description": "Entries.",
                "items": {
                    "type": "object",
                    "properties": {"a": {"type": "boolean", "description": "A."}},
                    "required": ["a"],
                    "additionalProperties": false,
                },
            },
            "hidden": {
                "type": "object",
                "description": "Secrets.",
                "additionalProperties": {"type": "array", "items": {"type": "string"}},
            },
        },
        "required": ["format"],
        "additionalProperties": false,
    })
}

fn read_text(text: &str) -> (Value, DocumentSource, Vec<String>) {
    let root = yaml::parse("f", text).unwrap();
    let read = read("f", text, root, &schema(), &Lower);
    let problems = read.problems.iter().map(ToString::to_string).collect();
    (read.value, read.source, problems)
}

#[test]
fn a_value_may_have_several_kinds() {
    for (text, value) in [("bin/a", json!("bin/a")), ("{url: x}", json!({"url": "x"}))] {
        let (read, _, problems) = read_text(&format!("format: 1\nprogram: {text}\n"));
        assert_eq!(problems, [""; 0]);
        assert_eq!(read["program"], value);
    }
    let (_, _, problems) = read_text("format: 1\nprogram: [a]\n");
    assert_eq!(
        problems,
        ["f:2:10: program: must be a text or a mapping, not a list\n   | program: [a]"]
    );
}

#[test]
fn all_problems_are_found_with_their_places() {
    let (value, source, problems) = read_text(
        "format: 2\nprogram: ''\nname: [a]\nentries: [{a: yes}, 3, {a: no, other: 1}]\nhidden: {key: s3cret}\n",
    );
    assert_eq!(
        problems,
        [
            "f:1:9: format: `2` is not the required value\n   | format: 2\n   = write 1",
            "f:2:10: program: the text is empty\n   | program: ''\n   = expected: A path, or an address.",
            "f:3:1: name: unknown key `name`\n   | name: [a]\n   = did you mean `names`?",
            "f:4:21: entries[1]: must be a mapping, not a whole number\n   | entries: [{a: yes}, 3, {a: no, other: 1}]",
            "f:4:32: entries[2].other: unknown key `other`\n   | entries: [{a: yes}, 3, {a: no, other: 1}]\n   = the keys here are: a",
            "f:5:15: hidden.key: must be a list, not a text",
        ]
    );
    // The indexes of the entries after an unusable one stay correct.
    assert_eq!(
        value["entries"],
        json!([{"a": true}, {"a": false}, {"a": false}])
    );
    assert!(!source.is_sound("entries[1]") && source.is_sound("entries[2]"));
}

#[test]
fn a_list_is_suggested_only_if_it_is_accepted() {
    for (names, hint) in [("abc", "\n   = write [abc]"), ("ABC", ""), ("'a: b'", "")] {
        let (_, _, problems) = read_text(&format!("format: 1\nnames: {names}\n"));
        let line = format!("f:2:8: names: must be a list, not a text\n   | names: {names}{hint}");
        assert_eq!(problems, [line]);
    }
}

#[test]
fn a_misspelt_key_beside_the_right_one_is_not_renamed_to_it() {
    let (_, _, problems) = read_text("format: 1\nFormat: 1\n");
    assert_eq!(
        problems,
        [
            "f:2:1: Format: unknown key `Format`\n   | Format: 1\n   = `format` exists already; remove this key"
        ]
    );
}

#[test]
fn a_keyword_that_the_reader_ignores_is_a_flaw_of_the_schema() {
    assert_eq!(flaws(&schema()), [""; 0]);
    let schema = json!({"properties": {"a": {"pattern": "x", "items": {"oneOf": []}}}});
    assert_eq!(
        flaws(&schema),
        [
            "a.items: the reader does not know \"oneOf\"",
            "a: has no description",
            "a: the reader does not know \"pattern\"",
        ]
    );
}

#[test]
fn the_reference_has_a_section_for_each_mapping() {
    let reference = DocumentReference {
        formats: &[("lower", "lower-case text")],
        examples: &[("program", "program: {url: x}\n")],
    };
    let text = reference.markdown(&schema());
    for part in [
        "| `format` | `1` | required | The format. |\n",
        "| [`program`](#program) | text, or mapping |  | A path, or an address. |\n",
        "| `names` | list of lower-case text |  | Names. |\n",
        "| `hidden` | mapping of name to list of text |  | Secrets. |\n",
        "\n## `program`\n\nA path, or an address.\n\n| field | value | default | meaning |\n|---|---|---|---|\n\
         | `program.url` | text | required | The address. |\n",
        "| `program.member` | text |  | A path \\| in it. |\n\n```yaml\nprogram: {url: x}\n```\n",
        "| [`entries`](#entries) | list of mapping |  | Entries. |\n",
        "\n## `entries[]`\n",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn the_reference_has_the_range_and_the_default_of_a_value() {
    let field = |value: Value| {
        let schema = json!({"properties": {"a": value}});
        let text = DocumentReference::default().markdown(&schema);
        text.lines().nth(3).unwrap_or_default().to_owned()
    };
    for (schema, value, default) in [
        (
            json!({"type": "integer", "minimum": 1, "maximum": 9, "default": 7}),
            "whole number from 1 to 9",
            "`7`",
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            "whole number, at least 0",
            "",
        ),
        (
            json!({"type": "string", "enum": ["x", "y"], "default": "x"}),
            "`x`, `y`",
            "`x`",
        ),
        (
            json!({"type": ["string", "null"], "default": null}),
            "text",
            "",
        ),
        (
            json!({"type": "array", "items": {"type": "string"}, "default": ["x", "y"]}),
            "list of text",
            "`[x, y]`",
        ),
        (
            json!({"type": "boolean", "default": false}),
            "`true`, `false`",
            "`false`",
        ),
        (json!({"type": "string", "default": ""}), "text", "`\"\"`"),
        (json!({}), "anything", ""),
    ] {
        assert_eq!(field(schema), format!("| `a` | {value} | {default} |  |"));
    }
}

proptest! {
    #[test]
    fn no_document_makes_the_reader_panic(
        text in "((format|program|names|entries|hidden|url|a|x)(: |:\n  ?|\n)|- |[\\[\\]{},]|[0-9]|'|\"|~|true|é| |\n){0,24}",
    ) {
        if let Ok(root) = yaml::parse("f", &text) {
            let read = read("f", &text, root, &schema(), &Lower);
            // Replaced values were reported; an unknown key is reported, but nothing is replaced.
            if read.source.is_sound("") {
                let mut problems = read.problems.iter();
                prop_assert!(problems.all(|problem| problem.message.starts_with("unknown key")));
            } else {
                prop_assert!(!read.problems.is_empty());
            }
            prop_assert!(read.value.is_object());
        }
    }
}
