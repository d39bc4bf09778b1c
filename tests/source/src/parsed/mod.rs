//! Facts of each Rust file that the rules need, from one parse of it.
//!
//! Without optimisation, parsing all files takes seconds, and a syntax tree cannot be sent to the
//! thread of another test. So the first rule that needs a fact reads the facts of all rules, with a
//! thread for each processor.

mod imports;
mod outline;
mod prose;
mod types;

use std::collections::BTreeMap;
use std::num::NonZero;
use std::path::Path;
use std::sync::LazyLock;
use std::thread;

use outline::Outline;
use proc_macro2::TokenStream;
use prose::Prose;
use syn::{Attribute, File, Item};
use types::Type;

use crate::tree::{self, Text};

pub(crate) use outline::Name;
pub(crate) use prose::Paragraph;

/// The facts of a file.
pub(crate) struct Facts {
    /// Imports that violate the rule, with their lines and what to write.
    pub(crate) imports: Vec<String>,
    /// The modules below it and the paths that it names.
    pub(crate) outline: Outline,
    /// Its doc comments and strings.
    pub(crate) prose: Prose,
    /// The types that other files can use.
    pub(crate) types: Vec<Type>,
    /// The number of its lines.
    pub(crate) lines: usize,
    /// The number of lines of the modules of tests in it.
    pub(crate) lines_of_tests: usize,
}

static FACTS: LazyLock<BTreeMap<&'static str, Facts>> = LazyLock::new(read_all);

/// The facts of all Rust files, by their paths from the root of the checkout.
pub(crate) fn facts() -> &'static BTreeMap<&'static str, Facts> {
    &FACTS
}

/// The facts of the file with this absolute path.
pub(crate) fn of_file(file: &Path) -> &'static Facts {
    let path = tree::relative(&tree::root(), file);
    let facts = facts().get(path.as_str());
    facts.unwrap_or_else(|| panic!("{path} does not exist"))
}

fn read_all() -> BTreeMap<&'static str, Facts> {
    let files = tree::files(&[".rs"]);
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    thread::scope(|scope| {
        let parts = files.chunks(files.len().div_ceil(threads));
        let readers: Vec<_> = parts
            .map(|part| scope.spawn(move || read_part(part)))
            .collect();
        let parts = readers.into_iter().map(|reader| reader.join().unwrap());
        parts.flatten().collect()
    })
}

fn read_part(files: &[&'static Text]) -> Vec<(&'static str, Facts)> {
    let files = files.iter().copied();
    files.map(|file| (file.path.as_str(), read(file))).collect()
}

fn read(file: &Text) -> Facts {
    let tokens = file.text.parse::<TokenStream>();
    let tokens = tokens.unwrap_or_else(|e| panic!("{}: {e}", file.path));
    let prose = Prose::read(tokens.clone());
    let parsed = syn::parse2::<File>(tokens).unwrap_or_else(|e| panic!("{}: {e}", file.path));
    Facts {
        imports: imports::findings(file, &parsed),
        outline: Outline::read(&parsed),
        prose,
        types: types::read(&parsed),
        lines: file.text.lines().count(),
        lines_of_tests: lines_of_tests(&parsed),
    }
}

/// The number of lines of the modules of tests in a file.
pub(crate) fn lines_of_tests(file: &File) -> usize {
    let lines = file.items.iter().filter_map(|item| match item {
        Item::Mod(module) if is_of_tests(&module.attrs) => {
            let first = module.attrs[0].pound_token.span.start().line;
            let (brace, _) = module.content.as_ref()?;
            Some(brace.span.close().end().line + 1 - first)
        }
        _ => None,
    });
    lines.sum()
}

/// Returns whether an item is compiled for tests only.
fn is_of_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute
                .parse_args::<syn::Ident>()
                .is_ok_and(|condition| condition == "test")
    })
}
