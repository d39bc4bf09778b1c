//! A recipe with several problems: all are reported at once.

use std::path::Path;

use halite_builder::recipe::Recipe;

#[test]
fn all_problems_are_reported_at_once() {
    let text = include_str!("golden/bad-recipe.yaml");
    let error = Recipe::parse("recipe.yaml", text, Path::new("/site")).unwrap_err();
    let golden = include_str!("golden/bad-recipe.txt");
    assert_eq!(format!("{error}\n"), golden, "\n{error}");
}

#[test]
fn what_is_no_yaml_is_said_with_its_place() {
    let error = Recipe::parse("recipe.yaml", "format: [1", Path::new("/site"))
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("recipe.yaml: ") && error.contains("line"),
        "{error}"
    );
}

#[test]
fn a_version_that_no_site_would_take_is_refused_here_already() {
    let error = Recipe::parse(
        "recipe.yaml",
        "{format: 1, version: 1/2}",
        Path::new("/site"),
    )
    .unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("recipe.yaml: version: \"1/2\" can be no bundle's version on a site"),
        "{text}"
    );
}
