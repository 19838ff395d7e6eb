//! What the readers of all formats share while one config is read: what was warned of, and the files that it refers to.

use crate::error::ImportError;
use crate::options::Options;
use crate::place::Place;
use crate::warning::Warning;

/// A config being read.
pub(crate) struct Reading<'a> {
    pub(crate) warnings: Vec<Warning>,
    read: &'a mut dyn FnMut(&str) -> Option<String>,
    files_left: u32,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(read: &'a mut dyn FnMut(&str) -> Option<String>) -> Self {
        Self {
            warnings: Vec::new(),
            read,
            // A config refers to a handful of files: more is a file that refers to itself.
            files_left: 8,
        }
    }

    /// The text of a file that is referred to.
    pub(crate) fn text(&mut self, path: &str) -> Option<String> {
        self.files_left = self.files_left.checked_sub(1)?;
        (self.read)(path).filter(|text| text.len() <= crate::TEXT_MAX)
    }

    /// The options of a file that an option names. Where it is not there, a warning says what is taken instead.
    pub(crate) fn options(
        &mut self,
        place: &Place,
        option: &str,
        path: &str,
        instead: &str,
    ) -> Result<Option<Options>, ImportError> {
        if let Some(text) = self.text(path) {
            return Options::parse(&text, path).map(Some);
        }
        self.warnings.push(Warning::FileNotRead {
            place: place.clone(),
            option: option.to_owned(),
            path: path.to_owned(),
            instead: instead.to_owned(),
        });
        Ok(None)
    }
}
