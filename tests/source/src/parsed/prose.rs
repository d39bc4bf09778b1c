//! The doc comments and the strings of a file.

use proc_macro2::{Delimiter, Literal, TokenStream, TokenTree};
use syn::Lit;

/// A paragraph of a file, with the line that it starts in.
pub(crate) struct Paragraph {
    /// The number of the line.
    pub(crate) line: usize,
    /// The text, which may have several lines.
    pub(crate) text: String,
}

/// The doc comments and the strings of a Rust file.
#[derive(Default)]
pub(crate) struct Prose {
    /// The doc comments.
    pub(crate) docs: Vec<Paragraph>,
    /// The values of string literals.
    pub(crate) strings: Vec<Paragraph>,
}

impl Prose {
    pub(super) fn read(tokens: TokenStream) -> Self {
        let mut prose = Self::default();
        prose.walk(tokens);
        prose
    }

    fn walk(&mut self, tokens: TokenStream) {
        // The line after the last one of the doc comment under way.
        let mut next_line = 0;
        for token in tokens {
            match token {
                TokenTree::Group(group) if group.delimiter() == Delimiter::Bracket => {
                    let Some(text) = doc(group.stream()) else {
                        self.walk(group.stream());
                        continue;
                    };
                    let line = group.span_open().start().line;
                    match self.docs.last_mut() {
                        Some(last) if line == next_line => {
                            last.text.push('\n');
                            last.text.push_str(&text);
                        }
                        _ => self.docs.push(Paragraph { line, text }),
                    }
                    next_line = line + 1;
                }
                TokenTree::Group(group) => self.walk(group.stream()),
                TokenTree::Literal(literal) => {
                    let span = literal.span();
                    if let Some(text) = string(literal) {
                        let line = span.start().line;
                        self.strings.push(Paragraph { line, text });
                    }
                }
                TokenTree::Ident(_) | TokenTree::Punct(_) => {}
            }
        }
    }
}

/// The text of `doc = "…"`.
fn doc(attribute: TokenStream) -> Option<String> {
    let mut tokens = attribute.into_iter();
    let (name, equals, literal) = (tokens.next()?, tokens.next()?, tokens.next()?);
    let has_name = matches!(&name, TokenTree::Ident(name) if name == "doc");
    let has_equals = matches!(&equals, TokenTree::Punct(equals) if equals.as_char() == '=');
    match literal {
        TokenTree::Literal(literal) if has_name && has_equals => {
            let text = string(literal)?;
            tokens.next().is_none().then_some(text)
        }
        _ => None,
    }
}

/// The value of a literal if it is a string.
fn string(literal: Literal) -> Option<String> {
    match Lit::new(literal) {
        Lit::Str(text) => Some(text.value()),
        _ => None,
    }
}
