//! The signatures of all state functions that an SLS can call.
//!
//! Names and arguments are Salt's where Salt has the function. The compiler checks every call
//! against the signatures, the reference (`docs/reference/states.md`) is generated from them, and a
//! test compares the implementations with them.

mod archive;
mod certificates;
mod cmd;
mod etcd;
mod file;
mod firewalld;
mod halite;
mod host;
mod http;
mod identity;
mod image;
mod kernel;
mod kubernetes;
mod mount;
mod pkg;
mod reference;
mod rotation;
pub(crate) mod salt;
mod service;
mod static_pod;
mod test;

use std::sync::LazyLock;

use crate::signature::Signature;

static ALL: LazyLock<Vec<Signature>> = LazyLock::new(|| {
    let mut all = [
        archive::SIGNATURES,
        certificates::SIGNATURES,
        cmd::SIGNATURES,
        etcd::SIGNATURES,
        file::SIGNATURES,
        firewalld::SIGNATURES,
        halite::SIGNATURES,
        host::SIGNATURES,
        http::SIGNATURES,
        identity::SIGNATURES,
        image::SIGNATURES,
        kernel::SIGNATURES,
        kubernetes::SIGNATURES,
        mount::SIGNATURES,
        pkg::SIGNATURES,
        rotation::SIGNATURES,
        service::SIGNATURES,
        static_pod::SIGNATURES,
        test::SIGNATURES,
    ]
    .concat();
    all.sort_by_key(|signature| (signature.state, signature.fun));
    all
});

/// All state functions, sorted by module and function.
#[must_use]
pub fn signatures() -> &'static [Signature] {
    &ALL
}

/// The signature of `state.fun`, if the function exists.
#[must_use]
pub fn find(state: &str, fun: &str) -> Option<&'static Signature> {
    ALL.binary_search_by(|signature| (signature.state, signature.fun).cmp(&(state, fun)))
        .ok()
        .and_then(|at| ALL.get(at))
}

/// Tests whether a changed state that a call watches or listens to makes it act: whether its
/// function has Salt's `mod_watch`.
#[must_use]
pub fn has_mod_watch(state: &str, fun: &str) -> bool {
    matches!(
        (state, fun),
        ("cmd", "run" | "wait")
            | ("service" | "static_pod", "running")
            | ("unit", "ready")
            | ("test", _)
    )
}

/// Arguments that the compiler adds to a call in the low state; an SLS cannot give them.
#[must_use]
pub fn compiled_arguments(state: &str, fun: &str) -> &'static [&'static str] {
    match (state, fun) {
        // Relative path to `contents` or `blob`, and `mode`: the content of `source`.
        ("file", "recurse") => &["files", "keep"],
        // The data as text.
        ("file", "serialize") => &["contents"],
        // Paths that `clean` keeps because required states manage them.
        ("file", "directory") => &["keep"],
        _ => &[],
    }
}

/// The markdown of `docs/reference/states.md`: every function with its arguments.
#[must_use]
pub fn reference() -> String {
    reference::markdown(signatures())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_function_is_found_and_named_once() {
        for signature in signatures() {
            assert_eq!(find(signature.state, signature.fun), Some(signature));
            let mut names: Vec<_> = signature.args.iter().map(|arg| arg.name).collect();
            names.sort_unstable();
            names.dedup();
            assert_eq!(
                names.len(),
                signature.args.len(),
                "{}.{}",
                signature.state,
                signature.fun
            );
            assert!(!names.contains(&"name"), "every function has `name`");
        }
        let mut functions: Vec<_> = signatures().iter().map(|s| (s.state, s.fun)).collect();
        functions.dedup();
        assert_eq!(functions.len(), signatures().len());
        assert_eq!(find("file", "replaced"), None);
    }

    #[test]
    fn every_sentence_ends_with_a_full_stop() {
        for signature in signatures() {
            for doc in signature
                .args
                .iter()
                .map(|arg| arg.doc)
                .chain([signature.doc])
            {
                assert!(
                    doc.ends_with('.') && !doc.contains('\n'),
                    "{}.{}: {doc}",
                    signature.state,
                    signature.fun
                );
            }
        }
    }
}
