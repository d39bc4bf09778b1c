//! Bad recipes with their reported problems, and good recipes without problems.
//!
//! `HALITE_UPDATE_GOLDENS=1` rewrites each `expected.txt`.

use std::path::{Path, PathBuf};

use halite_builder::Error;
use halite_builder::recipe::Recipe;
use proptest::prelude::*;

const GOOD: &str = include_str!("good-recipes/smallest.yaml");

fn problems(text: &str) -> String {
    match Recipe::parse("recipe.yaml", text, Path::new("/site")) {
        Ok(_) => String::new(),
        Err(error) => format!("{error}\n"),
    }
}

fn bad_recipes() -> Vec<PathBuf> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/bundle/bad-recipes");
    let mut found: Vec<PathBuf> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.sort();
    found
}

#[test]
fn bad_recipes_are_explained() {
    let update = std::env::var_os("HALITE_UPDATE_GOLDENS").is_some();
    let mut wrong = Vec::new();
    for (index, dir) in bad_recipes().iter().enumerate() {
        let name = dir.file_name().unwrap().to_str().unwrap();
        assert!(
            name.starts_with(&format!("{:02}-", index + 1)),
            "{name}: the numbers have a gap at {}",
            index + 1
        );
        let found = problems(&std::fs::read_to_string(dir.join("recipe.yaml")).unwrap());
        assert!(!found.is_empty(), "{name}: nothing was found wrong");
        assert!(!found.contains("s3cret"), "{name}: {found}");
        let golden = dir.join("expected.txt");
        if update {
            std::fs::write(&golden, &found).unwrap();
        } else if std::fs::read_to_string(&golden).unwrap_or_default() != found {
            wrong.push(format!("{name}:\n{found}"));
        }
    }
    assert!(
        wrong.is_empty(),
        "{}\nHALITE_UPDATE_GOLDENS=1 accepts this",
        wrong.join("\n")
    );
}

#[test]
fn a_good_recipe_passes() {
    assert_eq!(problems(GOOD), "");
}

#[test]
fn a_number_in_place_of_a_text_is_taken_as_it_is_written() {
    let text = GOOD.replace("version: 0.1.0", "version: 0.10");
    let recipe = Recipe::parse("recipe.yaml", &text, Path::new("/site")).unwrap();
    assert_eq!(recipe.version, "0.10");
}

#[test]
fn a_file_that_does_not_exist_is_named_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("recipe.yaml");
    std::fs::write(&file, GOOD).unwrap();
    let Error::Recipe(problems) = Recipe::load(&file).unwrap_err() else {
        panic!("another error");
    };
    let of = |path: &str| {
        problems
            .iter()
            .find(|problem| problem.path == path)
            .unwrap()
    };
    let problem = of("packages.made[0].programs.kubectl");
    assert_eq!((problem.line, problem.column), (19, 65));
    let missing = format!("there is no file {}/bin/kubectl", dir.path().display());
    assert_eq!(problem.message, missing);
    assert_eq!(of("states").excerpt, "states: states/tree");
    // The base, the state tree, four programs.
    assert_eq!(problems.len(), 6, "{problems:#?}");
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(
        edits in proptest::collection::vec((0_usize..GOOD.len(), 0_usize..12, "[a-z:{}\\[\\], \n\"'~0-9@/é-]{0,4}"), 1..6),
    ) {
        let mut text = GOOD.to_owned();
        for (at, length, insert) in edits {
            let at = (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap();
            let end = (at..=(at + length).min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap();
            text.replace_range(at..end, &insert);
        }
        if let Err(Error::Recipe(problems)) = Recipe::parse("recipe.yaml", &text, Path::new("/site")) {
            for problem in problems {
                prop_assert!(problem.line > 0, "{}\n{}", problem, text);
            }
        }
    }
}
