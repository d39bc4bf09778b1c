//! Compares one file's content, owner and mode with its specification, for all states that write
//! files.

use halite_states::args::Show;
use serde_json::{Map, Value, json};

use crate::host::effect::{Effect, Meta};
use crate::host::{FileKind, Host, Stat};
use crate::modules::digest::has_digest;
use crate::modules::paths::{known_owner, meta_difference};
use crate::modules::replace::kind_name;
use crate::modules::{Failure, diff, fail};

/// The source of a file's content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::modules) enum ContentSource {
    /// The content itself.
    Bytes(Vec<u8>),
    /// A blob, by the SHA-256 of its content.
    Blob(String),
    /// A file on the host.
    Path(String),
}

impl ContentSource {
    /// Reads `blob:SHA256` or an absolute path.
    ///
    /// # Errors
    /// Any other text; the compiler has already replaced `salt://` and `bundle://`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        if let Some(sha256) = text.strip_prefix("blob:") {
            return Ok(Self::Blob(sha256.to_owned()));
        }
        if text.starts_with('/') {
            return Ok(Self::Path(text.to_owned()));
        }
        fail(format!(
            "source {text}: give salt://path, bundle://path or an absolute path on the host"
        ))
    }

    /// The content.
    pub async fn read(&self, host: &dyn Host) -> Result<Vec<u8>, Failure> {
        match self {
            Self::Bytes(bytes) => Ok(bytes.clone()),
            Self::Blob(sha256) => Ok(host.blob(sha256).await?),
            Self::Path(path) => match host.read(path).await? {
                Some(content) => Ok(content),
                None => fail(format!("Source file {path} not found")),
            },
        }
    }

    /// `found`, and the content, or `None` if it equals `found`: a present blob is not fetched.
    async fn unless(
        &self,
        host: &dyn Host,
        mut found: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<Vec<u8>>), Failure> {
        if let Self::Blob(digest) = self {
            let is_same;
            (found, is_same) = has_digest(found, digest).await?;
            if is_same {
                return Ok((found, None));
            }
        }
        let content = self.read(host).await?;
        let is_other = content != found;
        Ok((found, is_other.then_some(content)))
    }
}

/// The content, owner and mode that a state requires of a file.
pub(super) struct FileSpec {
    /// `None` keeps the present content; a new file is empty.
    pub source: Option<ContentSource>,
    pub meta: Meta,
    pub show: Show,
}

/// The difference between a file and its specification.
#[derive(Debug, Default)]
pub(super) struct Difference {
    pub changes: Map<String, Value>,
    pub effects: Vec<Effect>,
}

/// Compares the entry `stat` at `path` with `spec`.
pub(super) async fn difference(
    host: &dyn Host,
    path: &str,
    stat: Option<&Stat>,
    spec: &FileSpec,
) -> Result<Difference, Failure> {
    let Some(stat) = stat else {
        let content = match &spec.source {
            Some(source) => source.read(host).await?,
            None => Vec::new(),
        };
        known_owner(host, &spec.meta).await?;
        let meta = Meta {
            mode: Some(spec.meta.mode.unwrap_or(0o644)),
            ..spec.meta.clone()
        };
        let changes = Map::from_iter([("diff".to_owned(), json!("New file"))]);
        return Ok(Difference {
            changes,
            effects: vec![Effect::Write {
                path: path.to_owned(),
                content,
                meta,
            }],
        });
    };
    if stat.kind != FileKind::File {
        return fail(format!(
            "Specified target {path} is {}, not a file",
            kind_name(stat)
        ));
    }
    let (mut changes, set) = meta_difference(host, stat, &spec.meta).await?;
    known_owner(host, &set).await?;
    if let Some(source) = &spec.source {
        let found = host.read(path).await?.unwrap_or_default();
        let (found, content) = source.unless(host, found).await?;
        if let Some(content) = content {
            changes.insert(
                "diff".into(),
                json!(diff::describe(&found, &content, spec.show)),
            );
            let meta = spec.meta.clone();
            return Ok(Difference {
                changes,
                effects: vec![Effect::Write {
                    path: path.to_owned(),
                    content,
                    meta,
                }],
            });
        }
    }
    let effects = if changes.is_empty() {
        Vec::new()
    } else {
        vec![Effect::SetMeta {
            path: path.to_owned(),
            meta: set,
        }]
    };
    Ok(Difference { changes, effects })
}
