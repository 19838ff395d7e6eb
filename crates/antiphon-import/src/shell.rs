//! A shell script as the commands that it would run: variables, arrays and sums put in, line by line. Runs nothing; what only running
//! would tell is marked as such.

use std::collections::BTreeMap;

pub(crate) mod sum;

/// A word of a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) text: String,
    pub(crate) line: u64,
    /// Whether it is known without running the script.
    pub(crate) literal: bool,
}

/// A script, taken apart.
#[derive(Debug, Default)]
pub(crate) struct Script {
    pub(crate) commands: Vec<Vec<Word>>,
    /// Options of `#SBATCH` lines.
    pub(crate) batch: Vec<Word>,
    variables: BTreeMap<String, Vec<Word>>,
}

impl Script {
    /// The value of a variable that is one word.
    pub(crate) fn variable(&self, name: &str) -> Option<&str> {
        match self.variables.get(name)?.as_slice() {
            [word] if word.literal => Some(&word.text),
            _ => None,
        }
    }
}

/// All that variables may grow to; a script that doubles a variable line by line ends there.
const EXPANDED_MAX: usize = 1 << 20;

pub(crate) fn parse(text: &str) -> Script {
    let mut parser = Parser {
        rest: text,
        line: 1,
        left: EXPANDED_MAX,
        script: Script::default(),
        words: Vec::new(),
        word: None,
    };
    parser.run();
    parser.script
}

struct Parser<'a> {
    rest: &'a str,
    line: u64,
    left: usize,
    script: Script,
    words: Vec<Word>,
    word: Option<Word>,
}

impl Parser<'_> {
    fn run(&mut self) {
        while let Some(c) = self.take() {
            match c {
                ' ' | '\t' | '\r' => self.end_word(),
                '\n' => {
                    self.end_command();
                    self.line += 1;
                }
                ';' | '|' | '&' => self.end_command(),
                '#' if self.word.is_none() => self.comment(),
                '(' => self.open(),
                ')' => self.end_command(),
                '\\' => match self.take() {
                    Some('\n') => {
                        self.line += 1;
                        self.end_word();
                    }
                    Some(c) => self.push(c),
                    None => (),
                },
                '\'' => self.single(),
                '"' => self.double(),
                '$' => self.expand(false),
                '`' => {
                    self.until('`');
                    self.unknown("`...`");
                }
                '<' if self.rest.starts_with('<') => self.here_document(),
                '>' | '<' => self.redirect(),
                c => self.push(c),
            }
        }
        self.end_command();
    }

    fn take(&mut self) -> Option<char> {
        let c = self.rest.chars().next()?;
        self.rest = self.rest.get(c.len_utf8()..).unwrap_or_default();
        Some(c)
    }

    fn until(&mut self, end: char) -> String {
        let mut text = String::new();
        while let Some(c) = self.take() {
            if c == end {
                break;
            }
            if c == '\n' {
                self.line += 1;
            }
            text.push(c);
        }
        text
    }

    fn current(&mut self) -> &mut Word {
        let line = self.line;
        self.word.get_or_insert_with(|| Word {
            text: String::new(),
            line,
            literal: true,
        })
    }

    fn push(&mut self, c: char) {
        self.current().text.push(c);
    }

    fn unknown(&mut self, text: &str) {
        let word = self.current();
        word.text.push_str(text);
        word.literal = false;
    }

    fn end_word(&mut self) {
        self.words.extend(self.word.take());
    }

    fn end_command(&mut self) {
        self.end_word();
        let mut words = std::mem::take(&mut self.words);
        let mut begin = 0;
        for word in &words {
            if is_control(&word.text) {
                begin += 1;
            } else if let Some((name, value)) = assignment(&word.text) {
                let value = Word {
                    text: value.to_owned(),
                    ..word.clone()
                };
                let appended = name.strip_suffix('+');
                let variable = self
                    .script
                    .variables
                    .entry(appended.unwrap_or(name).to_owned());
                match (appended, variable) {
                    (Some(_), variable) => variable.or_default().push(value),
                    (None, variable) => *variable.or_default() = vec![value],
                }
                begin += 1;
            } else {
                break;
            }
        }
        words.drain(..begin);
        if !words.is_empty() {
            self.script.commands.push(words);
        }
    }

    fn comment(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let (comment, rest) = self.rest.split_at(end);
        self.rest = rest;
        if let Some(options) = comment.strip_prefix("SBATCH") {
            let words = options.split('#').next().unwrap_or_default();
            let line = self.line;
            self.script
                .batch
                .extend(words.split_whitespace().map(|text| Word {
                    text: text.to_owned(),
                    line,
                    literal: true,
                }));
        }
    }

    /// `NAME=(` begins an array; any other bracket a command.
    fn open(&mut self) {
        let name = self
            .word
            .as_ref()
            .and_then(|word| word.text.strip_suffix('='))
            .map(str::to_owned);
        let Some(name) = name.filter(|name| is_name(name.trim_end_matches('+'))) else {
            self.end_command();
            return;
        };
        self.word = None;
        let before = std::mem::take(&mut self.words);
        while let Some(c) = self.take() {
            match c {
                ')' => break,
                ' ' | '\t' | '\r' => self.end_word(),
                '\n' => {
                    self.end_word();
                    self.line += 1;
                }
                '#' if self.word.is_none() => self.comment(),
                '\\' => match self.take() {
                    Some('\n') => {
                        self.line += 1;
                        self.end_word();
                    }
                    Some(c) => self.push(c),
                    None => (),
                },
                '\'' => self.single(),
                '"' => self.double(),
                '$' => self.expand(false),
                c => self.push(c),
            }
        }
        self.end_word();
        let items = std::mem::replace(&mut self.words, before);
        let variable = self
            .script
            .variables
            .entry(name.trim_end_matches('+').to_owned());
        if name.ends_with('+') {
            variable.or_default().extend(items);
        } else {
            *variable.or_default() = items;
        }
    }

    fn single(&mut self) {
        self.current();
        let text = self.until('\'');
        self.current().text.push_str(&text);
    }

    fn double(&mut self) {
        self.current();
        while let Some(c) = self.take() {
            match c {
                '"' => return,
                '\\' => match self.take() {
                    // Kept, so that words of a long variable have their lines.
                    Some('\n') => {
                        self.line += 1;
                        self.push('\n');
                    }
                    Some(c @ ('"' | '$' | '\\' | '`')) => self.push(c),
                    Some(c) => {
                        self.push('\\');
                        self.push(c);
                    }
                    None => (),
                },
                '$' => self.expand(true),
                '`' => {
                    self.until('`');
                    self.unknown("`...`");
                }
                '\n' => {
                    self.line += 1;
                    self.push('\n');
                }
                c => self.push(c),
            }
        }
    }

    /// What follows a `$`.
    fn expand(&mut self, quoted: bool) {
        if let Some(rest) = self.rest.strip_prefix("((") {
            let end = rest.find("))").unwrap_or(rest.len());
            let (sum, rest) = rest.split_at(end);
            self.rest = rest.strip_prefix("))").unwrap_or(rest);
            let value = sum::value(sum, &|name| self.script.variable(name)?.parse().ok());
            match value {
                Some(value) => self.current().text.push_str(&value.to_string()),
                None => self.unknown(&format!("$(({sum}))")),
            }
        } else if self.rest.starts_with('(') {
            self.substitution();
        } else if let Some(rest) = self.rest.strip_prefix('{') {
            let end = rest.find('}').unwrap_or(rest.len());
            let (inner, rest) = rest.split_at(end);
            self.rest = rest.strip_prefix('}').unwrap_or(rest);
            self.parameter(inner, quoted);
        } else {
            let end = self
                .rest
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(self.rest.len());
            let (name, rest) = self.rest.split_at(end);
            self.rest = rest;
            if name.is_empty() {
                // `$@`, `$#` and the like: what the script is called with.
                let c = self.take().map_or_else(String::new, String::from);
                self.unknown(&format!("${c}"));
            } else {
                self.parameter(name, quoted);
            }
        }
    }

    /// `$(...)`, whose brackets may hold others.
    fn substitution(&mut self) {
        let mut depth = 0_u32;
        while let Some(c) = self.take() {
            match c {
                '(' => depth += 1,
                ')' => depth = depth.saturating_sub(1),
                '\n' => self.line += 1,
                _ => (),
            }
            if depth == 0 {
                break;
            }
        }
        self.unknown("$(...)");
    }

    /// The value of a variable, or what stands for it where it is not set.
    fn parameter(&mut self, inner: &str, quoted: bool) {
        let all = inner
            .strip_suffix("[@]")
            .or_else(|| inner.strip_suffix("[*]"));
        let (name, default) = match inner.split_once(":-").or_else(|| inner.split_once('-')) {
            Some((name, default)) if is_name(name) => (name, Some(default)),
            _ => (all.unwrap_or(inner), None),
        };
        let value = self.script.variables.get(name).cloned();
        let size: usize = value.iter().flatten().map(|word| word.text.len() + 1).sum();
        let value = match (value, self.left.checked_sub(size)) {
            (Some(value), Some(left)) => {
                self.left = left;
                value
            }
            _ => match default {
                Some(text) if !text.contains('$') => vec![Word {
                    text: text.trim_matches(['"', '\'']).to_owned(),
                    line: self.line,
                    literal: true,
                }],
                _ => {
                    self.unknown(&format!("${{{inner}}}"));
                    return;
                }
            },
        };
        for (index, word) in value.into_iter().enumerate() {
            if index > 0 {
                self.end_word();
            }
            if quoted || all.is_some() {
                // A word that is an item of an array stands where the array is written.
                let fresh = self
                    .word
                    .as_ref()
                    .is_none_or(|current| current.text.is_empty());
                let current = self.current();
                current.text.push_str(&word.text);
                current.literal &= word.literal;
                if fresh && all.is_some() {
                    current.line = word.line;
                }
            } else {
                self.split(&word);
            }
        }
    }

    /// A variable outside quotes falls into words.
    fn split(&mut self, word: &Word) {
        let mut line = word.line;
        let mut begins = true;
        for part in word.text.split_inclusive([' ', '\t', '\n']) {
            let text = part.trim();
            if !text.is_empty() {
                let fresh = self.word.is_none();
                let current = self.current();
                current.text.push_str(text);
                current.literal &= word.literal;
                if fresh && !(begins && text.len() == word.text.len()) {
                    current.line = line;
                }
            }
            if part.len() > text.len() {
                self.end_word();
            }
            line += u64::from(part.ends_with('\n'));
            begins = false;
        }
    }

    /// A text that is fed to a command: not part of it.
    fn here_document(&mut self) {
        self.take();
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        let (first, rest) = self.rest.split_at(end);
        let mark = first.trim_start_matches(['-', '<', ' ']);
        let mark = mark.split([' ', '>', ';', '|']).next().unwrap_or_default();
        let mark = mark.trim_matches(['\'', '"']);
        if mark.is_empty() || first.starts_with('<') {
            return;
        }
        self.rest = rest;
        let lines = self.rest.split_inclusive('\n').skip(1);
        let mut length = usize::from(self.rest.starts_with('\n'));
        let mut count = length as u64;
        for line in lines {
            length += line.len();
            count += u64::from(line.ends_with('\n'));
            if line.trim() == mark {
                break;
            }
        }
        self.rest = self.rest.get(length..).unwrap_or_default();
        self.line += count;
        self.end_command();
    }

    /// `> file`, `2>&1`: the file is no word of the command.
    fn redirect(&mut self) {
        if self
            .word
            .as_ref()
            .is_some_and(|word| word.text.chars().all(|c| c.is_ascii_digit()))
        {
            self.word = None;
        }
        self.end_word();
        while self.rest.starts_with(['>', '&', ' ']) {
            self.take();
        }
        while self
            .rest
            .starts_with(|c: char| !c.is_whitespace() && !";|&)".contains(c))
        {
            self.take();
        }
    }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `NAME=value` in front of a command.
fn assignment(text: &str) -> Option<(&str, &str)> {
    let (name, value) = text.split_once('=')?;
    is_name(name.trim_end_matches('+')).then_some((name, value))
}

fn is_control(text: &str) -> bool {
    matches!(
        text,
        "if" | "then"
            | "else"
            | "elif"
            | "fi"
            | "for"
            | "do"
            | "done"
            | "while"
            | "export"
            | "declare"
            | "local"
            | "readonly"
            | "exec"
            | "time"
            | "nohup"
            | "set"
            | "{"
            | "}"
            | "!"
            | "env"
            | "-x"
            | "sudo"
            | "$"
            | ">"
            | "\\"
    )
}

#[cfg(test)]
mod tests;
