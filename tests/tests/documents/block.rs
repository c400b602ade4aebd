//! Fenced blocks of a Markdown document, with their info strings: ```` ```sql run as=app_tasks ````.

use std::fmt;

/// One fenced block.
#[derive(Debug, Clone)]
pub struct Block {
    /// The document's path from the top of the repository.
    pub document: String,
    /// The line of the opening fence, from 1.
    pub line: usize,
    /// The first word of the info string: `sql`, `console`, `json`, `text`.
    pub language: String,
    words: Vec<String>,
    pub text: String,
}

impl Block {
    /// Does the info string contain this word?
    pub fn has(&self, word: &str) -> bool {
        self.words.iter().any(|known| known == word)
    }

    /// The value of `key=value` in the info string.
    pub fn value(&self, key: &str) -> Option<&str> {
        self.words.iter().find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
    }

    /// Commands that a reader may type: SQL and shell.
    pub fn is_command(&self) -> bool {
        self.language == "sql" || self.language == "console"
    }

    /// The first line, by which a block is named in a list.
    pub fn first_line(&self) -> &str {
        self.text.lines().next().unwrap_or_default()
    }
}

impl fmt::Display for Block {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}", self.document, self.line)
    }
}

/// All fenced blocks of a document, in order. A fence may be indented, as in a list.
pub fn blocks(document: &str, markdown: &str) -> Vec<Block> {
    let mut found = Vec::new();
    let mut lines = markdown.lines().enumerate();
    while let Some((index, line)) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        let Some(info) = line.trim_start().strip_prefix("```") else { continue };
        let mut words = info.split_whitespace().map(str::to_owned);
        let language = words.next().unwrap_or_default();
        let mut text = String::new();
        let mut closed = false;
        for (_, line) in lines.by_ref() {
            if line.trim() == "```" {
                closed = true;
                break;
            }
            let own = line.len() - line.trim_start().len();
            text += &line[indent.min(own)..];
            text.push('\n');
        }
        assert!(closed, "{document}:{}: the block is not closed", index + 1);
        found.push(Block { document: document.to_owned(), line: index + 1, language, words: words.collect(), text });
    }
    found
}

#[test]
fn blocks_are_found_with_their_info_strings() {
    let markdown = "Text.\n\n- item\n\n  ```sql run as=mill\n  SELECT 1\n    AS a;\n  ```\n\n```text output\n1\n```\n";
    let found = blocks("x.md", markdown);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].line, found[0].language.as_str(), found[0].text.as_str()), (5, "sql", "SELECT 1\n  AS a;\n"));
    assert!(found[0].has("run") && found[0].value("as") == Some("mill") && found[0].value("db").is_none());
    assert!(found[1].has("output") && !found[1].is_command());
}
