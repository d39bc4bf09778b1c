//! Contexts: the clusters that one user works with, each with its masters and the user's identity,
//! in `~/.config/halite/contexts.yaml`. As in a kubeconfig, one of them may be the current one.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{env, fs};

use anyhow::{Context as _, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::again::CommandLine;
use crate::cli::{Global, GlobalArgs, MasterAccess};
use crate::files;
use crate::output::path_text;

/// The identity of root on a control-plane host.
const IDENTITY: &str = "/etc/halite/operator";

/// The contexts of a user.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// The name of the context for commands without `--context`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// The contexts by their names.
    #[serde(default)]
    pub contexts: BTreeMap<String, ClusterAccess>,
}

/// The access to one cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClusterAccess {
    /// The addresses of its masters, `HOST:PORT`, in the order in which they are tried.
    #[serde(default)]
    pub masters: Vec<String>,
    /// The file of the operator's identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<PathBuf>,
}

/// The path of the contexts, below `XDG_CONFIG_HOME` or else `~/.config`; `None` for a user without
/// a home directory.
pub fn file() -> Option<PathBuf> {
    let set = |name| env::var_os(name).filter(|value| !value.is_empty());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| Some(Path::new(&set("HOME")?).join(".config")))?;
    Some(config.join("halite/contexts.yaml"))
}

impl Contexts {
    /// Reads the contexts; empty without a file.
    ///
    /// # Errors
    /// The file cannot be read, or is not a list of contexts.
    pub fn read(file: Option<&Path>) -> anyhow::Result<Self> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        match fs::read_to_string(file) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::default()),
            text => text
                .map_err(anyhow::Error::new)
                .and_then(|text| Ok(serde_saphyr::from_str(&text)?))
                .with_context(|| format!("cannot read the contexts in {}", file.display())),
        }
    }

    /// Writes the contexts, readable by their owner alone.
    ///
    /// # Errors
    /// The file cannot be written, or the user has no home directory.
    pub fn write(&self, file: Option<&Path>) -> anyhow::Result<()> {
        let file = file.context("cannot write the contexts: HOME is not set")?;
        let text = serde_saphyr::to_string(self).context("cannot write the contexts as YAML")?;
        files::write(file, text.as_bytes(), 0o600)?;
        Ok(())
    }

    /// The context of this name.
    ///
    /// # Errors
    /// The context does not exist; the error names the existing ones.
    pub fn get(&self, name: &str) -> anyhow::Result<&ClusterAccess> {
        if let Some(found) = self.contexts.get(name) {
            return Ok(found);
        }
        let names: Vec<&str> = self.contexts.keys().map(String::as_str).collect();
        if names.is_empty() {
            bail!(
                "cannot find the context {name:?}: there are no contexts; `ctl context set {name}` adds it"
            );
        }
        bail!(
            "cannot find the context {name:?}; the contexts are {}",
            names.join(", ")
        )
    }
}

/// The options of a command, completed from the environment and the contexts of this user. They
/// have no access to a master if the contexts cannot be read, or the named one does not exist.
pub fn resolve(args: &GlobalArgs) -> Global {
    let variable = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    let contexts = Contexts::read(file().as_deref());
    let access = contexts.and_then(|contexts| resolve_with(args, &variable, &contexts));
    Global {
        output: args.output,
        access: access.map_err(|error| format!("{error:#}")),
        access_options: access_options(args),
    }
}

/// The given options for the access to the master, as words for the end of a command line.
fn access_options(args: &GlobalArgs) -> String {
    let options = CommandLine::new("")
        .option("context", args.context.as_ref())
        .option("master", args.master.as_ref());
    let identity = args.identity.as_deref().map(path_text);
    options.option("identity", identity).text()
}

/// Each value comes from its option, or else from a named context, the environment, the current
/// context, or the defaults of a control-plane host.
fn resolve_with(
    args: &GlobalArgs,
    variable: &dyn Fn(&str) -> Option<String>,
    contexts: &Contexts,
) -> anyhow::Result<MasterAccess> {
    let named = args.context.as_deref().map(|name| contexts.get(name));
    let named = named.transpose()?;
    let is_complete = args.master.is_some() && args.identity.is_some();
    let current = match &contexts.current {
        Some(name) if named.is_none() && !is_complete => {
            let remedy = "`ctl context use NAME` changes the current context";
            let current = contexts
                .get(name)
                .map_err(|error| anyhow!("{error}; {remedy}"));
            Some(current?)
        }
        _ => None,
    };
    let masters = |access: &ClusterAccess| {
        let masters = access.masters.join(",");
        (!masters.is_empty()).then_some(masters)
    };
    let environment = |name: &str| variable(name).filter(|_| named.is_none());
    let master = (args.master.clone())
        .or_else(|| named.and_then(masters))
        .or_else(|| environment("HALITE_MASTER"))
        .or_else(|| current.and_then(masters));
    let identity = (args.identity.clone())
        .or_else(|| named.and_then(|access| access.identity.clone()))
        .or_else(|| environment("HALITE_IDENTITY").map(PathBuf::from))
        .or_else(|| current.and_then(|access| access.identity.clone()))
        .unwrap_or_else(|| PathBuf::from(IDENTITY));
    Ok(MasterAccess { master, identity })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::output::Format;

    fn contexts() -> Contexts {
        let access = |masters: &[&str], identity: &str| ClusterAccess {
            masters: masters.iter().map(ToString::to_string).collect(),
            identity: Some(identity.into()),
        };
        Contexts {
            current: Some("prod".to_owned()),
            contexts: [
                ("prod".to_owned(), access(&["p1:4550", "p2:4550"], "/p.pem")),
                ("lab".to_owned(), access(&["l:4550"], "/l.pem")),
            ]
            .into(),
        }
    }

    #[test]
    fn written_contexts_are_read_again_and_only_their_owner_can() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("halite/contexts.yaml");
        assert_eq!(Contexts::read(Some(&file)).unwrap(), Contexts::default());
        contexts().write(Some(&file)).unwrap();
        let mode = fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(Contexts::read(Some(&file)).unwrap(), contexts());
        fs::write(&file, "contexts: {a: {master: x}}").unwrap();
        let error = format!("{:#}", Contexts::read(Some(&file)).unwrap_err());
        assert!(
            error.contains("contexts.yaml") && error.contains("master"),
            "{error}"
        );
    }

    #[test]
    fn an_option_wins_over_a_named_context_the_environment_and_the_current_one() {
        let resolved = |context: Option<&str>, master: Option<&str>, from_environment: bool| {
            let args = GlobalArgs {
                output: Format::Table,
                context: context.map(str::to_owned),
                master: master.map(str::to_owned),
                identity: None,
            };
            let variable = |name: &str| match name {
                "HALITE_MASTER" if from_environment => Some("e:4550".to_owned()),
                "HALITE_IDENTITY" if from_environment => Some("/e.pem".to_owned()),
                _ => None,
            };
            let found = resolve_with(&args, &variable, &contexts()).unwrap();
            let identity = found.identity.display().to_string();
            (found.master.unwrap_or_default(), identity)
        };
        let pair = |master: &str, identity: &str| (master.to_owned(), identity.to_owned());
        assert_eq!(
            resolved(None, None, false),
            pair("p1:4550,p2:4550", "/p.pem")
        );
        assert_eq!(resolved(None, None, true), pair("e:4550", "/e.pem"));
        assert_eq!(resolved(Some("lab"), None, true), pair("l:4550", "/l.pem"));
        assert_eq!(
            resolved(Some("lab"), Some("o:1"), true),
            pair("o:1", "/l.pem")
        );
    }

    #[test]
    fn a_command_is_repeated_with_the_same_options() {
        let args = GlobalArgs {
            output: Format::Table,
            context: Some("ship 2".to_owned()),
            master: None,
            identity: Some("/x.pem".into()),
        };
        assert_eq!(
            access_options(&args),
            " --context 'ship 2' --identity /x.pem"
        );
    }

    #[test]
    fn without_contexts_the_defaults_are_those_of_a_control_plane_host() {
        let args = GlobalArgs {
            output: Format::Table,
            context: None,
            master: None,
            identity: None,
        };
        let found = resolve_with(&args, &|_| None, &Contexts::default()).unwrap();
        assert_eq!(found.master, None);
        assert_eq!(found.identity, Path::new("/etc/halite/operator"));
        let named = GlobalArgs {
            context: Some("x".to_owned()),
            ..args
        };
        let error = resolve_with(&named, &|_| None, &contexts()).unwrap_err();
        assert!(error.to_string().contains("lab, prod"), "{error}");
    }

    #[test]
    fn a_current_context_that_was_removed_is_an_error_only_where_it_is_needed() {
        let contexts = Contexts {
            current: Some("gone".to_owned()),
            ..contexts()
        };
        let resolved = |master: Option<&str>, identity: Option<&str>| {
            let args = GlobalArgs {
                output: Format::Table,
                context: None,
                master: master.map(str::to_owned),
                identity: identity.map(Into::into),
            };
            resolve_with(&args, &|_| None, &contexts)
        };
        let error = resolved(Some("m:1"), None).unwrap_err().to_string();
        assert!(
            error.contains("gone") && error.contains("ctl context use"),
            "{error}"
        );
        assert!(resolved(Some("m:1"), Some("/i.pem")).is_ok());
    }
}
