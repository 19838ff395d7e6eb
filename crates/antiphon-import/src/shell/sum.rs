//! `$((...))`: whole numbers, names, `+ - * / %` and brackets. Anything else has no value.

/// The value of a sum, where every name has one.
pub(crate) fn value(text: &str, of: &dyn Fn(&str) -> Option<i64>) -> Option<i64> {
    let mut sum = Sum {
        rest: text,
        of,
        depth: 0,
    };
    let value = sum.terms()?;
    sum.skip();
    sum.rest.is_empty().then_some(value)
}

struct Sum<'a> {
    rest: &'a str,
    of: &'a dyn Fn(&str) -> Option<i64>,
    depth: u32,
}

impl Sum<'_> {
    fn skip(&mut self) {
        self.rest = self.rest.trim_start();
    }

    fn operator(&mut self, among: &[char]) -> Option<char> {
        self.skip();
        let c = self.rest.chars().next().filter(|c| among.contains(c))?;
        self.rest = self.rest.get(1..)?;
        Some(c)
    }

    fn terms(&mut self) -> Option<i64> {
        let mut value = self.factors()?;
        while let Some(operator) = self.operator(&['+', '-']) {
            let next = self.factors()?;
            value = match operator {
                '+' => value.checked_add(next)?,
                _ => value.checked_sub(next)?,
            };
        }
        Some(value)
    }

    fn factors(&mut self) -> Option<i64> {
        let mut value = self.factor()?;
        while let Some(operator) = self.operator(&['*', '/', '%']) {
            let next = self.factor()?;
            value = match operator {
                '*' => value.checked_mul(next)?,
                '/' => value.checked_div(next)?,
                _ => value.checked_rem(next)?,
            };
        }
        Some(value)
    }

    fn factor(&mut self) -> Option<i64> {
        self.depth += 1;
        if self.depth > 64 {
            return None;
        }
        self.skip();
        let value = if self.operator(&['(']).is_some() {
            let value = self.terms()?;
            self.operator(&[')'])?;
            value
        } else {
            let name = self.rest.trim_start_matches(['$', '{']);
            let end = name
                .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                .unwrap_or(name.len());
            let (name, rest) = name.split_at(end);
            self.rest = rest.strip_prefix('}').unwrap_or(rest);
            match name.parse() {
                Ok(number) => number,
                Err(_) if name.is_empty() => return None,
                Err(_) => (self.of)(name)?,
            }
        };
        self.depth -= 1;
        Some(value)
    }
}
