//! State modules: each compares the host with a chunk and returns the missing effects.
//!
//! Comments and changes are Salt's if Salt has the function, so that people and tools that read
//! Salt's output can read Halite's.

mod archive;
mod clean;
mod cmd;
mod diff;
mod digest;
mod etcd;
mod file;
mod firewalld;
mod firewalld_sets;
mod founded;
mod fstab;
mod group;
mod hosts;
mod http;
mod image;
mod image_name;
mod joined;
mod kernel;
mod kubeconfig;
mod lines;
mod mount;
mod paths;
mod pkg;
mod pkgrepo;
mod pkgrepo_absent;
mod pki;
mod recorded;
mod replace;
mod service;
mod static_pod;
mod test;
mod user;
mod x509;

use halite_errors::chain;
use halite_states::args::Args;
use halite_states::low::Chunk;
use serde_json::{Map, Value};

use crate::host::effect::{Effect, Meta};
use crate::host::{Host, HostError, HostFuture};

pub(crate) use self::cmd::{UMASK, shell};
pub(crate) use self::http::answers;
pub(crate) use self::paths::follow;
pub(crate) use self::service::unit_name;
pub(crate) use self::x509::is_current;

/// The result of a module's check.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// The differences, for display. Empty if the host is in the required state.
    pub changes: Map<String, Value>,
    /// One sentence: the state, or the planned change.
    pub comment: String,
    /// The comment after the effects were carried out; empty: `comment` is used.
    pub done: String,
    /// The missing effects, in order. Empty exactly when `changes` is (except for `test.*`, which
    /// only report changes).
    pub effects: Vec<Effect>,
}

impl Plan {
    /// The host is in the required state.
    fn nothing(comment: impl Into<String>) -> Self {
        Self {
            comment: comment.into(),
            ..Self::default()
        }
    }

    /// A planned change, with its comments before and after.
    fn change(
        changes: Map<String, Value>,
        effects: Vec<Effect>,
        comment: impl Into<String>,
        done: impl Into<String>,
    ) -> Self {
        Self {
            changes,
            comment: comment.into(),
            done: done.into(),
            effects,
        }
    }
}

pub use halite_states::engine::Failure;

impl From<HostError> for Failure {
    fn from(error: HostError) -> Self {
        failure(chain(&error))
    }
}

/// Makes a failure with a text.
pub(crate) fn failure(reason: impl Into<String>) -> Failure {
    Failure::new(reason)
}

/// An `Err` with a text.
pub(crate) fn fail<T>(reason: impl Into<String>) -> Result<T, Failure> {
    Err(failure(reason))
}

/// The owner, group and mode that a state's arguments name.
pub(crate) fn meta(args: &Args<'_>) -> Result<Meta, Failure> {
    Ok(Meta {
        user: args.text("user")?,
        group: args.text("group")?,
        mode: args.mode("mode")?,
    })
}

/// The future of a check.
pub type Check<'a> = HostFuture<'a, Result<Plan, Failure>>;

/// A check: reads the host, changes nothing.
pub type CheckFn = for<'a> fn(&'a dyn Host, &'a Chunk) -> Check<'a>;

/// One state function.
pub struct Function {
    /// Module and function, for example `("file", "managed")`; there is a signature for exactly
    /// these.
    pub name: (&'static str, &'static str),
    /// Compares; changes nothing.
    pub check: CheckFn,
    /// Salt's `mod_watch`, for functions that have one: the plan after a change of a watched state.
    pub watch: Option<CheckFn>,
}

const fn function(state: &'static str, fun: &'static str, check: CheckFn) -> Function {
    Function {
        name: (state, fun),
        check,
        watch: None,
    }
}

const fn watched(
    state: &'static str,
    fun: &'static str,
    check: CheckFn,
    watch: CheckFn,
) -> Function {
    Function {
        name: (state, fun),
        check,
        watch: Some(watch),
    }
}

/// All state functions of this minion.
#[must_use]
pub fn functions() -> &'static [Function] {
    FUNCTIONS
}

/// The function `state.fun`, if there is one.
#[must_use]
pub fn find(state: &str, fun: &str) -> Option<&'static Function> {
    FUNCTIONS
        .iter()
        .find(|function| function.name == (state, fun))
}

const FUNCTIONS: &[Function] = &[
    function("archive", "extracted", |h, c| {
        Box::pin(archive::extracted(h, c))
    }),
    watched(
        "cmd",
        "run",
        |h, c| Box::pin(cmd::run(h, c)),
        |h, c| Box::pin(cmd::run(h, c)),
    ),
    watched(
        "cmd",
        "wait",
        |h, c| Box::pin(cmd::wait(h, c)),
        |h, c| Box::pin(cmd::run(h, c)),
    ),
    function("etcd", "data", |h, c| Box::pin(etcd::data(h, c))),
    function("etcd", "founded", |h, c| Box::pin(founded::founded(h, c))),
    function("etcd", "joined", |h, c| Box::pin(joined::joined(h, c))),
    function("etcd", "recorded", |h, c| {
        Box::pin(recorded::recorded(h, c))
    }),
    function("file", "absent", |h, c| Box::pin(file::absent(h, c))),
    function("file", "append", |h, c| Box::pin(file::append(h, c))),
    function("file", "blockreplace", |h, c| {
        Box::pin(file::blockreplace(h, c))
    }),
    function("file", "comment", |h, c| Box::pin(file::comment(h, c))),
    function("file", "copy", |h, c| Box::pin(file::copy(h, c))),
    function("file", "directory", |h, c| Box::pin(file::directory(h, c))),
    function("file", "line", |h, c| Box::pin(file::line(h, c))),
    function("file", "managed", |h, c| Box::pin(file::managed(h, c))),
    function("file", "recurse", |h, c| Box::pin(file::recurse(h, c))),
    function("file", "replace", |h, c| Box::pin(file::replace(h, c))),
    function("file", "serialize", |h, c| Box::pin(file::managed(h, c))),
    function("file", "symlink", |h, c| Box::pin(file::symlink(h, c))),
    function("file", "uncomment", |h, c| Box::pin(file::uncomment(h, c))),
    function("firewalld", "ipsets", |h, c| {
        Box::pin(firewalld_sets::ipsets(h, c))
    }),
    function("firewalld", "owned", |h, c| {
        Box::pin(firewalld::owned(h, c))
    }),
    function("firewalld", "policy", |h, c| {
        Box::pin(firewalld::policy(h, c))
    }),
    function("firewalld", "zone", |h, c| Box::pin(firewalld::zone(h, c))),
    function("group", "absent", |h, c| Box::pin(group::absent(h, c))),
    function("group", "present", |h, c| Box::pin(group::present(h, c))),
    function("host", "absent", |h, c| Box::pin(hosts::absent(h, c))),
    function("host", "present", |h, c| Box::pin(hosts::present(h, c))),
    function("http", "wait_for_successful_query", |h, c| {
        Box::pin(http::wait_for_successful_query(h, c))
    }),
    function("image", "present", |h, c| Box::pin(image::present(h, c))),
    function("kmod", "present", |h, c| {
        Box::pin(kernel::module_present(h, c))
    }),
    function("kubeconfig", "managed", |h, c| {
        Box::pin(kubeconfig::managed(h, c))
    }),
    function("mount", "mounted", |h, c| Box::pin(mount::mounted(h, c))),
    function("mount", "refused", |h, c| Box::pin(mount::refused(h, c))),
    function("mount", "unmounted", |h, c| {
        Box::pin(mount::unmounted(h, c))
    }),
    function("pkg", "installed", |h, c| Box::pin(pkg::installed(h, c))),
    function("pkg", "removed", |h, c| Box::pin(pkg::removed(h, c))),
    function("pkgrepo", "absent", |h, c| {
        Box::pin(pkgrepo_absent::absent(h, c))
    }),
    function("pkgrepo", "managed", |h, c| {
        Box::pin(pkgrepo::managed(h, c))
    }),
    function("service", "dead", |h, c| Box::pin(service::dead(h, c))),
    function("service", "disabled", |h, c| {
        Box::pin(service::disabled(h, c))
    }),
    function("service", "enabled", |h, c| {
        Box::pin(service::enabled(h, c))
    }),
    function("service", "masked", |h, c| Box::pin(service::masked(h, c))),
    watched(
        "service",
        "running",
        |h, c| Box::pin(service::running(h, c)),
        |h, c| Box::pin(service::watched(h, c)),
    ),
    watched(
        "static_pod",
        "running",
        |h, c| Box::pin(static_pod::running(h, c)),
        |h, c| Box::pin(static_pod::watched(h, c)),
    ),
    function("swap", "absent", |h, c| Box::pin(mount::swap_absent(h, c))),
    function("sysctl", "present", |h, c| {
        Box::pin(kernel::parameter_present(h, c))
    }),
    watched(
        "test",
        "configurable_test_state",
        |h, c| Box::pin(test::configurable_test_state(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "test",
        "fail_with_changes",
        |h, c| Box::pin(test::fail_with_changes(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "test",
        "fail_without_changes",
        |h, c| Box::pin(test::fail_without_changes(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "test",
        "nop",
        |h, c| Box::pin(test::succeed_without_changes(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "test",
        "show_notification",
        |h, c| Box::pin(test::show_notification(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "test",
        "succeed_with_changes",
        |h, c| Box::pin(test::succeed_with_changes(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "test",
        "succeed_without_changes",
        |h, c| Box::pin(test::succeed_without_changes(h, c)),
        |h, c| Box::pin(test::watched(h, c)),
    ),
    watched(
        "unit",
        "ready",
        |h, c| Box::pin(static_pod::unit_ready(h, c)),
        |h, c| Box::pin(static_pod::unit_watched(h, c)),
    ),
    function("user", "absent", |h, c| Box::pin(user::absent(h, c))),
    function("user", "present", |h, c| Box::pin(user::present(h, c))),
    function("x509", "certificate", |h, c| {
        Box::pin(x509::certificate(h, c))
    }),
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use halite_states::signature::RunsOn;
    use halite_states::signatures::{has_mod_watch, signatures};

    use super::functions;

    #[test]
    fn there_is_a_function_for_exactly_each_signature() {
        let implemented: BTreeSet<_> = functions().iter().map(|f| f.name).collect();
        let promised: BTreeSet<_> = signatures()
            .iter()
            .filter(|s| s.runs_on == RunsOn::Minion)
            .map(|s| (s.state, s.fun))
            .collect();
        assert_eq!(implemented, promised);
        assert_eq!(implemented.len(), functions().len());
    }

    #[test]
    fn the_compiler_knows_which_functions_have_a_mod_watch() {
        for function in functions() {
            let (state, fun) = function.name;
            assert_eq!(
                function.watch.is_some(),
                has_mod_watch(state, fun),
                "{state}.{fun}"
            );
        }
    }
}
