//! The texts are those of Salt 3008.3.

use serde_json::json;

use super::*;

/// Data of a JSON text.
fn data(value: &Value) -> Data {
    Data::from_json(value).unwrap()
}

fn text(text: &str) -> Data {
    Data::Text(text.to_owned())
}

fn yaml(value: &Value, form: YamlForm) -> String {
    form.write(&data(value)).unwrap()
}

const LONG: &str = "lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor \
                    incididunt ut labore";

#[test]
fn data_are_written_as_salt_writes_them() {
    let value = json!({
        "b": {"y": [1, "two", {"k": "v", "a": []}], "x": {}},
        "a": "text", "n": null, "t": true, "f": 1.5, "i": -3, "yes": [[2, 3]],
    });
    assert_eq!(
        yaml(&value, YamlForm::block()),
        "a: text\nb:\n  x: {}\n  y:\n  - 1\n  - two\n  - a: []\n    k: v\nf: 1.5\ni: -3\nn: null\nt: true\n'yes':\n- - 2\n  - 3"
    );
    let form = JsonForm {
        indent: Some("  ".to_owned()),
        sort_keys: true,
        ..JsonForm::default()
    };
    assert_eq!(
        form.write(&data(
            &json!({"b": [1, {"k": "é\n"}], "a": {}, "c": [], "d": 1e20})
        ))
        .unwrap(),
        "{\n  \"a\": {},\n  \"b\": [\n    1,\n    {\n      \"k\": \"é\\n\"\n    }\n  ],\n  \"c\": [],\n  \"d\": 1e+20\n}"
    );
}

#[test]
fn leaves_are_in_flow_style_unless_told_otherwise() {
    let nested = json!({"a": [["b", {"c": [1, [2, []]]}], {}]});
    assert_eq!(
        yaml(&nested, YamlForm::default()),
        "a:\n- - b\n  - c:\n    - 1\n    - - 2\n      - []\n- {}"
    );
    let nested = json!({"a": {"b": ["c", {"d": ["e"]}]}});
    assert_eq!(
        yaml(&nested, YamlForm::block().sized(Some(4), None)),
        "a:\n    b:\n    - c\n    -   d:\n        - e"
    );
    let flow = YamlForm {
        flow: Some(true),
        ..YamlForm::default()
    };
    assert_eq!(yaml(&nested, flow), "{a: {b: [c, {d: [e]}]}}");
}

#[test]
fn lines_break_where_libyaml_breaks_them() {
    let words: Vec<String> = (0..20).map(|number| format!("word{number}")).collect();
    let keys: serde_json::Map<String, Value> = (0..9)
        .map(|number| (format!("key{number}"), json!("value")))
        .collect();
    assert_eq!(
        yaml(&json!([words, keys]), YamlForm::default()),
        "- [word0, word1, word2, word3, word4, word5, word6, word7, word8, word9, word10, word11,\n  word12, word13, word14, word15, word16, word17, word18, word19]\n- {key0: value, key1: value, key2: value, key3: value, key4: value, key5: value, key6: value,\n  key7: value, key8: value}"
    );
    let texts = json!({
        "text": LONG, "quoted": format!("{LONG}: x"), "escaped": format!("{LONG} é"),
        "lines": "a\nb\n\nc\n", "word": "x".repeat(100), "tab": "a\tb", "space": "a \nb",
    });
    let word = "x".repeat(100);
    assert_eq!(
        yaml(&texts, YamlForm::default()),
        format!(
            "{{escaped: \"lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor\n    incididunt ut labore \\xE9\", lines: 'a\n\n    b\n\n\n    c\n\n    ', quoted: 'lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod\n    tempor incididunt ut labore: x', space: \"a \\nb\", tab: \"a\\tb\", text: lorem ipsum\n    dolor sit amet consectetur adipiscing elit sed do eiusmod tempor incididunt ut\n    labore, word: {word}}}"
        )
    );
    assert_eq!(
        yaml(&json!({ "text": LONG }), YamlForm::block()),
        "text: lorem ipsum dolor sit amet consectetur adipiscing elit sed do eiusmod tempor\n  incididunt ut labore"
    );
    let form = YamlForm::default();
    assert_eq!(
        yaml(&json!(["word ".repeat(12)]), form.sized(None, Some(20))),
        "['word word word word\n    word word word word\n    word word word word ']"
    );
    let endless = yaml(&json!(["word ".repeat(30)]), form.sized(None, Some(-1)));
    assert_eq!(endless, format!("['{}']", "word ".repeat(30)));
}

#[test]
fn long_keys_and_keys_of_several_lines_have_a_mark() {
    let key = "a".repeat(129);
    let keys = json!({ key.as_str(): 1, "k\nl": [1] });
    assert_eq!(
        yaml(&keys, YamlForm::default()),
        format!("? {key}\n: 1\n? 'k\n\n  l'\n: [1]")
    );
    let flow = YamlForm {
        flow: Some(true),
        ..YamlForm::default()
    };
    assert_eq!(
        yaml(&keys, flow),
        format!("{{? {key}\n  : 1, ? 'k\n\n    l' : [1]}}")
    );
}

#[test]
fn signs_that_are_not_ascii_are_escaped() {
    let form = YamlForm::default();
    assert_eq!(
        yaml(&json!({"é": "\u{1F600}\u{2028}", "b": "\0\u{1B}"}), form),
        r#"{b: "\0\e", "\xE9": "\U0001F600\L"}"#
    );
    let form = YamlForm {
        unicode: true,
        ..form
    };
    assert_eq!(
        yaml(
            &json!({"é": "\u{1F600}\u{2028}", "b": "\u{85}\u{FEFF}"}),
            form
        ),
        r#"{b: "\N\uFEFF", é: "\U0001F600\L"}"#
    );
    let form = JsonForm {
        ascii: true,
        ..JsonForm::default()
    };
    assert_eq!(
        form.write(&text("é\u{7F}\u{2028}\u{1F600}\"\\\n")).unwrap(),
        r#""\u00e9\u007f\u2028\ud83d\ude00\"\\\n""#
    );
    assert_eq!(
        JsonForm::default().write(&text("é\u{7F}\u{1}")).unwrap(),
        "\"é\u{7F}\\u0001\""
    );
}

#[test]
fn numbers_are_pythons() {
    let numbers = Data::List(
        [
            1e20,
            1e-7,
            1.5,
            -0.0,
            f64::INFINITY,
            f64::NAN,
            1e16,
            1e15,
            123_456_789.125,
        ]
        .map(Data::Float)
        .to_vec(),
    );
    assert_eq!(
        YamlForm::default().write(&numbers).unwrap(),
        "[1.0e+20, 1.0e-07, 1.5, -0.0, .inf, .nan, 1.0e+16, 1000000000000000.0, 123456789.125]"
    );
    assert_eq!(
        JsonForm::default().write(&numbers).unwrap(),
        "[1e+20, 1e-07, 1.5, -0.0, Infinity, NaN, 1e+16, 1000000000000000.0, 123456789.125]"
    );
}

#[test]
fn keys_of_one_kind_have_an_order() {
    let keys = |keys: Vec<Data>| {
        Data::Map(
            keys.into_iter()
                .map(|key| (key, Data::Bool(true)))
                .collect(),
        )
    };
    let sort = JsonForm {
        sort_keys: true,
        ..JsonForm::default()
    };
    let numbers = keys(vec![Data::Int(10), Data::Float(2.5), Data::Bool(true)]);
    assert_eq!(
        sort.write(&numbers).unwrap(),
        r#"{"true": true, "2.5": true, "10": true}"#
    );
    let mixed = keys(vec![Data::Int(2), text("a"), Data::Null]);
    assert_eq!(sort.write(&mixed), Err(SerializeError::Order));
    assert_eq!(
        YamlForm::default().write(&mixed).unwrap(),
        "{2: true, a: true, null: true}"
    );
    assert_eq!(
        JsonForm::default().write(&mixed).unwrap(),
        r#"{"2": true, "a": true, "null": true}"#
    );
    let nested = keys(vec![Data::List(Vec::new())]);
    assert_eq!(sort.write(&nested), Err(SerializeError::CollectionKey));
    assert_eq!(
        YamlForm::default().write(&nested),
        Err(SerializeError::CollectionKey)
    );
}

#[test]
fn separators_replace_those_of_python() {
    let form = JsonForm {
        separators: Some((",".to_owned(), ":".to_owned())),
        ..JsonForm::default()
    };
    let value = data(&json!([1, {"a": 2}]));
    assert_eq!(form.write(&value).unwrap(), r#"[1,{"a":2}]"#);
    let form = JsonForm {
        indent: Some("\t".to_owned()),
        separators: Some((", ".to_owned(), ": ".to_owned())),
        ..JsonForm::default()
    };
    let value = data(&json!([1, 2]));
    assert_eq!(form.write(&value).unwrap(), "[\n\t1, \n\t2\n]");
}

#[test]
fn texts_have_pyyamls_quotes() {
    let written = |scalar: &str| YamlForm::block().write(&text(scalar)).unwrap();
    for plain in [
        "plain text",
        "a#b",
        "-x",
        ":x",
        "a,b",
        "a[b]",
        "a'b",
        "1e3",
        "http://x/y?z=1&a",
        "a%",
        "?a",
        "a\\b",
        "1.2.3",
        ".",
        "a{b",
        "a|b",
        "a>b",
        "a&b",
    ] {
        assert_eq!(written(plain), plain);
    }
    for quoted in [
        "yes",
        "0644",
        "1:30",
        "a: b",
        "a #b",
        "- x",
        "x:",
        "",
        "*a",
        "[a]",
        "\"q\"",
        " lead",
        "trail ",
        "2026-01-02",
        "=",
        "<<",
        "~",
        "null",
        "1_000",
        "0x1F",
        "%a",
        "@a",
        "`a",
        "!a",
        "? a",
        "---",
        "--- a",
        "...",
        ".5",
        "1.",
        "on",
        "NO",
        "{a}",
        "|",
        ">",
        "#a",
        "&a",
    ] {
        assert_eq!(written(quoted), format!("'{quoted}'"));
    }
}
