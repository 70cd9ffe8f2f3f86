//! [`Path`]: the path of a field, printed as Kubernetes prints field paths (`spec.containers[0].name`).

use std::fmt;

use crate::Str;

/// One step of a field path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    Field(Str),
    Index(usize),
    /// A key of a map, printed in brackets: `data[key]`.
    Key(Str),
}

/// A field path from the root of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    segments: Vec<Segment>,
}

impl Path {
    /// The path of the object itself.
    pub const fn root() -> Self {
        Path { segments: Vec::new() }
    }

    pub fn push_field(&mut self, name: impl Into<Str>) {
        self.segments.push(Segment::Field(name.into()));
    }

    /// Appends a list index to the path.
    pub fn push_index(&mut self, index: usize) {
        self.segments.push(Segment::Index(index));
    }

    /// Removes the last step.
    pub fn pop(&mut self) {
        self.segments.pop();
    }

    #[must_use]
    pub fn field(&self, name: impl Into<Str>) -> Self {
        let mut path = self.clone();
        path.push_field(name);
        path
    }

    /// This path extended by a list index.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.push_index(index);
        path
    }

    /// This path extended by a map key.
    #[must_use]
    pub fn key(&self, key: impl Into<Str>) -> Self {
        let mut path = self.clone();
        path.segments.push(Segment::Key(key.into()));
        path
    }

    /// The steps from the root.
    pub fn segments(&self) -> &[Segment] {
        &self.segments
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments.iter().enumerate() {
            match segment {
                Segment::Field(name) if i == 0 => f.write_str(name)?,
                Segment::Field(name) => write!(f, ".{name}")?,
                Segment::Index(index) => write!(f, "[{index}]")?,
                Segment::Key(key) => write!(f, "[{key}]")?,
            }
        }
        Ok(())
    }
}
