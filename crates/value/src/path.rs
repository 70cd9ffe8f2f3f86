//! [`Path`]: where in a tree something is, printed as Kubernetes prints field paths (`spec.containers[0].name`).

use std::fmt;

use crate::Str;

/// One step from a value to a value inside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Segment {
    /// A field of an object.
    Field(Str),
    /// A position in a list.
    Index(usize),
    /// A key of a map, printed in brackets: `data[key]`.
    Key(Str),
}

/// A path from the root of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Path {
    segments: Vec<Segment>,
}

impl Path {
    /// The root.
    pub const fn root() -> Self {
        Path { segments: Vec::new() }
    }

    /// Goes into a field.
    pub fn push_field(&mut self, name: impl Into<Str>) {
        self.segments.push(Segment::Field(name.into()));
    }

    /// Goes into a list item.
    pub fn push_index(&mut self, index: usize) {
        self.segments.push(Segment::Index(index));
    }

    /// Goes back one step.
    pub fn pop(&mut self) {
        self.segments.pop();
    }

    /// This path with a field added.
    #[must_use]
    pub fn field(&self, name: impl Into<Str>) -> Self {
        let mut path = self.clone();
        path.push_field(name);
        path
    }

    /// This path with a list position added.
    #[must_use]
    pub fn index(&self, index: usize) -> Self {
        let mut path = self.clone();
        path.push_index(index);
        path
    }

    /// This path with a map key added.
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
