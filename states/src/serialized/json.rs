//! JSON as Python's `json.dumps` writes it.

use super::{Data, SerializeError, Written, float, sorted};

/// The longest text.
const MAX_BYTES: usize = 8 << 20;

/// The form of a JSON text.
#[derive(Debug, Clone, Default)]
pub(crate) struct JsonForm {
    /// Each item begins a line, with this text for each level.
    pub indent: Option<String>,
    /// Between items, and between a key and its value; by default with a blank, but none at the end
    /// of a line.
    pub separators: Option<(String, String)>,
    /// Keys are sorted.
    pub sort_keys: bool,
    /// Signs that are not ASCII are escaped.
    pub ascii: bool,
}

impl JsonForm {
    /// Writes data.
    ///
    /// # Errors
    /// A key is a list or a mapping, the keys to be sorted have no order, or the text would be too
    /// long.
    pub(crate) fn write(&self, data: &Data) -> Written<String> {
        let mut out = String::new();
        self.put(data, 0, &mut out)?;
        Ok(out)
    }

    fn put(&self, data: &Data, depth: usize, out: &mut String) -> Written<()> {
        if out.len() > MAX_BYTES {
            return Err(SerializeError::TooLarge);
        }
        match data {
            Data::Null => out.push_str("null"),
            Data::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Data::Int(number) => out.push_str(&number.to_string()),
            Data::Float(number) => out.push_str(&json_float(*number)),
            Data::Text(text) => out.push_str(&self.quoted(text)),
            Data::List(items) => {
                out.push('[');
                for (at, item) in items.iter().enumerate() {
                    self.separate(at, depth + 1, out);
                    self.put(item, depth + 1, out)?;
                }
                self.close(items.is_empty(), depth, ']', out);
            }
            Data::Map(entries) => {
                let entries = if self.sort_keys {
                    sorted(entries).ok_or(SerializeError::Order)?
                } else {
                    entries.iter().collect()
                };
                out.push('{');
                for (at, (key, value)) in entries.iter().enumerate() {
                    self.separate(at, depth + 1, out);
                    out.push_str(&self.quoted(&name(key)?));
                    out.push_str(self.separators().1);
                    self.put(value, depth + 1, out)?;
                }
                self.close(entries.is_empty(), depth, '}', out);
            }
        }
        Ok(())
    }

    fn separators(&self) -> (&str, &str) {
        match (&self.separators, &self.indent) {
            (Some((items, keys)), _) => (items.as_str(), keys.as_str()),
            (None, Some(_)) => (",", ": "),
            (None, None) => (", ", ": "),
        }
    }

    /// Begins the item with this number, counted from 0.
    fn separate(&self, number: usize, depth: usize, out: &mut String) {
        if number > 0 {
            out.push_str(self.separators().0);
        }
        self.begin_line(depth, out);
    }

    fn close(&self, is_empty: bool, depth: usize, bracket: char, out: &mut String) {
        if !is_empty {
            self.begin_line(depth, out);
        }
        out.push(bracket);
    }

    fn begin_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            out.push_str(&indent.repeat(depth));
        }
    }

    fn quoted(&self, text: &str) -> String {
        let quoted = serde_json::Value::from(text).to_string();
        if !self.ascii {
            return quoted;
        }
        let mut out = String::with_capacity(quoted.len());
        for c in quoted.chars() {
            if (' '..='~').contains(&c) {
                out.push(c);
            } else {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
        out
    }
}

fn json_float(number: f64) -> String {
    match float(number).as_str() {
        "nan" => "NaN".to_owned(),
        "inf" => "Infinity".to_owned(),
        "-inf" => "-Infinity".to_owned(),
        written => written.to_owned(),
    }
}

/// A key as a text.
fn name(key: &Data) -> Written<String> {
    Ok(match key {
        Data::Null => "null".to_owned(),
        Data::Bool(value) => value.to_string(),
        Data::Int(number) => number.to_string(),
        Data::Float(number) => json_float(*number),
        Data::Text(text) => text.clone(),
        Data::List(_) | Data::Map(_) => return Err(SerializeError::CollectionKey),
    })
}
