use super::*;

fn json(text: &str) -> Value {
    parse("f.sls", text).unwrap().to_json()
}

fn error(text: &str) -> String {
    parse("f.sls", text).unwrap_err().to_string()
}

#[test]
fn keeps_places_and_raw_text() {
    let node = parse("f.sls", "a:\n  - mode: 0644\n  - 'x'\n").unwrap();
    let item = &node.get("a").unwrap().items()[0];
    let mode = item.get("mode").unwrap();
    assert_eq!((mode.position.line, mode.position.column), (2, 11));
    assert_eq!(
        (&mode.kind, mode.raw.as_str()),
        (&NodeKind::Int(644), "0644")
    );
    assert_eq!((item.position.line, item.position.column), (2, 5));
    assert_eq!(node.position.line, 1);
}

#[test]
fn merges_and_aliases() {
    assert_eq!(
        json("base: &b {x: 1, y: 2}\nover: &o {y: 3}\none: {<<: *b, y: 9}\ntwo:\n  <<: [*o, *b]\n"),
        serde_json::json!({"base": {"x": 1, "y": 2}, "over": {"y": 3}, "one": {"x": 1, "y": 9}, "two": {"y": 3, "x": 1}})
    );
}

#[test]
fn empty_texts_are_null() {
    for text in ["", "\n", "# only a comment\n", "---\n"] {
        assert_eq!(json(text), Value::Null, "{text:?}");
    }
    assert_eq!(parse_all("f", "a: 1\n---\nb: 2\n---\n").unwrap().len(), 2);
    assert!(error("a: 1\n---\nb: 2\n").starts_with("f.sls:3:1: a second document begins here"));
}

#[test]
fn duplicate_keys_name_both_places() {
    assert_eq!(
        error("x:\n  a: 1\n'x':\n  b: 2\n"),
        "f.sls:3:1: `x` occurs twice: first in line 1, column 1\n   | 'x':\n   = the second would silently \
         replace the first; rename one or merge them"
    );
}

#[test]
fn infinite_numbers_are_refused() {
    for raw in [".inf", "-.Inf", ".nan"] {
        assert!(
            error(&format!("a: {raw}\n"))
                .starts_with(&format!("f.sls:1:4: `{raw}` is not a finite number")),
        );
    }
    assert_eq!(json("a: '.inf'\n")["a"], ".inf");
}

#[test]
fn tabs_are_named() {
    assert_eq!(
        error("a:\n  test.nop: []\nb:\n\ttest.nop: []\n"),
        "f.sls:4:1: a tab is in the indentation; YAML allows only spaces there\n   | \ttest.nop: []\n   = replace \
         it with spaces"
    );
}

#[test]
fn bad_indentation_has_a_place_and_a_hint() {
    let text = error("a:\n  test.nop: []\n b:\n  test.nop: []\n");
    assert!(text.starts_with("f.sls:3:"), "{text}");
    assert!(text.contains("same column"), "{text}");
}

#[test]
fn a_template_expression_as_key_is_explained() {
    let text = error("a: {{ x }}\n");
    assert!(text.contains("must be quoted"), "{text}");
}

#[test]
fn tags_depth_size_and_bombs_are_refused() {
    assert!(error("a: !!python/object:x {}\n").contains("tag"));
    assert!(error(&"[".repeat(100)).contains("deeper"));
    assert!(error(&" ".repeat(MAX_BYTES + 1)).contains("bytes"));
    let mut bomb = String::from("a: &a [x, x, x, x, x, x, x, x, x, x]\n");
    for (name, from) in [("b", "a"), ("c", "b"), ("d", "c"), ("e", "d"), ("f", "e")] {
        bomb.push_str(&format!(
            "{name}: &{name} [{}]\n",
            vec![format!("*{from}"); 10].join(", ")
        ));
    }
    assert!(error(&bomb).contains("more than 200000 values"));
    assert!(error("a: &a [*a]\n").contains("inside the value"));
}

#[test]
fn text_survives_a_round_through_json() {
    assert_eq!(
        json("a: |\n  x\n  y\nb: >-\n  x\n  y\nc: \"\\u00e9\\n\"\nd: 'it''s'\n"),
        serde_json::json!({"a": "x\ny\n", "b": "x y", "c": "é\n", "d": "it's"})
    );
}
