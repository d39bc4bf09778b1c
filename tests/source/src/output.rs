//! Programs print through `halite_cli::output` or `halite-terminal`: `println!` panics when the
//! reader of a pipe has closed it.

use crate::tree;

/// The macros that panic.
const MACROS: [&str; 4] = ["println!(", "eprintln!(", " print!(", "eprint!("];

/// Returns true for what no program of a site contains: tests, and programs that run at a build.
fn is_not_shipped(path: &str) -> bool {
    path.starts_with("tests/")
        || path.contains("/tests/")
        || path.contains("_build.rs")
        || path.ends_with("build.rs")
        || path.ends_with("tests.rs")
        || path.ends_with("/scripted_minion.rs")
}

#[test]
fn no_program_panics_on_a_closed_pipe() {
    let mut findings = Vec::new();
    for file in tree::files(&[".rs"]) {
        // Looking at each line takes longer, and most files do not print.
        if is_not_shipped(&file.path) || !file.text.contains("print") {
            continue;
        }
        let product = file.text.split("#[test]").next();
        for (number, line) in product.unwrap_or_default().lines().enumerate() {
            let is_code = !line.trim_start().starts_with("//");
            if is_code && MACROS.iter().any(|name| line.contains(name)) {
                findings.push(format!("{}:{}", file.path, number + 1));
            }
        }
    }
    assert!(
        findings.is_empty(),
        "these print without halite_cli::output:\n{}",
        findings.join("\n")
    );
}
