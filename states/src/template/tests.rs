use serde_json::json;

use super::*;
use crate::low::Position;
use crate::tree::MemoryTree;

fn renderer(tree: MemoryTree) -> Renderer {
    let mut renderer = Renderer::new(&tree);
    let pillar = json!({"a": {"b": {"c": "deep"}}, "list": [1, 2], "key": "halite-secret::key::"});
    renderer.set_minion(
        "web-1",
        &pillar,
        &json!({"os_family": "Debian", "id": "web-1"}),
    );
    renderer
}

fn one(text: &str) -> Result<Rc<Rendered>, Problem> {
    renderer(MemoryTree::new().with("a.sls", text)).render(Purpose::Sls, "a.sls", &BTreeMap::new())
}

fn text(source: &str) -> String {
    one(source).map_or_else(
        |problem| problem.to_string(),
        |rendered| rendered.text.clone(),
    )
}

#[test]
fn salts_names_are_defined() {
    for (source, wanted) in [
        (
            "{{ pillar.a.b.c }} {{ pillar['a']['b']['c'] }}",
            "deep deep",
        ),
        (
            "{{ salt['pillar.get']('a:b:c') }} {{ salt.pillar.get('a:x', 'd') }}",
            "deep d",
        ),
        (
            "{{ salt['pillar.get']('list:1') }} {{ salt['grains.get']('os_family') }}",
            "2 Debian",
        ),
        (
            "{{ grains.id }} {{ opts.id }} {{ saltenv }}",
            "web-1 web-1 base",
        ),
        (
            "{% set m = salt['grains.filter_by']({'Debian': {'x': 1}, 'default': {'y': 2}}, merge={'z': 3}) %}{{ m }}",
            "{'x': 1, 'z': 3}",
        ),
        (
            "{{ salt['grains.filter_by']({'default': {'y': 2}}, grain='nope') }}",
            "{'y': 2}",
        ),
        (
            "{{ salt['match.compound']('G@os_family:Debian and web*') }}",
            "True",
        ),
        (
            "{% set a = {'x': 1} %}{% set b = a.copy() %}{% do salt['defaults.merge'](b, {'x': 2}) %}{{ a.x }}{{ b.x }}",
            "12",
        ),
        (
            "{{ salt['defaults.merge']({'a': {'b': 1}}, {'a': {'c': 2}}) }}",
            "{'a': {'b': 1, 'c': 2}}",
        ),
        (
            "{% if pillar.nothing is defined %}x{% endif %}{{ pillar.get('nothing', 'd') }}",
            "d",
        ),
        (
            "{% set ns = namespace(l=[]) %}{% for i in [1,2] %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.l }}",
            "[1, 2]",
        ),
        ("{{ tplfile }} {{ tpldir }}\n", "a.sls .\n"),
        (
            "{% load_yaml as d %}\nx: 0644\ny: yes\n{% endload %}{{ d }}",
            "{'x': 644, 'y': True}",
        ),
    ] {
        assert_eq!(text(source), wanted, "{source}");
    }
}

#[test]
fn imports_find_their_files() {
    let tree = MemoryTree::new()
        .with("kube/init.sls", "{% from './map.jinja' import map with context %}{% import_yaml tpldir ~ '/d.yaml' as d %}{{ map.x }} {{ d.v }} {{ tplfile }}")
        .with("kube/map.jinja", "{% set map = salt['grains.filter_by']({'Debian': {'x': tplfile}}) %}")
        .with("kube/d.yaml", "v: {{ pillar.a.b.c }}");
    let rendered = renderer(tree)
        .render(Purpose::Sls, "kube/init.sls", &BTreeMap::new())
        .unwrap();
    assert_eq!(rendered.text, "kube/init.sls deep kube/init.sls");
    assert_eq!(
        rendered.files,
        ["kube/init.sls", "kube/map.jinja", "kube/d.yaml"]
    );
    assert_eq!(rendered.pillar, ["a.b.c"]);
}

#[test]
fn undefined_values_are_named_in_full() {
    assert_eq!(
        text("a:\n  x: {{ pillar.a.nope.c }}\n"),
        "a.sls:2:17: `pillar.a.nope` is undefined\n   |   x: {{ pillar.a.nope.c }}\n   = give a default, \
         `{{ x | default('…') }}` or `salt['pillar.get']('a:b', '…')`, or test it with `is defined`"
    );
}

#[test]
fn every_use_of_an_undefined_value_has_its_place() {
    for used in [
        "{% if pillar.typo %}{% endif %}",
        "{% if pillar.typo == 1 %}{% endif %}",
        "{{ 'x' if typo else 'y' }}",
        "{{ typo or 'x' }}",
        "{% for i in typo %}{% endfor %}",
        "{{ [pillar.typo] }}",
        "{{ ['a', typo] | join }}",
        "{{ [{}] | selectattr('typo') | list }}",
        "{{ '%s' % typo }}",
        "{{ salt['pillar.get']('list', typo) }}",
    ] {
        let out = text(&format!("\n{used}"));
        assert!(
            out.starts_with("a.sls:2:") && out.contains("undefined") && out.contains("is defined"),
            "{used}: {out}"
        );
    }
}

#[test]
fn arguments_of_functions_are_checked() {
    for (call, wanted) in [
        (
            "salt['defaults.merge']({}, {}, in_plase=False)",
            "salt['defaults.merge'] has no argument `in_plase`: did you mean `in_place`?",
        ),
        (
            "salt['slsutil.merge']({}, {}, merge_list=True)",
            "did you mean `merge_lists`?",
        ),
        (
            "salt['grains.get']('a', 'b', ':', True, 1)",
            "takes 4 arguments, not 5",
        ),
        (
            "salt['pillar.get']('a', key='b')",
            "`key` of salt['pillar.get'] is given twice",
        ),
        (
            "salt['pillar.get'](5)",
            "`key` of salt['pillar.get'] takes a text, not a number",
        ),
        ("salt['pillar.get']()", "salt['pillar.get'] needs `key`"),
    ] {
        let out = text(&format!("{{{{ {call} }}}}"));
        assert!(
            out.starts_with("a.sls:1") && out.contains(wanted),
            "{call}: {out}"
        );
    }
}

#[test]
fn a_variable_that_only_a_context_would_show_is_named() {
    let tree = MemoryTree::new()
        .with(
            "a.sls",
            "{% set v = 1 %}\n{% from 'm.jinja' import f %}{{ f() }}",
        )
        .with("m.jinja", "{% macro f() %}{{ v }}{{ sls }}{% endmacro %}");
    let variables = BTreeMap::from([("sls".to_owned(), json!("a"))]);
    let problem = renderer(tree)
        .render(Purpose::Sls, "a.sls", &variables)
        .unwrap_err();
    assert_eq!((problem.file.as_str(), problem.line), ("a.sls", 2));
    assert!(
        problem
            .message
            .contains("`m.jinja` uses `v`, which only an import `with context` can see"),
        "{problem}"
    );
}

#[test]
fn asking_the_host_is_explained() {
    let out = text("{{ salt['cmd.run']('id') }}");
    assert!(
        out.contains("a.sls:1:") && out.contains("use a grain for a fact of the host"),
        "{out}"
    );
    assert!(text("{{ salt['pillar.gte']('x') }}").contains("did you mean `pillar.get`?"));
}

#[test]
fn errors_in_imported_files_are_placed_there() {
    let tree = MemoryTree::new()
        .with("a.sls", "\n{% from 'm.jinja' import f %}\n{{ f() }}")
        .with(
            "m.jinja",
            "{% macro f() %}\n{{ nothing.x }}\n{% endmacro %}",
        );
    let problem = renderer(tree)
        .render(Purpose::Sls, "a.sls", &BTreeMap::new())
        .unwrap_err();
    assert_eq!(
        (problem.file.as_str(), problem.line),
        ("m.jinja", 2),
        "{problem}"
    );
    assert_eq!(problem.excerpt, "{{ nothing.x }}");
}

#[test]
fn syntax_errors_and_missing_files_have_a_place() {
    let out = text("a:\n{% if true %}\nb: 1\n");
    assert!(out.starts_with("a.sls:"), "{out}");
    let out = text("\n{% from 'nope.jinja' import x %}");
    assert!(
        out.starts_with("a.sls:2") && out.contains("nope.jinja"),
        "{out}"
    );
}

#[test]
fn lines_lead_back_to_the_template() {
    let rendered =
        one("{% for i in [1, 2] %}\nid{{ i }}:\n  test.nop: []\n{% endfor %}\n{%- set x = 1 %}\nlast: 1\n")
            .unwrap();
    let found: Vec<(String, u32)> = rendered
        .text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
        .map(|(number, line)| {
            let mut position = Position {
                file: "a.sls".into(),
                line: number as u32 + 1,
                column: 1,
            };
            rendered.map.locate(&mut position);
            (line.to_owned(), position.line)
        })
        .collect();
    let wanted = [
        ("id1:", 2),
        ("  test.nop: []", 3),
        ("id2:", 2),
        ("  test.nop: []", 3),
        ("last: 1", 6),
    ];
    assert_eq!(
        found,
        wanted.map(|(line, number)| (line.to_owned(), number))
    );
}

#[test]
fn a_macro_line_leads_to_the_macro() {
    let tree = MemoryTree::new()
        .with("a.sls", "{% from 'm.jinja' import f %}\n{{ f('x') }}\n")
        .with(
            "m.jinja",
            "\n{% macro f(n) -%}\n{{ n }}:\n  test.nope: []\n{%- endmacro %}\n",
        );
    let rendered = renderer(tree)
        .render(Purpose::Sls, "a.sls", &BTreeMap::new())
        .unwrap();
    assert_eq!(rendered.text, "\nx:\n  test.nope: []\n");
    let mut position = Position {
        file: "a.sls".into(),
        line: 3,
        column: 3,
    };
    rendered.map.locate(&mut position);
    assert_eq!(
        (position.file.as_str(), position.line, position.column),
        ("m.jinja", 4, 3)
    );
}

#[test]
fn endless_loops_end() {
    let out = text(
        "{% for a in range(10000) %}{% for b in range(10000) %}{{ b }}{% endfor %}{% endfor %}",
    );
    assert!(out.contains("too many steps"), "{out}");
}

#[test]
fn a_secret_is_a_reference_and_not_recorded_by_value() {
    let rendered = one("a: {{ pillar.key }}\nb: |\n  {{ pillar.key | indent(2) }}\n").unwrap();
    assert_eq!(
        rendered.text,
        "a: halite-secret::key::\nb: |\n  halite-secret::key::\n"
    );
    let out = text("\n{{ pillar.key | b64encode }}");
    assert!(out.starts_with("a.sls:2:"), "{out}");
    assert!(
        out.contains("`b64encode` cannot be used on a secret"),
        "{out}"
    );
}

#[test]
fn yaml_only_files_are_not_templates() {
    assert_eq!(text("#!yaml\na: {{ x }}\n"), "\na: {{ x }}\n");
}

/// The origin of a line of a rendered text.
fn origin(rendered: &Rendered, line: u32) -> (String, u32) {
    let mut position = Position {
        file: rendered.files[0].clone(),
        line,
        column: 3,
    };
    rendered.map.locate(&mut position);
    (position.file, position.line)
}

#[test]
fn a_file_imported_by_two_is_a_file_of_both() {
    let tree = MemoryTree::new()
        .with("a.sls", "{% from 'm.jinja' import f %}\n{{ f('x') }}\n")
        .with(
            "b.sls",
            "{% from 'n.jinja' import g %}{% from 'm.jinja' import f %}\n{{ f('y') }}{{ g() }}\n",
        )
        .with(
            "m.jinja",
            "\n{% macro f(n) -%}\n{{ n }}:\n  test.nop: []\n{%- endmacro %}\n",
        )
        .with("n.jinja", "{% macro g() %}{% endmacro %}");
    let renderer = renderer(tree);
    for (file, imported) in [
        ("a.sls", &["m.jinja"][..]),
        ("b.sls", &["n.jinja", "m.jinja"]),
    ] {
        let rendered = renderer
            .render(Purpose::Sls, file, &BTreeMap::new())
            .unwrap();
        assert_eq!(rendered.files[1..], *imported, "{file}");
        assert_eq!(
            origin(&rendered, 3),
            ("m.jinja".to_owned(), 4),
            "{file}: {:?}",
            rendered.text
        );
    }
}

#[test]
fn a_template_is_rendered_again_only_for_a_minion_whose_data_differ() {
    let files = [
        (
            "looked-up",
            "{{ pillar.a.b }} {{ pillar.get('c', 'none') }} {{ grains.id }}",
        ),
        (
            "branched",
            "{% if pillar.a.on %}{{ pillar.c }}{% else %}off{% endif %}",
        ),
        (
            "iterated",
            "{% for key in pillar.a %}{{ key }} {% endfor %}",
        ),
        ("printed", "{{ pillar.a }}"),
        (
            "counted",
            "{{ pillar.a | length }}{% if pillar.e %}e{% endif %}",
        ),
        ("all", "{{ salt['match.compound']('I@a:b:1 and one') }}"),
        ("minion", "{{ opts.id }}"),
        (
            "by name",
            "{{ salt['pillar.get']('a:b', 0) }} {{ salt['grains.get']('id') }} {{ 'c' in pillar }}",
        ),
        (
            "guarded",
            "{{ pillar.a | default({}) | items | list | length }}",
        ),
        (
            "imported",
            "{% import 'printed' as p %}{% include 'branched' %}",
        ),
        ("listed", "{{ pillar.l[1].x }}"),
    ];
    let tree = files.iter().fold(MemoryTree::new(), |tree, (name, text)| {
        tree.with(name, *text)
    });
    let a = json!({"b": 1, "on": false});
    let pillars = [
        json!({"a": a, "l": [1, {"x": 1}], "e": {}}),
        json!({"a": a, "l": [1, {"x": 1}], "e": {}, "other": 1}),
        json!({"a": a, "l": [1, {"x": 2}], "e": {}, "c": "x"}),
        json!({"a": {"on": false, "b": 1}, "l": [1, {"x": 2}], "e": {"x": 1}, "c": "x"}),
        json!({"a": {"b": 1, "on": true}, "l": [1, {"x": 2}], "e": {"x": 1}, "c": "x"}),
        json!({"a": {"b": 2, "on": true, "z": "halite-secret::k::"}, "l": [1, {"x": 2}], "e": {}, "c": "y"}),
    ];
    let mut shared = Renderer::new(&tree);
    for _ in 0..2 {
        for (number, pillar) in pillars.iter().enumerate() {
            for minion in ["one", "two"] {
                let mut alone = Renderer::new(&tree);
                alone.set_minion(minion, pillar, &json!({"id": minion}));
                shared.set_minion(minion, pillar, &json!({"id": minion}));
                for (file, _) in &files {
                    let text = |renderer: &Renderer| {
                        let rendered = renderer.render(Purpose::Sls, file, &BTreeMap::new());
                        rendered.map_or_else(
                            |p| p.to_string(),
                            |r| format!("{} {:?}", r.text, r.pillar),
                        )
                    };
                    assert_eq!(
                        text(&shared),
                        text(&alone),
                        "`{file}` with pillar {number} for {minion}"
                    );
                }
            }
        }
    }
    let versions = |file: &str| {
        let rendered = shared.rendered.borrow();
        rendered
            .iter()
            .find(|((_, path, _), _)| path == file)
            .map_or(0, |(_, versions)| versions.len())
    };
    // As many as there are different data to see, not as there are pillars and minions (12).
    let counted = [
        "looked-up",
        "branched",
        "iterated",
        "printed",
        "minion",
        "listed",
    ]
    .map(versions);
    assert_eq!(counted, [6, 3, 4, 4, 2, 2]);
}

#[test]
fn the_same_text_of_other_data_is_one_object() {
    let tree = MemoryTree::new()
        .with("not shown", "{% if pillar.on %}{% endif %}a: 1\n")
        .with(
            "branched",
            "{% if pillar.on %}\na: 1{% else %}\na: 1{% endif %}",
        );
    let mut renderer = Renderer::new(&tree);
    let mut rendered = |file: &str, on: bool| {
        renderer.set_minion("one", &json!({"on": on}), &json!({}));
        let rendered = renderer.render(Purpose::Sls, file, &BTreeMap::new());
        rendered.unwrap()
    };
    let [one, other] = [true, false].map(|on| rendered("not shown", on));
    assert!(Rc::ptr_eq(&one, &other));
    // Its line has another origin.
    let [one, other] = [true, false].map(|on| rendered("branched", on));
    assert_eq!(one.text, other.text);
    assert!(!Rc::ptr_eq(&one, &other));
}

#[test]
fn a_file_that_cannot_be_a_template_is_not_called_missing() {
    let large = "x".repeat(1024 * 1024 + 1);
    let tree = || {
        MemoryTree::new()
            .with("large.sls", large.as_str())
            .with("binary.sls", b"a: \xff".to_vec())
            .with("a.sls", "{% import 'large.sls' as large %}")
    };
    let problem = |path: &str| {
        let rendered = renderer(tree()).render(Purpose::Sls, path, &BTreeMap::new());
        rendered
            .map(|rendered| rendered.text.clone())
            .unwrap_err()
            .to_string()
    };
    for (path, why) in [
        (
            "large.sls",
            "it has 1048577 bytes, and a template may have 1048576",
        ),
        ("binary.sls", "it is not text: byte 3 is not UTF-8"),
        ("a.sls", "cannot load `large.sls`: it has 1048577 bytes"),
        ("none.sls", "the state tree has no such file"),
    ] {
        let problem = problem(path);
        assert!(problem.contains(why), "{path}: {problem}");
    }
}
