//! The forms of YAML texts.

/// PyYAML's indentation and width.
const INDENT: usize = 2;
const WIDTH: usize = 80;

/// The form of a YAML text, by the arguments of PyYAML's `dump`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct YamlForm {
    /// Lists and mappings are in flow style; `None` means those that contain no others.
    pub flow: Option<bool>,
    /// Keys are sorted if they have an order.
    pub sort_keys: bool,
    /// Signs that are not ASCII stay as they are.
    pub unicode: bool,
    /// The number of blanks for each level, from 2 to 9.
    pub indent: usize,
    /// The column behind which a line is broken.
    pub width: usize,
}

impl Default for YamlForm {
    /// The form of Salt's serializer.
    fn default() -> Self {
        Self {
            flow: None,
            sort_keys: true,
            unicode: false,
            indent: INDENT,
            width: WIDTH,
        }
    }
}

impl YamlForm {
    /// Block style throughout, as `file.serialize` writes it.
    pub(crate) fn block() -> Self {
        Self {
            flow: Some(false),
            ..Self::default()
        }
    }

    /// Sets the indentation and the width, where libyaml accepts them; a negative width has no
    /// limit.
    #[must_use]
    pub(crate) fn sized(self, indent: Option<i64>, width: Option<i64>) -> Self {
        let indent = indent.and_then(|indent| usize::try_from(indent).ok());
        let indent = indent.filter(|indent| (2..=9).contains(indent));
        let indent = indent.unwrap_or(INDENT);
        let width = match width.map(usize::try_from) {
            Some(Err(_)) => usize::MAX,
            Some(Ok(width)) if width > 2 * indent => width,
            _ => WIDTH,
        };
        Self {
            indent,
            width,
            ..self
        }
    }
}
