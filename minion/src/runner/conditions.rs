//! The conditions `unless`, `onlyif` and `check_cmd`: shell commands and a few execution functions.

use halite_states::engine::Failure;
use halite_states::low::Chunk;
use serde_json::{Map, Value};

use super::{Runner, redacted_failure};
use crate::host::effect::Command;
use crate::host::{FileKind, Host as _, HostError};
use crate::modules;
use crate::modules::fail;

/// The longest run of a condition's command, in seconds, unless the state has a `timeout`.
const CONDITION_TIMEOUT: u64 = 300;

impl Runner<'_> {
    /// Returns whether a shell command succeeds; it runs like the chunk's own command.
    pub(super) async fn shell(&self, chunk: &Chunk, line: &str) -> Result<bool, Failure> {
        let mut command: Command = modules::shell(&self.predicted, chunk, line).await?;
        let has_own_limit = command.timeout.is_some();
        command.timeout.get_or_insert(CONDITION_TIMEOUT);
        match self.predicted.query(&command).await {
            Ok(output) => Ok(command.is_success(output.code)),
            // As in Salt, a condition that takes longer than the state allows does not hold.
            Err(HostError::Timeout { .. }) if has_own_limit => Ok(false),
            Err(error) => Err(redacted_failure(chunk, &error)),
        }
    }

    /// Answers a condition that names an execution function: `{fun: service.status, name:
    /// kubelet}`, or with `args: [kubelet]`.
    pub(super) async fn call(&self, call: &Map<String, Value>) -> Result<bool, Failure> {
        let fun = call.get("fun").and_then(Value::as_str).unwrap_or_default();
        let listed = call.get("args").and_then(|a| a.get(0));
        let argument = ["name", "path", "mod", "url"]
            .iter()
            .find_map(|k| call.get(*k))
            .or(listed);
        let argument = argument.and_then(Value::as_str).unwrap_or_default();
        let unit = || modules::unit_name(argument);
        let host = &self.predicted;
        match fun {
            "test.true" | "test.true_" => Ok(true),
            "test.false" | "test.false_" => Ok(false),
            // Links are followed, as in Salt.
            "file.file_exists" | "file.directory_exists" => {
                let wanted = match fun {
                    "file.file_exists" => FileKind::File,
                    _ => FileKind::Directory,
                };
                let (_, stat) = modules::follow(host, argument).await?;
                Ok(stat.is_some_and(|s| s.kind == wanted))
            }
            "service.status" => Ok(host.unit(&unit()).await?.active == "active"),
            "service.enabled" => Ok(host.unit(&unit()).await?.file.starts_with("enabled")),
            "service.available" => Ok(host.unit(&unit()).await?.load == "loaded"),
            "pkg.version" => Ok(host.packages().await?.contains_key(argument)),
            "user.info" => Ok(host.user(argument).await?.is_some()),
            "kmod.is_loaded" => Ok(host.kernel_module(argument).await?),
            "x509.current" => {
                let ca = call.get("ca").and_then(Value::as_str).unwrap_or_default();
                modules::is_current(host, argument, ca).await
            }
            "http.query" => {
                let text = |key: &str| call.get(key).and_then(Value::as_str);
                let url = text("url").unwrap_or(argument);
                modules::answers(
                    host,
                    url,
                    call.get("status").and_then(Value::as_u64),
                    text("ca"),
                    call.get("verify_ssl")
                        .and_then(Value::as_bool)
                        .unwrap_or(true),
                )
                .await
            }
            other => fail(format!(
                "the condition `{other}` is not known: use a shell command, or one of file.file_exists, \
                 file.directory_exists, service.status, service.enabled, service.available, pkg.version, user.info, \
                 http.query, kmod.is_loaded, x509.current, test.true, test.false"
            )),
        }
    }
}
