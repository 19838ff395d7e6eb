//! Names to small numbers: shards and categories are looked up once a signal, without allocating, up to a limit.

use std::collections::HashMap;

use foldhash::fast::FixedState;

use crate::signal::cut;

/// The names of one kind, numbered in the order in which they came.
#[derive(Debug)]
pub(crate) struct Names {
    indices: HashMap<Box<str>, u32, FixedState>,
    names: Vec<Box<str>>,
    names_max: usize,
}

impl Names {
    pub(crate) fn new(names_max: usize) -> Self {
        Self {
            indices: HashMap::default(),
            names: Vec::new(),
            names_max,
        }
    }

    /// The number of a name that is known.
    pub(crate) fn get(&self, name: &str) -> Option<usize> {
        self.indices.get(cut(name)).map(|index| *index as usize)
    }

    /// The number of a name, a new one if need be; nothing where there are too many.
    pub(crate) fn intern(&mut self, name: &str) -> Option<usize> {
        if let Some(index) = self.get(name) {
            return Some(index);
        }
        if self.names.len() >= self.names_max {
            return None;
        }
        let index = self.names.len();
        let name: Box<str> = cut(name).into();
        self.names.push(name.clone());
        self.indices.insert(name, index as u32);
        Some(index)
    }

    pub(crate) fn name(&self, index: usize) -> &str {
        &self.names[index]
    }
}
