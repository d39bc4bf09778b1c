//! The envelope of a document: its version and its kind.

use serde_json::{Map, Value};

/// The version of all documents and events. Within one version, fields and words are added but
/// never removed.
pub const API_VERSION: &str = "halite/v1";

const VERSION_KEY: &str = "apiVersion";
const KIND_KEY: &str = "kind";

/// A document of the master or of `ctl`.
pub trait Document: Sized {
    /// The kind of this document.
    fn kind(&self) -> &'static str;

    /// The fields of this document, without `apiVersion` and `kind`.
    fn fields(&self) -> Map<String, Value>;

    /// Reads a document of a kind from its fields.
    ///
    /// # Errors
    /// The document is of another kind, or a field is missing or of another type.
    fn from_fields(kind: &str, fields: Map<String, Value>) -> Result<Self, ReadError>;
}

/// The reason why a text is not the expected document.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The text is not JSON, or not an object.
    #[error("cannot read the document: it is not a JSON object")]
    NotJson(#[source] serde_json::Error),
    /// It has another version.
    #[error(
        "cannot read the document: its apiVersion is {found:?}, and this program reads {API_VERSION:?}; use the program of \
         the master's version"
    )]
    Version {
        /// The version of the document; empty if it has none.
        found: String,
    },
    /// It is of another kind.
    #[error("cannot read the document: its kind is {found:?}, not {expected}")]
    Kind {
        /// The kind that the reader expects.
        expected: &'static str,
        /// The kind of the document; empty if it has none.
        found: String,
    },
    /// A field is missing or of another type.
    #[error("cannot read the document of kind {kind}")]
    Field {
        /// The kind of the document.
        kind: &'static str,
        /// The field and its problem.
        source: serde_json::Error,
    },
}

/// A document as a JSON object: `apiVersion`, `kind`, then its fields.
#[must_use]
pub fn to_value(document: &impl Document) -> Value {
    let mut object = Map::new();
    object.insert(VERSION_KEY.to_owned(), API_VERSION.into());
    object.insert(KIND_KEY.to_owned(), document.kind().into());
    object.extend(document.fields());
    Value::Object(object)
}

/// A document as JSON text.
#[must_use]
pub fn to_text(document: &impl Document) -> String {
    to_value(document).to_string()
}

/// Reads a document from JSON text.
///
/// # Errors
/// The text is not JSON, or a document of another version, kind or form.
pub fn from_text<T: Document>(text: &str) -> Result<T, ReadError> {
    let mut fields: Map<String, Value> = serde_json::from_str(text).map_err(ReadError::NotJson)?;
    let mut take = |key: &str| match fields.remove(key) {
        Some(Value::String(text)) => text,
        _ => String::new(),
    };
    let (version, kind) = (take(VERSION_KEY), take(KIND_KEY));
    if version != API_VERSION {
        return Err(ReadError::Version { found: version });
    }
    T::from_fields(&kind, fields)
}

/// Makes a document of this kind of a struct that serde reads and writes.
macro_rules! document {
    ($name:ident) => {
        impl crate::document::Document for $name {
            fn kind(&self) -> &'static str {
                stringify!($name)
            }

            fn fields(&self) -> serde_json::Map<String, serde_json::Value> {
                crate::document::fields_of(self)
            }

            fn from_fields(
                kind: &str,
                fields: serde_json::Map<String, serde_json::Value>,
            ) -> Result<Self, crate::document::ReadError> {
                crate::document::read(stringify!($name), kind, fields)
            }
        }
    };
}

pub(crate) use document;

/// The fields of a struct.
pub(crate) fn fields_of(document: &impl serde::Serialize) -> Map<String, Value> {
    match serde_json::to_value(document) {
        Ok(Value::Object(fields)) => fields,
        // The types of this crate are structs whose keys are text.
        _ => Map::new(),
    }
}

/// Reads a struct from the fields of a document of a kind.
pub(crate) fn read<T: serde::de::DeserializeOwned>(
    expected: &'static str,
    kind: &str,
    fields: Map<String, Value>,
) -> Result<T, ReadError> {
    if kind != expected {
        return Err(ReadError::Kind {
            expected,
            found: kind.to_owned(),
        });
    }
    serde_json::from_value(Value::Object(fields)).map_err(|source| ReadError::Field {
        kind: expected,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AuditLine, AuditLog, TokenRevocation, TokenState};

    #[test]
    fn a_document_has_version_and_kind_first_and_reads_back() {
        let log = AuditLog {
            audit: vec![AuditLine {
                time: crate::Time::from_millis(0),
                who: "operator:alice".to_owned(),
                action: "Operator/Run".to_owned(),
                what: "test.ping on *".to_owned(),
                outcome: "ok".to_owned(),
            }],
        };
        let text = to_text(&log);
        assert!(
            text.starts_with(
                r#"{"apiVersion":"halite/v1","kind":"AuditLog","audit":[{"time":"1970"#
            ),
            "{text}"
        );
        assert_eq!(from_text::<AuditLog>(&text).unwrap(), log);
        let error = from_text::<TokenRevocation>(&text).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("\"AuditLog\", not TokenRevocation"),
            "{error}"
        );
    }

    #[test]
    fn what_another_version_adds_is_ignored_and_another_version_is_refused() {
        let text = r#"{"apiVersion":"halite/v1","kind":"TokenRevocation","token":"a","state":"lapsed","new":1}"#;
        let read: TokenRevocation = from_text(text).unwrap();
        assert_eq!(read.state, TokenState::Other("lapsed".to_owned()));
        for other in [r#"{"token":"a"}"#, r#"{"apiVersion":"halite/v2"}"#] {
            let error = from_text::<TokenRevocation>(other).unwrap_err().to_string();
            assert!(
                error.contains("use the program of the master's version"),
                "{error}"
            );
        }
        let error = from_text::<TokenRevocation>("[]").unwrap_err().to_string();
        assert!(error.contains("not a JSON object"), "{error}");
    }
}
