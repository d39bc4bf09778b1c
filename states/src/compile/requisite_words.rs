//! Names of requisites.

/// Requisites, by the name of their list.
pub(super) const REQUISITES: &[&str] = &[
    "require",
    "require_any",
    "watch",
    "watch_any",
    "onchanges",
    "onchanges_any",
    "onfail",
    "onfail_any",
    "onfail_all",
    "prereq",
    "listen",
];

/// The `_in` forms, which declare a requisite at its target.
pub(super) const INVERTED: &[&str] = &[
    "require_in",
    "watch_in",
    "onchanges_in",
    "onfail_in",
    "prereq_in",
    "listen_in",
];

/// Tests whether an argument is a requisite, in any form.
pub(super) fn is_requisite(name: &str) -> bool {
    REQUISITES.contains(&name) || INVERTED.contains(&name) || matches!(name, "use" | "use_in")
}
