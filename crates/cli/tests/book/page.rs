//! Documents as Markdown's parser reads them.

use std::fs;
use std::path::{Path, PathBuf};

use pulldown_cmark::{CodeBlockKind, Event, Options, Parser, Tag, TagEnd};

/// A document of the repository.
pub struct Page {
    /// From the repository's root, with `/`.
    pub name: String,
    pub text: String,
}

/// A fenced block of code.
pub struct Block {
    /// The line of its first line of code, from 1.
    pub line: usize,
    pub language: String,
    pub marks: Vec<String>,
    pub text: String,
}

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Documents at the root that are not chapters of the book.
pub const OUTSIDE: [&str; 6] =
    ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "scripts/README.md"];

/// Where the book's chapters are.
pub const BOOK: &str = "docs/src/";

impl Page {
    /// Reads one.
    pub fn read(name: &str) -> Self {
        let text = fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        Self { name: name.to_owned(), text }
    }

    /// The book's chapters, by name.
    pub fn book() -> Vec<Self> {
        let mut names = Vec::new();
        list(&root().join(BOOK), BOOK, &mut names);
        names.sort();
        names.iter().map(|name| Self::read(name)).collect()
    }

    /// Every document.
    pub fn all() -> Vec<Self> {
        let mut pages: Vec<Self> = OUTSIDE.map(Self::read).into();
        pages.extend(Self::book());
        pages
    }

    /// The events of its parser, with their places.
    pub fn events(&self) -> impl Iterator<Item = (Event<'_>, usize)> {
        let parser = Parser::new_ext(&self.text, Options::ENABLE_TABLES).into_offset_iter();
        parser.map(|(event, range)| (event, self.text[..range.start].lines().count().max(1)))
    }

    /// Its fenced blocks.
    pub fn blocks(&self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        let mut inside = false;
        for (event, line) in self.events() {
            match event {
                Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(info))) => {
                    let mut words = info.split(',').map(|word| word.trim().to_owned());
                    let language = words.next().unwrap_or_default();
                    blocks.push(Block { line: line + 1, language, marks: words.collect(), text: String::new() });
                    inside = true;
                }
                Event::Text(text) if inside => blocks.last_mut().unwrap().text.push_str(&text),
                Event::End(TagEnd::CodeBlock) => inside = false,
                _ => {}
            }
        }
        blocks
    }
}

fn list(folder: &Path, name: &str, names: &mut Vec<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("{name}{}", path.file_name().unwrap().to_str().unwrap());
        if path.is_dir() {
            list(&path, &format!("{name}/"), names);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            names.push(name);
        }
    }
}
