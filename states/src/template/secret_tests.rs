//! Tests of templates that read secrets.

use serde_json::json;

use super::*;
use crate::tree::MemoryTree;

/// The rendered text or the problem; `pillar.key` and `pillar.d.k` are secrets.
fn render(source: &str, variables: &BTreeMap<String, Json>) -> String {
    let tree = MemoryTree::new().with("a.sls", source).with(
        "m.jinja",
        "{% macro strict(x) %}{% if x == 'strict' %}yes{% endif %}{% endmacro %}",
    );
    let mut renderer = Renderer::new(&tree);
    let pillar = json!({
        "key": "halite-secret::key::", "plain": "p", "d": {"k": "halite-secret::d::", "l": 1},
        "list": ["halite-secret::key::", "x"],
    });
    renderer.set_minion("web-1", &pillar, &json!({}));
    renderer
        .render(Purpose::Sls, "a.sls", variables)
        .map_or_else(
            |problem| problem.to_string(),
            |rendered| rendered.text.clone(),
        )
}

#[test]
fn a_secret_is_neither_compared_nor_tested() {
    for used in [
        "{% if pillar.key == 'strict' %}x{% endif %}",
        "{{ 'a' if pillar.key != 'strict' else 'b' }}",
        "{{ pillar.key < 'b' }}",
        "{{ 'x' in pillar.key }}",
        "{{ pillar.key in ['x'] }}",
        "{{ 'y' in pillar.list }}",
        "{{ 'y' not in pillar.list }}",
        "{{ pillar.d == {'k': 1, 'l': 1} }}",
        "{% if pillar.key %}x{% endif %}",
        "{% if pillar.plain and pillar.key %}x{% endif %}",
        "{{ pillar.key or 'x' }}",
        "{{ not pillar.key }}",
        "{{ 'a' if ('p' ~ pillar.key) else 'b' }}",
        "{% for c in 'p' ~ pillar.key %}{{ c }}{% endfor %}",
        "{% for x in pillar.list if x == 'x' %}{{ x }}{% endfor %}",
        "{% set k = salt['pillar.get']('key') %}{{ k == 'x' }}",
        "{% set k = salt['defaults.deepcopy'](pillar.d) %}{{ k.k == 'x' }}",
        "{% from 'm.jinja' import strict %}{{ strict(pillar.key) }}",
        "{{ pillar.key is eq 'x' }}",
        "{{ salt['network.is_private'](pillar.key) }}",
        "{{ salt['pkg.version_cmp'](pillar.key, '1') }}",
        "{{ salt['slsutil.serialize']('json', pillar.d) }}",
    ] {
        let out = render(&format!("\n{used}"), &BTreeMap::new());
        assert!(
            out.contains("secret") && out.contains("reference"),
            "{used}: {out}"
        );
        let place = if used.contains("import") {
            "m.jinja:1"
        } else {
            "a.sls:2"
        };
        assert!(out.starts_with(place), "{used}: {out}");
    }
    let variables = BTreeMap::from([("v".to_owned(), json!("halite-secret::key::"))]);
    assert!(render("{{ v == 'x' }}", &variables).contains("cannot be compared"));
}

#[test]
fn other_uses_of_a_secret_are_not_comparisons() {
    for (used, wanted) in [
        (
            "{% if pillar.key is defined %}{{ pillar.key }}{% endif %}",
            "halite-secret::key::",
        ),
        (
            "{{ pillar.plain == 'p' and pillar.key }}",
            "halite-secret::key::",
        ),
        ("{{ '' or pillar.key }}", "halite-secret::key::"),
        (
            "{{ pillar.key if pillar.plain == 'p' else '' }}",
            "halite-secret::key::",
        ),
        ("{{ 'k' in pillar.d }}{{ pillar.d.l > 0 }}", "TrueTrue"),
        ("{% if pillar.d and pillar.list %}x{% endif %}", "x"),
        (
            "{% for k, v in pillar.d.items() if k == 'k' %}{{ v }}{% endfor %}",
            "halite-secret::d::",
        ),
        ("{{ pillar.key | default('x') }}", "halite-secret::key::"),
    ] {
        assert_eq!(render(used, &BTreeMap::new()), wanted, "{used}");
    }
}
