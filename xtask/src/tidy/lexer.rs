//! Rust text without its comments and literals, so that a rule about code is not met by a sentence about code.

/// Returns `text` with comments and the insides of string and character literals turned into spaces. Line breaks stay
/// where they are, so line numbers are the same.
pub(super) fn code_only(text: &str) -> String {
    let mut lexer = Lexer {
        rest: text,
        out: String::with_capacity(text.len()),
    };
    while !lexer.rest.is_empty() {
        lexer.step();
    }
    lexer.out
}

struct Lexer<'a> {
    rest: &'a str,
    out: String,
}

impl Lexer<'_> {
    fn step(&mut self) {
        if self.rest.starts_with("//") {
            let end = self.rest.find('\n').unwrap_or(self.rest.len());
            self.blank(end);
        } else if self.rest.starts_with("/*") {
            let end = block_comment_len(self.rest);
            self.blank(end);
        } else if let Some((open, close)) = self.raw_string() {
            self.copy(open);
            let end = self.rest.find(&close).unwrap_or(self.rest.len());
            self.blank(end);
            self.copy(close.len());
        } else if self.rest.starts_with('"') {
            self.copy(1);
            let end = string_len(self.rest);
            self.blank(end);
            self.copy(1);
        } else if let Some(inside) = char_literal_len(self.rest) {
            self.copy(1);
            self.blank(inside);
            self.copy(1);
        } else {
            let len = self.rest.chars().next().map_or(0, char::len_utf8);
            self.copy(len);
        }
    }

    /// The length of `r##"` (or `br"`, `cr"`) when one opens here, and what closes it.
    fn raw_string(&self) -> Option<(usize, String)> {
        let in_word = self
            .out
            .chars()
            .next_back()
            .is_some_and(|c| c.is_alphanumeric() || c == '_');
        if in_word {
            return None;
        }
        let prefix = ["r", "br", "cr"].into_iter().find(|prefix| {
            self.rest
                .strip_prefix(prefix)
                .is_some_and(|after| after.starts_with(['#', '"']))
        })?;
        let after = &self.rest[prefix.len()..];
        let hashes = after.len() - after.trim_start_matches('#').len();
        after[hashes..].starts_with('"').then(|| {
            (
                prefix.len() + hashes + 1,
                format!("\"{}", "#".repeat(hashes)),
            )
        })
    }

    fn copy(&mut self, len: usize) {
        let (head, tail) = self.rest.split_at(len.min(self.rest.len()));
        self.out.push_str(head);
        self.rest = tail;
    }

    fn blank(&mut self, len: usize) {
        let (head, tail) = self.rest.split_at(len);
        self.out
            .extend(head.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        self.rest = tail;
    }
}

/// Block comments nest.
fn block_comment_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let (mut depth, mut at) = (0_u32, 0);
    while at < bytes.len() {
        match &bytes[at..(at + 2).min(bytes.len())] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    bytes.len()
}

/// Bytes up to the quote that ends a string whose opening quote is gone.
fn string_len(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    text.len()
}

/// Bytes between the quotes of a character literal, or `None` for a lifetime and for anything else.
fn char_literal_len(text: &str) -> Option<usize> {
    let inside = text.strip_prefix('\'')?;
    let mut chars = inside.char_indices();
    let (_, first) = chars.next()?;
    if first == '\\' {
        chars.next()?;
        return inside
            .char_indices()
            .skip(2)
            .find(|(_, c)| *c == '\'')
            .map(|(at, _)| at);
    }
    let (at, second) = chars.next()?;
    (second == '\'').then_some(at)
}
