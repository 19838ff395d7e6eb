//! A page's rows, each with the version at which it last changed, so that a reader gets what changed since what it has.

use std::collections::BTreeMap;

/// What a page shows: JSON by key. Keys lead with the kind of row: `node/n17`.
pub(super) type Rows = BTreeMap<String, String>;

/// Rows that are gone and still remembered as such. A reader that is further back gets everything anew.
const GONE_MAX: usize = 20_000;

#[derive(Debug, Default)]
pub(super) struct Sheet {
    /// A row that is gone has no value.
    rows: BTreeMap<String, (Option<String>, u64)>,
    version: u64,
    /// Readers with an older version may have rows whose end is forgotten.
    oldest: u64,
    gone: usize,
}

impl Sheet {
    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Takes in what the page shows now; says whether anything changed.
    pub(super) fn update(&mut self, rows: Rows) -> bool {
        let next = self.version + 1;
        let mut changed = false;
        for (key, (value, version)) in &mut self.rows {
            if value.is_some() && !rows.contains_key(key) {
                (*value, *version) = (None, next);
                self.gone += 1;
                changed = true;
            }
        }
        for (key, value) in rows {
            let known = self.rows.get(&key);
            if known.is_some_and(|(known, _)| known.as_ref() == Some(&value)) {
                continue;
            }
            self.gone -= usize::from(known.is_some_and(|(known, _)| known.is_none()));
            self.rows.insert(key, (Some(value), next));
            changed = true;
        }
        if changed {
            self.version = next;
        }
        if self.gone > GONE_MAX {
            self.rows.retain(|_, (value, _)| value.is_some());
            self.gone = 0;
            self.oldest = self.version;
        }
        changed
    }

    /// What changed since a version, as JSON: `{"all": false, "rows": {key: value}, "gone": [key]}`. Everything, with `all`,
    /// for a reader without a version or with one that is too old.
    pub(super) fn since(&self, version: Option<u64>) -> String {
        let version = version.filter(|version| (self.oldest..=self.version).contains(version));
        let (mut rows, mut gone) = (String::new(), String::new());
        for (key, (value, changed)) in &self.rows {
            let text = || serde_json::to_string(key).expect("a key is text");
            match (value, version) {
                (_, Some(version)) if *changed <= version => (),
                (Some(value), _) => {
                    rows += if rows.is_empty() { "" } else { "," };
                    rows += &text();
                    rows.push(':');
                    rows += value;
                }
                (None, Some(_)) => {
                    gone += if gone.is_empty() { "" } else { "," };
                    gone += &text();
                }
                (None, None) => (),
            }
        }
        format!(
            "{{\"all\":{},\"rows\":{{{rows}}},\"gone\":[{gone}]}}",
            version.is_none()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[(&str, &str)]) -> Rows {
        let own = |(key, value): &(&str, &str)| ((*key).to_owned(), (*value).to_owned());
        rows.iter().map(own).collect()
    }

    #[test]
    fn a_reader_gets_what_changed_since_what_it_has() {
        let mut sheet = Sheet::default();
        assert!(sheet.update(rows(&[("a", "1"), ("b", "2"), ("c", "3")])));
        let seen = sheet.version();
        assert!(!sheet.update(rows(&[("a", "1"), ("b", "2"), ("c", "3")])));
        assert_eq!(sheet.version(), seen);
        assert!(sheet.update(rows(&[("a", "1"), ("b", "9")])));
        assert_eq!(
            sheet.since(Some(seen)),
            r#"{"all":false,"rows":{"b":9},"gone":["c"]}"#
        );
        assert_eq!(
            sheet.since(None),
            r#"{"all":true,"rows":{"a":1,"b":9},"gone":[]}"#
        );
        assert_eq!(
            sheet.since(Some(sheet.version())),
            r#"{"all":false,"rows":{},"gone":[]}"#
        );
    }

    #[test]
    fn a_row_that_comes_back_is_told_and_is_gone_no_more() {
        let mut sheet = Sheet::default();
        sheet.update(rows(&[("a", "1")]));
        sheet.update(rows(&[]));
        let seen = sheet.version();
        sheet.update(rows(&[("a", "1")]));
        assert_eq!(
            sheet.since(Some(seen)),
            r#"{"all":false,"rows":{"a":1},"gone":[]}"#
        );
    }

    #[test]
    fn a_reader_whose_gone_rows_are_forgotten_gets_everything_anew() {
        let mut sheet = Sheet::default();
        sheet.update(rows(&[("kept", "0")]));
        let seen = sheet.version();
        let many: Vec<String> = (0..=GONE_MAX).map(|row| format!("row/{row}")).collect();
        let mut all = rows(&[("kept", "0")]);
        all.extend(many.into_iter().map(|key| (key, "1".to_owned())));
        sheet.update(all);
        sheet.update(rows(&[("kept", "0")]));
        assert_eq!(
            sheet.since(Some(seen)),
            r#"{"all":true,"rows":{"kept":0},"gone":[]}"#
        );
    }

    #[test]
    fn a_version_of_the_future_is_not_believed() {
        let mut sheet = Sheet::default();
        sheet.update(rows(&[("a", "1")]));
        assert!(sheet.since(Some(7)).contains(r#""all":true"#));
    }
}
