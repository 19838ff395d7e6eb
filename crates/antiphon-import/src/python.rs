//! Calls in a Python script, with their literal arguments. Runs nothing and knows no module: a value that is no literal, and no variable
//! that holds one, is marked as such.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::shell::sum;

/// A call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The name as it is written, dots included.
    pub(crate) name: String,
    pub(crate) positional: Vec<Argument>,
    pub(crate) named: Vec<(String, Argument)>,
}

/// What a call is given.
#[derive(Debug, Clone)]
pub(crate) struct Argument {
    pub(crate) value: Value,
    pub(crate) line: u64,
    pub(crate) literal: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum Kind {
    Name,
    Number,
    Text,
    /// A text with values put in: only running the script would tell.
    Formatted,
    Mark,
    Newline,
}

#[derive(Debug, Clone)]
struct Token {
    kind: Kind,
    text: String,
    line: u64,
}

/// Values that nest deeper are no literals of a config.
const DEPTH_MAX: u32 = 32;

/// All calls of a script, in their order.
pub(crate) fn calls(text: &str) -> Vec<Call> {
    let tokens = tokens(text);
    let mut parser = Parser {
        tokens: &tokens,
        at: 0,
        variables: BTreeMap::new(),
    };
    parser.assignments();
    let mut calls = Vec::new();
    for at in 0..tokens.len() {
        let is_call = tokens[at].kind == Kind::Name
            && tokens
                .get(at + 1)
                .is_some_and(|next| next.text == "(" && next.kind == Kind::Mark)
            && !matches!(
                at.checked_sub(1).map(|at| tokens[at].text.as_str()),
                Some("def" | "class")
            );
        if is_call {
            parser.at = at + 2;
            calls.push(parser.call(&tokens[at].text));
        }
    }
    calls
}

struct Parser<'a> {
    tokens: &'a [Token],
    at: usize,
    variables: BTreeMap<String, Value>,
}

impl Parser<'_> {
    /// `NAME = literal` on a line of its own.
    fn assignments(&mut self) {
        for at in 0..self.tokens.len() {
            let first = at == 0 || self.tokens[at - 1].kind == Kind::Newline;
            let name = &self.tokens[at];
            let equals = self.tokens.get(at + 1).is_some_and(|next| next.text == "=");
            if !(first && name.kind == Kind::Name && equals) {
                continue;
            }
            self.at = at + 2;
            let argument = self.argument();
            let ends = self
                .tokens
                .get(self.at)
                .is_none_or(|next| next.kind == Kind::Newline);
            if argument.literal && ends {
                self.variables.insert(name.text.clone(), argument.value);
            } else {
                self.variables.remove(&name.text);
            }
        }
    }

    fn call(&mut self, name: &str) -> Call {
        let mut call = Call {
            name: name.to_owned(),
            positional: Vec::new(),
            named: Vec::new(),
        };
        loop {
            self.skip_newlines();
            let Some(token) = self.tokens.get(self.at) else {
                break;
            };
            if token.text == ")" && token.kind == Kind::Mark {
                break;
            }
            let named = token.kind == Kind::Name
                && self
                    .tokens
                    .get(self.at + 1)
                    .is_some_and(|next| next.text == "=");
            if named {
                let name = token.text.clone();
                self.at += 2;
                let argument = self.argument();
                call.named.push((name, argument));
            } else {
                let argument = self.argument();
                call.positional.push(argument);
            }
            self.skip_newlines();
            match self.tokens.get(self.at) {
                Some(next) if next.text == "," && next.kind == Kind::Mark => self.at += 1,
                _ => break,
            }
        }
        call
    }

    fn skip_newlines(&mut self) {
        while self
            .tokens
            .get(self.at)
            .is_some_and(|token| token.kind == Kind::Newline)
        {
            self.at += 1;
        }
    }

    /// An argument up to its comma or bracket, literal or not.
    fn argument(&mut self) -> Argument {
        self.skip_newlines();
        let begin = self.at;
        let line = self.tokens.get(begin).map_or(1, |token| token.line);
        if let Some(value) = self.literal(0) {
            let at = self.at;
            if self.tokens.get(at).is_none_or(ends) {
                return Argument {
                    value,
                    line,
                    literal: true,
                };
            }
        }
        self.at = begin;
        let text = self.skip();
        // Lengths are often written as `4 * 1024`.
        let number = |name: &str| self.variables.get(name)?.as_i64();
        match sum::value(&text, &number) {
            Some(value) => Argument {
                value: Value::from(value),
                line,
                literal: true,
            },
            None => Argument {
                value: Value::String(text),
                line,
                literal: false,
            },
        }
    }

    /// Skips to the comma or bracket that ends an argument, and answers with what was skipped.
    fn skip(&mut self) -> String {
        let mut depth = 0_u32;
        let mut text = String::new();
        while let Some(token) = self.tokens.get(self.at) {
            if depth == 0 && ends(token) {
                break;
            }
            if token.kind == Kind::Mark {
                match token.text.as_str() {
                    "(" | "[" | "{" => depth += 1,
                    ")" | "]" | "}" => depth = depth.saturating_sub(1),
                    _ => (),
                }
            }
            if text.len() < 200 {
                text.push_str(&token.text);
                text.push(' ');
            }
            self.at += 1;
        }
        text.trim_end().to_owned()
    }

    fn literal(&mut self, depth: u32) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        let token = self.tokens.get(self.at)?;
        self.at += 1;
        match token.kind {
            Kind::Text => {
                let mut text = token.text.clone();
                while let Some(next) = self.tokens.get(self.at).filter(|t| t.kind == Kind::Text) {
                    text.push_str(&next.text);
                    self.at += 1;
                }
                Some(Value::String(text))
            }
            Kind::Number => number(&token.text),
            Kind::Name => match token.text.as_str() {
                "True" => Some(Value::Bool(true)),
                "False" => Some(Value::Bool(false)),
                "None" => Some(Value::Null),
                name if name.starts_with("torch.") => Some(Value::from(name)),
                name => self.variables.get(name).cloned(),
            },
            Kind::Mark => match token.text.as_str() {
                "-" => {
                    let next = self
                        .tokens
                        .get(self.at)
                        .filter(|t| t.kind == Kind::Number)?;
                    self.at += 1;
                    number(&format!("-{}", next.text))
                }
                "[" => self.items("]", depth).map(Value::Array),
                "(" => self.items(")", depth).map(Value::Array),
                "{" => self.table(depth),
                _ => None,
            },
            Kind::Formatted | Kind::Newline => None,
        }
    }

    fn items(&mut self, end: &str, depth: u32) -> Option<Vec<Value>> {
        let mut items = Vec::new();
        loop {
            self.skip_newlines();
            if self.mark(end) {
                return Some(items);
            }
            items.push(self.literal(depth + 1)?);
            self.skip_newlines();
            if !self.mark(",") {
                return self.mark(end).then_some(items);
            }
        }
    }

    fn table(&mut self, depth: u32) -> Option<Value> {
        let mut table = serde_json::Map::new();
        loop {
            self.skip_newlines();
            if self.mark("}") {
                return Some(Value::Object(table));
            }
            let key = self.literal(depth + 1)?;
            if !self.mark(":") {
                return None;
            }
            self.skip_newlines();
            let value = self.literal(depth + 1)?;
            table.insert(crate::options::plain(&key), value);
            self.skip_newlines();
            if !self.mark(",") {
                return self.mark("}").then_some(Value::Object(table));
            }
        }
    }

    fn mark(&mut self, text: &str) -> bool {
        let found = self
            .tokens
            .get(self.at)
            .is_some_and(|token| token.kind == Kind::Mark && token.text == text);
        self.at += usize::from(found);
        found
    }
}

fn ends(token: &Token) -> bool {
    token.kind == Kind::Newline
        || token.kind == Kind::Mark && matches!(token.text.as_str(), "," | ")" | "]" | "}" | ";")
}

fn number(text: &str) -> Option<Value> {
    let text = text.replace('_', "");
    let whole = text.parse::<i64>().ok().map(Value::from);
    whole.or_else(|| serde_json::Number::from_f64(text.parse().ok()?).map(Value::Number))
}

fn tokens(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut line = 1;
    let mut depth = 0_u32;
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (kind, length) = match c {
            '\n' => {
                line += 1;
                rest = rest.get(1..).unwrap_or_default();
                if depth == 0 {
                    tokens.push(Token {
                        kind: Kind::Newline,
                        text: String::new(),
                        line,
                    });
                }
                continue;
            }
            '#' => {
                rest = rest
                    .get(rest.find('\n').unwrap_or(rest.len())..)
                    .unwrap_or_default();
                continue;
            }
            c if c.is_whitespace() || c == '\\' => {
                rest = rest.get(c.len_utf8()..).unwrap_or_default();
                continue;
            }
            '"' | '\'' => {
                let (text, length) = quoted(rest);
                tokens.push(Token {
                    kind: Kind::Text,
                    text: text.clone(),
                    line,
                });
                line += text.matches('\n').count() as u64;
                rest = rest.get(length..).unwrap_or_default();
                continue;
            }
            c if c.is_alphabetic() || c == '_' => {
                let word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
                let length = rest.find(|c| !word(c)).unwrap_or(rest.len());
                let (name, after) = rest.split_at(length);
                let prefix = matches!(
                    name,
                    "r" | "R" | "b" | "B" | "u" | "U" | "f" | "F" | "rf" | "fr" | "br" | "rb"
                );
                if prefix && after.starts_with(['"', '\'']) {
                    let (text, length) = quoted(after);
                    let kind = if name.contains(['f', 'F']) {
                        Kind::Formatted
                    } else {
                        Kind::Text
                    };
                    tokens.push(Token {
                        kind,
                        text: text.clone(),
                        line,
                    });
                    line += text.matches('\n').count() as u64;
                    rest = after.get(length..).unwrap_or_default();
                    continue;
                }
                (Kind::Name, length)
            }
            c if c.is_ascii_digit() => {
                let mut before = ' ';
                let part = |c: char| {
                    let part = c.is_ascii_alphanumeric()
                        || c == '.'
                        || c == '_'
                        || (c == '-' || c == '+') && matches!(before, 'e' | 'E');
                    before = c;
                    !part
                };
                (Kind::Number, rest.find(part).unwrap_or(rest.len()))
            }
            c => (Kind::Mark, c.len_utf8()),
        };
        let (text, after) = rest.split_at(length);
        // Comparisons are no assignments.
        let double = kind == Kind::Mark && after.starts_with('=') && "=!<>+-*/".contains(text);
        let (text, after) = if double {
            rest.split_at(length + 1)
        } else {
            (text, after)
        };
        match text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth = depth.saturating_sub(1),
            _ => (),
        }
        tokens.push(Token {
            kind,
            text: text.to_owned(),
            line,
        });
        rest = after;
    }
    tokens
}

/// A text in quotes, single or triple, and how long it is with them.
fn quoted(rest: &str) -> (String, usize) {
    let quote = rest.get(..1).unwrap_or_default();
    let triple = quote.repeat(3);
    let mark = if rest.starts_with(&triple) {
        triple.as_str()
    } else {
        quote
    };
    let mut text = String::new();
    let mut at = mark.len();
    while let Some(after) = rest.get(at..) {
        if after.starts_with(mark) {
            return (text, at + mark.len());
        }
        let mut chars = after.chars();
        match chars.next() {
            None => break,
            Some('\n') if mark.len() == 1 => break,
            Some('\\') => {
                let escaped = chars.next();
                text.extend(escaped.map(|c| if c == 'n' { ' ' } else { c }));
                at += 1 + escaped.map_or(0, char::len_utf8);
            }
            Some(c) => {
                text.push(c);
                at += c.len_utf8();
            }
        }
    }
    (text, at)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(text: &str) -> Vec<String> {
        let calls = calls(text);
        let all = calls.iter().flat_map(|call| {
            call.named.iter().map(move |(name, argument)| {
                let mark = if argument.literal { "" } else { "?" };
                format!(
                    "{} {name}={mark}{}@{}",
                    call.name, argument.value, argument.line
                )
            })
        });
        all.collect()
    }

    #[test]
    fn literals_and_variables_that_hold_them_are_read() {
        let text = "length = 2048 # tokens\nmodel, tok = FastLanguageModel.from_pretrained(\n    model_name = \"a/b\",\n    max_seq_length = length,\n    dtype = torch.bfloat16,\n    n = 4 * 1024, r=-1, lr=2e-4,\n    targets = [\"q\", \"v\",],\n)\n";
        assert_eq!(
            named(text),
            [
                "FastLanguageModel.from_pretrained model_name=\"a/b\"@3",
                "FastLanguageModel.from_pretrained max_seq_length=2048@4",
                "FastLanguageModel.from_pretrained dtype=\"torch.bfloat16\"@5",
                "FastLanguageModel.from_pretrained n=4096@6",
                "FastLanguageModel.from_pretrained r=-1@6",
                "FastLanguageModel.from_pretrained lr=0.0002@6",
                "FastLanguageModel.from_pretrained targets=[\"q\",\"v\"]@7",
            ]
        );
    }

    #[test]
    fn what_is_no_literal_is_marked_and_calls_inside_calls_are_found() {
        let text = "Trainer(\n  args = Config(bf16 = not fp16(), name = f\"{x}\"),\n  n = len(data) if data else 3,\n)";
        assert_eq!(
            named(text),
            [
                "Trainer args=?\"Config ( bf16 = not fp16 ( ) , name = {x} )\"@2",
                "Trainer n=?\"len ( data ) if data else 3\"@3",
                "Config bf16=?\"not fp16 ( )\"@2",
                "Config name=?\"{x}\"@2",
            ]
        );
    }

    #[test]
    fn a_variable_that_is_set_anew_to_something_unknown_is_unknown() {
        assert_eq!(named("a = 1\na = f()\ng(x = a)"), ["g x=?\"a\"@3"]);
        assert_eq!(named("if a == 1: pass\ng(x = a)"), ["g x=?\"a\"@2"]);
    }
}
