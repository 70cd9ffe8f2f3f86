//! The syntax tree: macros are expanded in it, and every node has a number that leads to its place.

use value::Str;

/// The number of a node; [`Ast::offset`] gives its place.
pub type NodeId = u32;

/// A parsed expression.
#[derive(Clone, Debug)]
pub struct Ast {
    /// The root.
    pub expr: Expr,
    /// Code-point offset by node number; `None` where a node has no place.
    pub(crate) offsets: Vec<Option<u32>>,
    /// The macro calls as written, by the number of the node they became.
    pub(crate) macro_calls: Vec<(NodeId, Expr)>,
}

impl Ast {
    /// The code-point offset of a node.
    pub fn offset(&self, id: NodeId) -> Option<u32> {
        self.offsets.get(id as usize).copied().flatten()
    }
}

/// A node.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Its number.
    pub id: NodeId,
    /// What it is.
    pub kind: ExprKind,
}

/// What a node is.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// The rest of a syntax error; never in a tree that is checked.
    Unspecified,
    /// A literal.
    Literal(Literal),
    /// A name.
    Ident(Str),
    /// `operand.field`, or `has(operand.field)`.
    Select {
        /// What is selected from.
        operand: Box<Expr>,
        /// The field.
        field: Str,
        /// Whether only the presence is asked for.
        test_only: bool,
    },
    /// A call of a function, an operator or a method.
    Call {
        /// The name.
        function: Str,
        /// The receiver of a method.
        target: Option<Box<Expr>>,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `[a, ?b]`.
    List {
        /// The elements.
        elements: Vec<Expr>,
        /// Which of them are optional, by position.
        optional: Vec<usize>,
    },
    /// `{k: v, ?k: v}`.
    Map(Vec<MapEntry>),
    /// `Type{field: value}`.
    Struct {
        /// The type's name.
        type_name: Str,
        /// The fields.
        fields: Vec<StructField>,
    },
    /// What `all`, `exists`, `map` and the other macros become.
    Comprehension(Box<Comprehension>),
}

/// A literal.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// `null`.
    Null,
    /// `true`, `false`.
    Bool(bool),
    /// `1`.
    Int(i64),
    /// `1u`.
    Uint(u64),
    /// `1.0`.
    Double(f64),
    /// `'a'`.
    String(Str),
    /// `b'a'`.
    Bytes(Vec<u8>),
}

/// An entry of a map literal.
#[derive(Clone, Debug)]
pub struct MapEntry {
    /// Its number.
    pub id: NodeId,
    /// The key.
    pub key: Expr,
    /// The value.
    pub value: Expr,
    /// Whether it was written with `?`.
    pub optional: bool,
}

/// A field of a struct literal.
#[derive(Clone, Debug)]
pub struct StructField {
    /// Its number.
    pub id: NodeId,
    /// The name.
    pub name: Str,
    /// The value.
    pub value: Expr,
    /// Whether it was written with `?`.
    pub optional: bool,
}

/// A loop over a list or a map that computes one value.
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// What is looped over.
    pub range: Expr,
    /// The variable for the element (or the key, or the index when there are two variables).
    pub var: Str,
    /// The second variable, for the value.
    pub var2: Option<Str>,
    /// The variable of the result.
    pub accu: Str,
    /// Its first value.
    pub init: Expr,
    /// Whether to go on.
    pub condition: Expr,
    /// Its next value.
    pub step: Expr,
    /// What comes out at the end.
    pub result: Expr,
}

impl Expr {
    /// The string of a string literal.
    pub(crate) fn as_string(&self) -> Option<&Str> {
        match &self.kind {
            ExprKind::Literal(Literal::String(s)) => Some(s),
            _ => None,
        }
    }

    /// Calls `visit` for this node and all below it, from the outside in.
    pub(crate) fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Expr)) {
        visit(self);
        self.children(&mut |child| child.walk(visit));
    }

    /// Calls `visit` for the nodes directly below.
    pub(crate) fn children<'e>(&'e self, visit: &mut impl FnMut(&'e Expr)) {
        match &self.kind {
            ExprKind::Unspecified | ExprKind::Literal(_) | ExprKind::Ident(_) => {}
            ExprKind::Select { operand, .. } => visit(operand),
            ExprKind::Call { target, args, .. } => {
                if let Some(target) = target {
                    visit(target);
                }
                args.iter().for_each(visit);
            }
            ExprKind::List { elements, .. } => elements.iter().for_each(visit),
            ExprKind::Map(entries) => entries.iter().for_each(|entry| {
                visit(&entry.key);
                visit(&entry.value);
            }),
            ExprKind::Struct { fields, .. } => fields.iter().for_each(|field| visit(&field.value)),
            ExprKind::Comprehension(c) => {
                for part in [&c.range, &c.init, &c.condition, &c.step, &c.result] {
                    visit(part);
                }
            }
        }
    }
}
