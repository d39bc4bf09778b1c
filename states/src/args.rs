//! A chunk's arguments, typed. The compiler has checked them against the signature; these methods
//! refuse the rest.

use serde_json::{Map, Value};

use crate::engine::Failure;
use crate::low::Chunk;

/// The arguments of one chunk.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    chunk: &'a Chunk,
}

impl<'a> Args<'a> {
    /// The arguments of this chunk.
    #[must_use]
    pub fn new(chunk: &'a Chunk) -> Self {
        Self { chunk }
    }

    /// The value, unless it is missing or null.
    #[must_use]
    pub fn any(&self, key: &str) -> Option<&'a Value> {
        self.chunk.args.get(key).filter(|value| !value.is_null())
    }

    fn wrong<T>(&self, key: &str, takes: &str) -> Result<T, Failure> {
        Err(Failure::new(format!(
            "{}: `{key}` must be {takes}",
            self.chunk.function()
        )))
    }

    /// A text; numbers and booleans count as written.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn text(&self, key: &str) -> Result<Option<String>, Failure> {
        match self.any(key) {
            None => Ok(None),
            Some(value) => match scalar(value) {
                Some(text) => Ok(Some(text)),
                None => self.wrong(key, "a text"),
            },
        }
    }

    /// A required text.
    ///
    /// # Errors
    /// The argument is of another kind, or missing.
    pub fn required(&self, key: &str) -> Result<String, Failure> {
        match self.text(key)? {
            Some(text) => Ok(text),
            None => Err(Failure::new(format!(
                "{}: `{key}` is missing",
                self.chunk.function()
            ))),
        }
    }

    /// A boolean.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn flag(&self, key: &str, default: bool) -> Result<bool, Failure> {
        Ok(self.maybe(key)?.unwrap_or(default))
    }

    /// An optional boolean.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn maybe(&self, key: &str) -> Result<Option<bool>, Failure> {
        match self.any(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(_) => self.wrong(key, "true or false"),
        }
    }

    /// A whole number.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, Failure> {
        match self.any(key) {
            None => Ok(None),
            Some(value) => match value
                .as_i64()
                .or_else(|| value.as_str().and_then(|s| s.parse().ok()))
            {
                Some(number) => Ok(Some(number)),
                None => self.wrong(key, "a whole number"),
            },
        }
    }

    /// A number that is not negative, within `T`.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn number<T: TryFrom<i64>>(&self, key: &str) -> Result<Option<T>, Failure> {
        match self.integer(key)? {
            None => Ok(None),
            Some(number) => match T::try_from(number) {
                Ok(number) => Ok(Some(number)),
                Err(_) => self.wrong(key, "a number within the usual range"),
            },
        }
    }

    /// A file mode; the compiler made it a number.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn mode(&self, key: &str) -> Result<Option<u32>, Failure> {
        match self.any(key) {
            None => Ok(None),
            Some(Value::String(text)) => match u32::from_str_radix(text, 8) {
                Ok(mode) if mode <= 0o7777 => Ok(Some(mode)),
                _ => self.wrong(key, "a file mode such as '0644'"),
            },
            Some(value) => match value.as_u64().and_then(|mode| u32::try_from(mode).ok()) {
                Some(mode) if mode <= 0o7777 => Ok(Some(mode)),
                _ => self.wrong(key, "a file mode such as '0644'"),
            },
        }
    }

    /// A list of texts; empty when missing.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn list(&self, key: &str) -> Result<Vec<String>, Failure> {
        Ok(self.maybe_list(key)?.unwrap_or_default())
    }

    /// A list of texts; `None` when missing.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn maybe_list(&self, key: &str) -> Result<Option<Vec<String>>, Failure> {
        match self.any(key) {
            None => Ok(None),
            Some(Value::Array(items)) => match items.iter().map(scalar).collect::<Option<Vec<_>>>()
            {
                Some(list) => Ok(Some(list)),
                None => self.wrong(key, "a list of texts"),
            },
            Some(value) => match scalar(value) {
                Some(text) => Ok(Some(vec![text])),
                None => self.wrong(key, "a list of texts"),
            },
        }
    }

    /// A mapping.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn mapping(&self, key: &str) -> Result<Option<&'a Map<String, Value>>, Failure> {
        match self.any(key) {
            None => Ok(None),
            Some(Value::Object(map)) => Ok(Some(map)),
            Some(_) => self.wrong(key, "a mapping"),
        }
    }

    /// The permission to show differences of content: refused for secrets, and if the state says
    /// so.
    ///
    /// # Errors
    /// The argument is of another kind.
    pub fn show(&self) -> Result<Show, Failure> {
        if self.chunk.sensitive {
            return Ok(Show::Secret);
        }
        Ok(if self.flag("show_changes", true)? {
            Show::Yes
        } else {
            Show::No
        })
    }
}

/// Permission to show a difference of content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// It may be shown.
    Yes,
    /// The state says no.
    No,
    /// The content contains a secret.
    Secret,
}

/// A text, number or boolean as text.
#[must_use]
pub fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn chunk(args: Value) -> Chunk {
        serde_json::from_value(json!({
            "state": "file", "fun": "managed", "id": "x", "name": "/x", "sls": "s",
            "source": {"file": "s.sls", "line": 1, "column": 1}, "args": args
        }))
        .unwrap()
    }

    #[test]
    fn arguments_are_read_as_their_kind_or_refused() {
        let chunk = chunk(
            json!({"a": 1, "b": true, "c": ["x", 2], "m": 420, "o": "0644", "n": null, "d": {}}),
        );
        let args = Args::new(&chunk);
        assert_eq!(args.text("a").unwrap().unwrap(), "1");
        assert_eq!(args.list("c").unwrap(), ["x", "2"]);
        assert_eq!(args.mode("m").unwrap(), args.mode("o").unwrap());
        assert_eq!(args.text("n").unwrap(), None);
        assert!(
            args.text("d")
                .unwrap_err()
                .text()
                .contains("`d` must be a text")
        );
        assert!(args.flag("a", false).is_err());
        assert!(
            args.required("zz")
                .unwrap_err()
                .text()
                .contains("`zz` is missing")
        );
    }
}
