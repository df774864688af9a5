//! A JSON text as a tree that keeps every byte.

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Tree {
    /// A string, number or literal, as in the text.
    Scalar(String),
    /// An array or an object.
    Container(Container),
}

/// An array or an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Container {
    pub(crate) is_object: bool,
    pub(crate) entries: Vec<Entry>,
    /// The white space of an empty container.
    pub(crate) space: String,
}

/// An element or a member, with the white space around it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) before: String,
    /// The name of a member as in the text, without quotation marks, and the text between it and the value.
    pub(crate) name: Option<(String, String)>,
    pub(crate) value: Tree,
    pub(crate) behind: String,
}

impl Tree {
    /// Parses a JSON text. White space around it is not part of the tree.
    pub(crate) fn read(text: &str) -> Self {
        let mut rest = text.trim();
        let tree = value(&mut rest);
        assert_eq!(rest, "", "of {text}");
        tree
    }

    pub(crate) fn write(&self) -> String {
        let container = match self {
            Self::Scalar(text) => return text.clone(),
            Self::Container(container) => container,
        };
        let entries: Vec<_> = container.entries.iter().map(Entry::write).collect();
        let inside = format!("{}{}", entries.join(","), container.space);
        match container.is_object {
            true => format!("{{{inside}}}"),
            false => format!("[{inside}]"),
        }
    }
}

impl Entry {
    fn write(&self) -> String {
        let name = self.name.as_ref();
        let name = name.map_or(String::new(), |(name, between)| {
            format!("\"{name}\"{between}")
        });
        format!("{}{name}{}{}", self.before, self.value.write(), self.behind)
    }

    /// Returns the name without escapes.
    pub(crate) fn meaning(&self) -> Option<String> {
        let (name, _) = self.name.as_ref()?;
        Some(serde_json::from_str(&format!("\"{name}\"")).expect("a string"))
    }
}

fn value(rest: &mut &str) -> Tree {
    let is_object = rest.starts_with('{');
    if !is_object && !rest.starts_with('[') {
        return Tree::Scalar(scalar(rest));
    }
    let closing = if is_object { "}" } else { "]" };
    *rest = &rest[1..];
    let mut container = Container {
        is_object,
        entries: Vec::new(),
        space: String::new(),
    };
    loop {
        let before = space(rest);
        if let Some(behind) = rest.strip_prefix(closing) {
            assert!(container.entries.is_empty());
            container.space = before;
            *rest = behind;
            return Tree::Container(container);
        }
        let name = is_object.then(|| {
            let quoted = scalar(rest);
            let mut between = space(rest);
            *rest = rest.strip_prefix(':').expect("a colon");
            between += ":";
            between += &space(rest);
            (quoted[1..quoted.len() - 1].to_owned(), between)
        });
        let value = value(rest);
        let behind = space(rest);
        container.entries.push(Entry {
            before,
            name,
            value,
            behind,
        });
        if let Some(behind) = rest.strip_prefix(closing) {
            *rest = behind;
            return Tree::Container(container);
        }
        *rest = rest.strip_prefix(',').expect("a comma");
    }
}

/// Takes white space from the front.
fn space(rest: &mut &str) -> String {
    let behind = rest.trim_start();
    let space = rest[..rest.len() - behind.len()].to_owned();
    *rest = behind;
    space
}

/// Takes a string, number or literal from the front.
fn scalar(rest: &mut &str) -> String {
    let len = match rest.strip_prefix('"') {
        Some(inside) => {
            let mut escaped = false;
            let end = inside.find(|character| {
                let ends = character == '"' && !escaped;
                escaped = character == '\\' && !escaped;
                ends
            });
            end.expect("a quotation mark") + 2
        }
        None => rest
            .find([',', ']', '}', ' ', '\n', '\r', '\t'])
            .unwrap_or(rest.len()),
    };
    let (scalar, behind) = rest.split_at(len);
    *rest = behind;
    assert!(kedge_json::is_json(scalar.as_bytes()), "{scalar}");
    scalar.to_owned()
}
