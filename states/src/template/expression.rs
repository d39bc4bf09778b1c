//! Python's expressions that the template engine lacks, rewritten inside a tag: `%` with a text on
//! its left, and dictionaries that can be changed in place.

/// A part of an expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Token {
    kind: Kind,
    /// Blanks in front of it.
    pub(super) blank: String,
    pub(super) text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Name,
    Number,
    Operator,
    /// An operand that was rewritten.
    Made,
}

/// Operators of two characters.
const LONG: &[&str] = &["//", "**", "==", "!=", "<=", ">="];

/// Words that end an operand.
const WORDS: &[&str] = &[
    "and",
    "as",
    "call",
    "context",
    "do",
    "elif",
    "else",
    "filter",
    "for",
    "from",
    "if",
    "ignore",
    "import",
    "in",
    "include",
    "not",
    "or",
    "recursive",
    "set",
    "with",
    "without",
];

/// The tokens of the inside of a tag; `None` if a quote is not closed.
pub(super) fn tokens(inside: &str) -> Option<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut rest = inside;
    loop {
        let trimmed = rest.trim_start();
        let blank = rest[..rest.len() - trimmed.len()].to_owned();
        let Some(first) = trimmed.chars().next() else {
            tokens.push(Token::operator(blank, ""));
            return Some(tokens);
        };
        let (kind, length) = match first {
            '\'' | '"' => (Kind::Text, text_length(trimmed)?),
            c if c.is_alphabetic() || c == '_' => (Kind::Name, word_length(trimmed)),
            c if c.is_ascii_digit() => (Kind::Number, word_length(trimmed)),
            _ if LONG.iter().any(|long| trimmed.starts_with(long)) => (Kind::Operator, 2),
            c => (Kind::Operator, c.len_utf8()),
        };
        tokens.push(Token {
            kind,
            blank,
            text: trimmed[..length].to_owned(),
        });
        rest = &trimmed[length..];
    }
}

fn text_length(text: &str) -> Option<usize> {
    let quote = text.chars().next()?;
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

fn word_length(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_')
        .unwrap_or(text.len())
}

impl Token {
    fn operator(blank: String, text: &str) -> Self {
        Self {
            kind: Kind::Operator,
            blank,
            text: text.to_owned(),
        }
    }

    pub(super) fn is(&self, operator: &str) -> bool {
        self.kind == Kind::Operator && self.text == operator
    }

    pub(super) fn is_name(&self, name: &str) -> bool {
        self.kind == Kind::Name && self.text == name
    }

    pub(super) fn opens(&self) -> bool {
        self.kind == Kind::Operator && matches!(self.text.as_str(), "(" | "[" | "{")
    }

    pub(super) fn closes(&self) -> bool {
        self.kind == Kind::Operator && matches!(self.text.as_str(), ")" | "]" | "}")
    }

    pub(super) fn is_word(&self) -> bool {
        self.kind == Kind::Name && WORDS.contains(&self.text.as_str())
    }
}

/// Tokens as text.
pub(super) fn joined(tokens: &[Token]) -> String {
    tokens
        .iter()
        .flat_map(|token| [token.blank.as_str(), token.text.as_str()])
        .collect()
}

/// As [`joined`], on one line except for newlines inside tokens: text that is written twice must
/// not shift the lines after it.
fn on_one_line(tokens: &[Token]) -> String {
    tokens
        .iter()
        .flat_map(|token| [token.blank.replace('\n', " "), token.text.clone()])
        .collect::<String>()
        .trim()
        .to_owned()
}

/// Rewrites `a % b`: it formats if `a` is a text, and is still the remainder if `a` is a number.
pub(super) fn format_texts(tokens: &mut Vec<Token>) {
    while let Some(at) = deepest_percent(tokens) {
        let (from, to) = (left_end(tokens, at), right_end(tokens, at));
        let (left, right) = (&tokens[from..at], &tokens[at + 1..to]);
        let is_number = matches!(left, [one] if one.kind == Kind::Number);
        if left.is_empty() || right.is_empty() || is_number {
            // The engine calculates, or finds the mistake.
            tokens[at].kind = Kind::Made;
            continue;
        }
        let blank = left[0].blank.clone();
        let whole = format!("{}, {}", joined(left).trim_start(), joined(right).trim());
        let text = if left.iter().all(|token| token.kind == Kind::Text) {
            format!("__format_text({whole})")
        } else {
            let (left, right) = (on_one_line(left), on_one_line(right));
            format!("(__format_text({whole}) if ({left}) is string else ({left}) % ({right}))")
        };
        let made = Token {
            kind: Kind::Made,
            blank,
            text,
        };
        tokens.splice(from..to, [made]);
    }
}

/// The first of the most deeply nested `%`, so that operands are rewritten before the expressions
/// around them.
fn deepest_percent(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0usize;
    let mut found: Option<(usize, usize)> = None;
    for (at, token) in tokens.iter().enumerate() {
        if token.opens() {
            depth += 1;
        } else if token.closes() {
            depth = depth.saturating_sub(1);
        } else if token.is("%") && found.is_none_or(|(deepest, _)| depth > deepest) {
            found = Some((depth, at));
        }
    }
    found.map(|(_, at)| at)
}

/// Tests whether `+` or `-` is a sign: no operand precedes it.
fn is_sign(tokens: &[Token], at: usize) -> bool {
    let Some(before) = at.checked_sub(1).and_then(|before| tokens.get(before)) else {
        return true;
    };
    before.is_word() || before.kind == Kind::Operator && !before.closes()
}

/// Tests whether a token ends the operand that is next to it.
fn ends_operand(tokens: &[Token], at: usize) -> bool {
    let token = &tokens[at];
    let before = at.checked_sub(1).and_then(|before| tokens.get(before));
    match token.kind {
        Kind::Operator => match token.text.as_str() {
            "+" | "-" => !is_sign(tokens, at),
            "," | ":" | "=" | "~" | "==" | "!=" | "<" | ">" | "<=" | ">=" | "" => true,
            _ => false,
        },
        Kind::Name if before.is_some_and(|before| before.is(".")) => false,
        // `x is not none`
        Kind::Name if token.text == "not" => !before.is_some_and(|before| before.is_name("is")),
        Kind::Name => token.is_word(),
        _ => false,
    }
}

/// The first token of the operand on the left; `*` and `/` have the rank of `%`, and bind from the
/// left.
fn left_end(tokens: &[Token], percent: usize) -> usize {
    let mut depth = 0usize;
    for at in (0..percent).rev() {
        if tokens[at].closes() {
            depth += 1;
        } else if tokens[at].opens() {
            match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return at + 1,
            }
        } else if depth == 0 && ends_operand(tokens, at) {
            return at + 1;
        }
    }
    0
}

/// The token behind the operand on the right: a value with its attributes, filters and tests.
fn right_end(tokens: &[Token], percent: usize) -> usize {
    let mut depth = 0usize;
    for at in percent + 1..tokens.len() {
        if tokens[at].opens() {
            depth += 1;
        } else if tokens[at].closes() {
            match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return at,
            }
        } else if depth == 0 {
            let same_rank = ["*", "/", "//", "%"].iter().any(|rank| tokens[at].is(rank));
            if same_rank || ends_operand(tokens, at) {
                return at;
            }
        }
    }
    tokens.len()
}

/// The end of a chain of attributes and items that begins at a token.
fn chain_end(tokens: &[Token], from: usize) -> usize {
    let mut at = from + 1;
    while let Some(token) = tokens.get(at) {
        if token.is(".") {
            at += 2;
        } else if token.is("[") {
            let mut depth = 0usize;
            let close = tokens.iter().skip(at).position(|token| {
                if token.opens() {
                    depth += 1;
                } else if token.closes() {
                    depth -= 1;
                }
                depth == 0
            });
            let Some(close) = close else { return at };
            at += close + 1;
        } else {
            return at;
        }
    }
    at
}

/// Replaces `salt` by `refusal` where an expression asks for functions that exist (`'x' in salt`,
/// `salt['x'] is defined`) and does not call them.
pub(super) fn refuse_questions_for_functions(tokens: &mut [Token], refusal: &str) {
    for at in 0..tokens.len() {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        if !tokens[at].is_name("salt") || before.is_some_and(|before| before.is(".")) {
            continue;
        }
        let end = chain_end(tokens, at);
        let next = |behind: usize| tokens.get(end + behind);
        let listed = end == at + 1 && before.is_some_and(|before| before.is_name("in"));
        let is_test = next(0).is_some_and(|token| token.is_name("is"));
        let name = next(1 + usize::from(next(1).is_some_and(|token| token.is_name("not"))));
        let of_existence = ["defined", "undefined", "callable", "none"];
        let asks = name.is_some_and(|name| of_existence.iter().any(|word| name.is_name(word)));
        if listed || is_test && asks {
            tokens[at].text = refusal.to_owned();
            tokens[at].kind = Kind::Made;
        }
    }
}

/// Words in front of a value.
const BEFORE_VALUES: &[&str] = &["and", "do", "elif", "else", "if", "in", "not", "or"];

/// Rewrites dictionaries `{…}` and lists `[…]`, so that methods and functions can change them.
pub(super) fn own_containers(tokens: &mut [Token]) {
    let mut open = Vec::new();
    for at in 0..tokens.len() {
        let before = at.checked_sub(1).and_then(|before| tokens.get(before));
        // `[` behind a value takes an item of it.
        let begins = before.is_none_or(|before| match before.kind {
            Kind::Operator => !before.closes(),
            Kind::Name => BEFORE_VALUES.contains(&before.text.as_str()),
            Kind::Text | Kind::Number | Kind::Made => false,
        });
        let token = &mut tokens[at];
        if token.opens() {
            let around = match token.text.as_str() {
                "{" => Some("__dictionary({"),
                "[" if begins => Some("__list(["),
                _ => None,
            };
            open.push(around.is_some());
            if let Some(around) = around {
                token.text = around.to_owned();
                token.kind = Kind::Operator;
            }
        } else if token.closes() && open.pop() == Some(true) {
            token.text.push(')');
        }
    }
}

/// Puts `__own` around the value of a `set` that may be a sum or a slice, which the engine would
/// evaluate later than Python does.
pub(super) fn own_sums(tokens: &mut Vec<Token>) {
    let mut open = Vec::new();
    let (mut equals, mut is_lazy) = (None, false);
    for (at, token) in tokens.iter().enumerate() {
        if token.opens() {
            open.push(token.text.as_str());
        } else if token.closes() {
            open.pop();
        } else if equals.is_none() {
            equals = (open.is_empty() && token.is("=")).then_some(at);
        } else {
            let is_slice = token.is(":") && open.last() == Some(&"[");
            is_lazy |= is_slice || ["+", "*", "|"].iter().any(|sign| token.is(sign));
        }
    }
    let Some(at) = equals.filter(|_| is_lazy) else {
        return;
    };
    tokens.insert(at + 1, Token::operator(" ".to_owned(), "__own(("));
    let end = tokens.len() - 1;
    tokens.insert(end, Token::operator(String::new(), "))"));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(text: &str) -> String {
        let mut tokens = tokens(text).unwrap();
        format_texts(&mut tokens);
        joined(&tokens)
    }

    #[test]
    fn the_operands_of_percent_are_found() {
        for (text, wanted) in [
            (" '%s' % x ", " __format_text('%s', x) "),
            ("'%s'%(a, b)", "__format_text('%s', (a, b))"),
            (
                "set x = '%d' % -3 + 1",
                "set x = __format_text('%d', -3) + 1",
            ),
            ("'%s' % x | upper ~ y", "__format_text('%s', x | upper) ~ y"),
            (
                "if '%s' % a.b['c'](1) == 'x'",
                "if __format_text('%s', a.b['c'](1)) == 'x'",
            ),
            (
                "'%s' % x is not none and y",
                "__format_text('%s', x is not none) and y",
            ),
            (
                "['%s' % ('%s' % 1), 2]",
                "[__format_text('%s', (__format_text('%s', 1))), 2]",
            ),
            ("7 % 3", "7 % 3"),
            (
                "a.f % (1,\n 2)",
                "(__format_text(a.f, (1,\n 2)) if (a.f) is string else (a.f) % ((1,  2)))",
            ),
            (
                "x - y % 2",
                "x - (__format_text(y, 2) if (y) is string else (y) % (2))",
            ),
            ("% 5", "% 5"),
            ("'a % b'", "'a % b'"),
        ] {
            assert_eq!(formatted(text), wanted, "{text}");
        }
        assert_eq!(tokens("'open"), None);
    }

    #[test]
    fn dictionaries_and_lists_are_made_changeable() {
        for (text, wanted) in [
            (
                "set x = {'a': {}, 'b': [f({1: 2})]}",
                "set x = __dictionary({'a': __dictionary({}), 'b': __list([f(__dictionary({1: 2}))])})",
            ),
            (
                "set x = a[0] if b in [1] else c()[1][2] or 'ab'[0]",
                "set x = a[0] if b in __list([1]) else c()[1][2] or 'ab'[0]",
            ),
            ("do l.append([])", "do l.append(__list([]))"),
        ] {
            let mut tokens = tokens(text).unwrap();
            own_containers(&mut tokens);
            assert_eq!(joined(&tokens), wanted);
        }
    }

    #[test]
    fn sums_and_slices_are_evaluated_at_once() {
        for (text, wanted) in [
            ("set x = a + b ", "set x = __own(( a + b)) "),
            ("set x.y = a[1:]", "set x.y = __own(( a[1:]))"),
            ("set x = f(a=1)", "set x = f(a=1)"),
            ("set x = {'a': 1}", "set x = {'a': 1}"),
            ("set x | replace('a', b='+')", "set x | replace('a', b='+')"),
        ] {
            let mut tokens = tokens(text).unwrap();
            own_sums(&mut tokens);
            assert_eq!(joined(&tokens), wanted);
        }
    }
}
