//! A port of libyaml's emitter (0.2.6) for data without tags, anchors and literal texts. It has the
//! same states, so that lines break at the same places.

use super::scalar::{ScalarPlace, Style, has_breaks, is_break, is_printable, style, text};
use super::yaml::YamlForm;
use super::{Data, SerializeError, Written, sorted};

/// The longest key, in bytes, that stands before its `:` without a `?`.
const MAX_KEY: usize = 128;

impl YamlForm {
    /// Writes data, without a newline at the end.
    ///
    /// # Errors
    /// A key is a list or a mapping.
    pub(crate) fn write(self, data: &Data) -> Written<String> {
        let mut emitter = Emitter::new(self);
        emitter.node(data, false)?;
        Ok(emitter.out)
    }
}

/// The text so far, and the state at its end.
struct Emitter {
    form: YamlForm,
    out: String,
    column: usize,
    /// The indentation of the present collection; `None` outside of all.
    indent: Option<usize>,
    /// The last sign separates values: a blank, or the indentation.
    is_separated: bool,
    /// There are only the indentation and indicators of blocks in this line.
    is_indentation: bool,
    flow_level: usize,
}

impl Emitter {
    fn new(form: YamlForm) -> Self {
        Self {
            form,
            out: String::new(),
            column: 0,
            indent: None,
            is_separated: true,
            is_indentation: true,
            flow_level: 0,
        }
    }

    fn node(&mut self, data: &Data, is_value: bool) -> Written<()> {
        match data {
            Data::List(items) if self.is_flow(data) => self.flow_list(items),
            Data::List(items) => self.block_list(items, is_value),
            Data::Map(entries) => {
                let sorted = self.form.sort_keys.then(|| sorted(entries)).flatten();
                let entries = sorted.unwrap_or_else(|| entries.iter().collect());
                if self.is_flow(data) {
                    self.flow_map(&entries)
                } else {
                    self.block_map(&entries)
                }
            }
            scalar => self.scalar(scalar, false),
        }
    }

    fn is_flow(&self, data: &Data) -> bool {
        let (is_empty, is_leaf) = match data {
            Data::List(items) => (items.is_empty(), !items.iter().any(Data::is_collection)),
            Data::Map(entries) => {
                let is_nested = entries.iter().any(|(_, value)| value.is_collection());
                (entries.is_empty(), !is_nested)
            }
            _ => return false,
        };
        self.flow_level > 0 || is_empty || self.form.flow.unwrap_or(is_leaf)
    }

    fn flow_list(&mut self, items: &[Data]) -> Written<()> {
        let outer = self.open_flow("[");
        for (at, item) in items.iter().enumerate() {
            self.separate(at);
            self.node(item, false)?;
        }
        self.close_flow(outer, "]");
        Ok(())
    }

    fn flow_map(&mut self, entries: &[&(Data, Data)]) -> Written<()> {
        let outer = self.open_flow("{");
        for (at, (key, value)) in entries.iter().enumerate() {
            self.separate(at);
            if is_simple(key)? {
                self.scalar(key, true)?;
                self.indicator(":", false, false);
            } else {
                self.spaced_indicator("?", false);
                self.scalar(key, false)?;
                self.break_long_line();
                self.spaced_indicator(":", false);
            }
            self.node(value, true)?;
        }
        self.close_flow(outer, "}");
        Ok(())
    }

    /// Begins a list or mapping in flow style, and returns the indentation around it.
    fn open_flow(&mut self, bracket: &str) -> Option<usize> {
        self.space();
        self.indicator(bracket, true, false);
        self.flow_level += 1;
        self.indent_flow()
    }

    fn close_flow(&mut self, outer: Option<usize>, bracket: &str) {
        self.flow_level -= 1;
        self.indent = outer;
        self.indicator(bracket, false, false);
    }

    /// Begins the item with this number, counted from 0, in flow style.
    fn separate(&mut self, number: usize) {
        if number > 0 {
            self.indicator(",", false, false);
        }
        self.break_long_line();
    }

    fn break_long_line(&mut self) {
        if self.column > self.form.width {
            self.begin_line();
        }
    }

    fn block_list(&mut self, items: &[Data], is_value: bool) -> Written<()> {
        // A list that is the value of a key is not indented.
        let outer = self.indent_block(is_value && !self.is_indentation);
        for item in items {
            self.begin_line();
            self.spaced_indicator("-", true);
            self.node(item, false)?;
        }
        self.indent = outer;
        Ok(())
    }

    fn block_map(&mut self, entries: &[&(Data, Data)]) -> Written<()> {
        let outer = self.indent_block(false);
        for (key, value) in entries {
            self.begin_line();
            if is_simple(key)? {
                self.scalar(key, true)?;
                self.indicator(":", false, false);
            } else {
                self.spaced_indicator("?", true);
                self.scalar(key, false)?;
                self.begin_line();
                self.spaced_indicator(":", true);
            }
            self.node(value, true)?;
        }
        self.indent = outer;
        Ok(())
    }

    /// Indents a collection in flow style, or the lines of a scalar; returns the outer indentation.
    fn indent_flow(&mut self) -> Option<usize> {
        let step = self.form.indent;
        let inner = self.indent.map_or(step, |indent| indent + step);
        self.indent.replace(inner)
    }

    /// Indents a collection in block style; returns the outer indentation.
    fn indent_block(&mut self, stays: bool) -> Option<usize> {
        let step = if stays { 0 } else { self.form.indent };
        let inner = self.indent.map_or(0, |indent| indent + step);
        self.indent.replace(inner)
    }

    fn scalar(&mut self, data: &Data, is_key: bool) -> Written<()> {
        let (text, is_itself) = text(data).ok_or(SerializeError::CollectionKey)?;
        let outer = self.indent_flow();
        let place = ScalarPlace {
            in_flow: self.flow_level > 0,
            is_key,
        };
        match style(&text, is_itself, place, self.form.unicode) {
            Style::Plain => self.plain(&text, !is_key),
            Style::Single => self.single(&text, !is_key),
            Style::Double => self.double(&text, !is_key),
        }
        self.is_separated = false;
        self.is_indentation = false;
        self.indent = outer;
        Ok(())
    }

    fn plain(&mut self, text: &str, breaks: bool) {
        if !text.is_empty() || self.flow_level > 0 {
            self.space();
        }
        let mut is_after_blank = false;
        let mut signs = text.chars().peekable();
        while let Some(c) = signs.next() {
            let can_break = breaks && !is_after_blank && signs.peek() != Some(&' ');
            if c == ' ' && can_break && self.column > self.form.width {
                self.begin_line();
            } else {
                self.put(c);
            }
            if c != ' ' {
                self.is_indentation = false;
            }
            is_after_blank = c == ' ';
        }
    }

    fn single(&mut self, text: &str, breaks: bool) {
        self.spaced_indicator("'", false);
        let (mut is_first, mut is_after_blank, mut is_after_break) = (true, false, false);
        let mut signs = text.chars().peekable();
        while let Some(c) = signs.next() {
            let next = signs.peek().copied();
            if c == ' ' {
                let is_inside = !is_first && next.is_some_and(|next| next != ' ');
                if breaks && !is_after_blank && is_inside && self.column > self.form.width {
                    self.begin_line();
                } else {
                    self.put(c);
                }
                is_after_blank = true;
            } else if is_break(c) {
                if !is_after_break && c == '\n' {
                    self.put_break('\n');
                }
                self.put_break(c);
                self.is_indentation = true;
                is_after_break = true;
            } else {
                if is_after_break {
                    self.begin_line();
                }
                if c == '\'' {
                    self.put('\'');
                }
                self.put(c);
                self.is_indentation = false;
                is_after_blank = false;
                is_after_break = false;
            }
            is_first = false;
        }
        if is_after_break {
            self.begin_line();
        }
        self.indicator("'", false, false);
    }

    fn double(&mut self, text: &str, breaks: bool) {
        self.spaced_indicator("\"", false);
        let (mut is_first, mut is_after_blank) = (true, false);
        let mut signs = text.chars().peekable();
        while let Some(c) = signs.next() {
            let next = signs.peek().copied();
            let is_inside = !is_first && next.is_some();
            if c == ' ' {
                if breaks && !is_after_blank && is_inside && self.column > self.form.width {
                    self.begin_line();
                    if next == Some(' ') {
                        self.put('\\');
                    }
                } else {
                    self.put(c);
                }
            } else if is_printable(c, self.form.unicode) && !is_break(c) && !"\"\\".contains(c) {
                self.put(c);
            } else {
                escape(c).chars().for_each(|c| self.put(c));
            }
            is_after_blank = c == ' ';
            is_first = false;
        }
        self.indicator("\"", false, false);
    }

    fn put(&mut self, c: char) {
        self.out.push(c);
        self.column += 1;
    }

    fn put_break(&mut self, c: char) {
        self.out.push(c);
        self.column = 0;
    }

    /// Separates what follows by a blank.
    fn space(&mut self) {
        if !self.is_separated {
            self.put(' ');
        }
    }

    /// Begins a line with the present indentation, unless that was just done.
    fn begin_line(&mut self) {
        let indent = self.indent.unwrap_or(0);
        let is_begun = self.is_indentation
            && (self.column < indent || self.column == indent && self.is_separated);
        if !is_begun {
            self.put_break('\n');
        }
        while self.column < indent {
            self.put(' ');
        }
        self.is_separated = true;
        self.is_indentation = true;
    }

    fn spaced_indicator(&mut self, sign: &str, is_of_block: bool) {
        self.space();
        self.indicator(sign, false, is_of_block);
    }

    /// Writes a sign of YAML's own. `separates` is true if a value may follow without a blank,
    /// `is_of_block` if it counts as indentation.
    fn indicator(&mut self, sign: &str, separates: bool, is_of_block: bool) {
        sign.chars().for_each(|c| self.put(c));
        self.is_separated = separates;
        self.is_indentation &= is_of_block;
    }
}

/// Tests whether a key can stand before its `:` without a `?`.
fn is_simple(key: &Data) -> Written<bool> {
    let (text, _) = text(key).ok_or(SerializeError::CollectionKey)?;
    Ok(!has_breaks(&text) && text.len() <= MAX_KEY)
}

/// A sign as an escape of double quotes.
fn escape(c: char) -> String {
    let letter = match c {
        '\0' => '0',
        '\u{7}' => 'a',
        '\u{8}' => 'b',
        '\t' => 't',
        '\n' => 'n',
        '\u{B}' => 'v',
        '\u{C}' => 'f',
        '\r' => 'r',
        '\u{1B}' => 'e',
        '"' | '\\' => c,
        '\u{85}' => 'N',
        '\u{A0}' => '_',
        '\u{2028}' => 'L',
        '\u{2029}' => 'P',
        _ => {
            return match u32::from(c) {
                code @ 0..=0xFF => format!("\\x{code:02X}"),
                code @ 0x100..=0xFFFF => format!("\\u{code:04X}"),
                code => format!("\\U{code:08X}"),
            };
        }
    };
    format!("\\{letter}")
}
