//! Conditions on plain data, found in the instructions. They are most of what policies ask, so they are tried in a form that
//! makes no values and never fails; where that gives no answer the instructions run.

use std::sync::Arc;

use super::node::{Attribute, Base, Fold, FoldKind, Key, Members, Node, PatternCall, Run};
use crate::cost::runtime::{Rule, traverse};
use crate::lib::pattern::Pattern;
use crate::syntax::operator;
use crate::val::{Val, length};

/// How many places one condition may read.
pub(crate) const MOST_PLACES: usize = 8;

/// A condition and the instructions that say the same.
#[derive(Clone, Debug)]
pub(crate) struct Condition {
    pub(crate) places: Box<[Place]>,
    pub(crate) test: Test,
    pub(crate) node: Node,
}

/// A field of plain data. What several parts of a condition read is one place.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Place {
    pub(crate) within: Within,
    pub(crate) name: Box<str>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Within {
    Variable(usize),
    Slot(usize),
    Place(usize),
}

/// What is asked. Each costs what the instructions do.
#[derive(Clone, Debug)]
pub(crate) enum Test {
    And(Box<(Test, Test)>),
    Or(Box<(Test, Test)>),
    Not(Box<Test>),
    /// Whether a place is there.
    Has(Reading),
    /// Whether a place is `true`.
    Holds(Reading),
    /// Whether a place is, or is not, a constant.
    IsBool(Reading, bool, bool),
    IsInt(Reading, i64, bool),
    /// With how many code points the text has.
    IsText(Reading, Box<str>, u64, bool),
    /// Whether a place is a number on this side of another.
    Compares(Reading, Comparison, i64),
    /// Whether a place is a map with a key.
    Contains(Reading, Box<str>),
    /// Whether a place is among constants.
    OneOf(Reading, Members),
    /// Whether a place is a text of some form.
    Starts(Reading, Box<str>),
    Ends(Reading, Box<str>),
    /// With the cost of going over what is looked for.
    Includes(Reading, Box<str>, u64),
    /// With how many code points the pattern has.
    Matches(Reading, Arc<Pattern>, u64),
}

/// A place and what it costs to read it and to look at it, as far as that is known before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) place: usize,
    pub(crate) cost: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
}

/// Puts conditions into the place of the instructions they stand for, each as large as can be.
pub(super) fn put(node: &mut Node) {
    let mut finder = Finder::default();
    if let Some(test) = finder.test(node) {
        let places = finder.places.into_boxed_slice();
        let inner = std::mem::replace(node, Node::Const(Val::Null));
        *node = Node::Condition(Box::new(Condition { places, test, node: inner }));
        return;
    }
    children(node, &mut put);
}

#[derive(Default)]
struct Finder {
    places: Vec<Place>,
}

impl Finder {
    /// The test that an instruction is, if it is one.
    fn test(&mut self, node: &Node) -> Option<Test> {
        Some(match node {
            Node::And(terms) => Test::And(Box::new((self.term(&terms.0)?, self.term(&terms.1)?))),
            Node::Or(terms) => Test::Or(Box::new((self.term(&terms.0)?, self.term(&terms.1)?))),
            Node::Attribute(attribute) if attribute.test_only => Test::Has(self.reading(attribute, 0)?),
            Node::Equals(terms) => self.equality(terms, true)?,
            Node::NotEquals(terms) => self.equality(terms, false)?,
            Node::InConstant(both) => {
                let (Node::Attribute(attribute), members) = &**both else { return None };
                Test::OneOf(self.value(attribute, 0)?, members.clone())
            }
            Node::Call(call) => match (call.function.as_str(), &*call.args, call.rule) {
                (operator::NOT, [arg], Rule::Units(1)) => Test::Not(Box::new(self.term(arg)?)),
                (operator::IN, [Node::Const(Val::String(key)), Node::Attribute(map)], Rule::Units(1)) => {
                    Test::Contains(self.value(map, 1)?, key.as_str().into())
                }
                (name, [Node::Attribute(number), Node::Const(Val::Int(other))], Rule::Units(1)) => {
                    Test::Compares(self.value(number, 1)?, comparison(name)?, *other)
                }
                (
                    "startsWith",
                    [Node::Attribute(text), Node::Const(Val::String(start))],
                    Rule::Traverse(1),
                ) => Test::Starts(self.value(text, size(start))?, start.as_str().into()),
                ("endsWith", [Node::Attribute(text), Node::Const(Val::String(end))], Rule::Traverse(1)) => {
                    Test::Ends(self.value(text, size(end))?, end.as_str().into())
                }
                ("contains", [Node::Attribute(text), Node::Const(Val::String(part))], Rule::Contains) => {
                    Test::Includes(self.value(text, 0)?, part.as_str().into(), size(part))
                }
                (_, [Node::Attribute(text), Node::Const(Val::String(written))], Rule::Pattern) => {
                    let Run::Pattern(PatternCall::Matches, pattern) = &call.run else { return None };
                    Test::Matches(self.value(text, 0)?, pattern.clone(), length(written) as u64)
                }
                _ => return None,
            },
            _ => return None,
        })
    }

    /// A part of a condition, which may be a value that is a boolean.
    fn term(&mut self, node: &Node) -> Option<Test> {
        match node {
            Node::Attribute(attribute) if !attribute.test_only => {
                Some(Test::Holds(self.value(attribute, 0)?))
            }
            node => self.test(node),
        }
    }

    fn equality(&mut self, terms: &(Node, Node), wanted: bool) -> Option<Test> {
        let (Node::Attribute(attribute), Node::Const(constant)) = terms else { return None };
        Some(match constant {
            Val::Bool(b) => Test::IsBool(self.value(attribute, 1)?, *b, wanted),
            Val::Int(i) => Test::IsInt(self.value(attribute, 1)?, *i, wanted),
            Val::String(text) => {
                Test::IsText(self.value(attribute, 0)?, text.as_str().into(), length(text) as u64, wanted)
            }
            _ => return None,
        })
    }

    /// Reading the value of an attribute: every step costs one, and so does naming the attribute.
    fn value(&mut self, attribute: &Attribute, cost: u64) -> Option<Reading> {
        if attribute.test_only { None } else { self.reading(attribute, cost + 1) }
    }

    fn reading(&mut self, attribute: &Attribute, cost: u64) -> Option<Reading> {
        if !attribute.plain {
            return None;
        }
        let mut within = match attribute.base {
            Base::Variable(at) => Within::Variable(at),
            Base::Slot(at) => Within::Slot(at),
            Base::Operand(_) => return None,
        };
        let mut last = None;
        for step in &attribute.path {
            let Key::Field(name) = &step.key else { return None };
            let place = Place { within, name: (&**name).into() };
            let at = self.places.iter().position(|known| *known == place);
            let at = at.unwrap_or_else(|| {
                self.places.push(place);
                self.places.len() - 1
            });
            if at >= MOST_PLACES {
                return None;
            }
            within = Within::Place(at);
            last = Some(at);
        }
        Some(Reading { place: last?, cost: cost + attribute.path.len() as u64 })
    }
}

/// The cost of going over a text.
fn size(text: &str) -> u64 {
    traverse(length(text) as u64)
}

fn comparison(function: &str) -> Option<Comparison> {
    Some(match function {
        "_<_" => Comparison::Less,
        "_<=_" => Comparison::LessOrEqual,
        "_>_" => Comparison::Greater,
        "_>=_" => Comparison::GreaterOrEqual,
        _ => return None,
    })
}

/// Calls `each` for the instructions directly inside another.
fn children(node: &mut Node, each: &mut impl FnMut(&mut Node)) {
    match node {
        Node::Const(_) | Node::Folded(_) | Node::Condition(_) => {}
        Node::Attribute(attribute) => {
            if let Base::Operand(operand) = &mut attribute.base {
                each(operand);
            }
            keys(&mut attribute.path, each);
        }
        Node::Conditional(conditional) => {
            each(&mut conditional.condition);
            each(&mut conditional.truthy);
            each(&mut conditional.falsy);
            keys(&mut conditional.path, each);
        }
        Node::And(both)
        | Node::Or(both)
        | Node::Equals(both)
        | Node::NotEquals(both)
        | Node::OptionalOr(both)
        | Node::OptionalOrValue(both) => {
            each(&mut both.0);
            each(&mut both.1);
        }
        Node::NotStrictlyFalse(arg) => each(arg),
        Node::Call(call) => call.args.iter_mut().for_each(each),
        Node::InConstant(both) => each(&mut both.0),
        Node::List(list) => list.elements.iter_mut().for_each(|(element, _)| each(element)),
        Node::Map(map) => {
            for (key, value, _) in &mut map.entries {
                each(key);
                each(value);
            }
        }
        Node::Struct(object) => object.fields.iter_mut().for_each(|(_, value, _)| each(value)),
        Node::Fold(fold) => loops(fold, each),
        Node::Bind(bind) => {
            each(&mut bind.value);
            each(&mut bind.result);
        }
    }
}

fn keys(path: &mut [super::node::Qualifier], each: &mut impl FnMut(&mut Node)) {
    for step in path {
        if let Key::Computed(node) = &mut step.key {
            each(node);
        }
    }
}

fn loops(fold: &mut Fold, each: &mut impl FnMut(&mut Node)) {
    each(&mut fold.range);
    match &mut fold.kind {
        FoldKind::All(predicate) | FoldKind::Exists(predicate) | FoldKind::ExistsOne(predicate) => {
            each(predicate);
        }
        FoldKind::Append { filter, items } => {
            filter.iter_mut().for_each(&mut *each);
            each(items);
        }
        FoldKind::Insert { filter, key, value } => {
            filter.iter_mut().for_each(&mut *each);
            key.iter_mut().for_each(&mut *each);
            each(value);
        }
        FoldKind::General { accu: _, init, condition, step, result } => {
            each(init);
            each(condition);
            each(step);
            each(result);
        }
    }
}
