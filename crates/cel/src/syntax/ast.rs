//! The syntax tree, with macros expanded. Every node has an id; [`Ast::offset`] maps it to the source position.

use value::Str;

/// Id of a node, unique within its [`Ast`].
pub type NodeId = u32;

/// A parsed expression: the syntax tree with the source positions of its nodes.
#[derive(Clone, Debug)]
pub struct Ast {
    /// The root node of the tree.
    pub expr: Expr,
    /// Code-point offset by node id; `None` for nodes without a source position.
    pub(crate) offsets: Vec<Option<u32>>,
    /// The macro calls as written, by the id of the node that replaced them.
    pub(crate) macro_calls: Vec<(NodeId, Expr)>,
}

impl Ast {
    /// Upper bound of the number of nodes.
    pub(crate) fn nodes(&self) -> usize {
        self.offsets.len()
    }

    /// Offset of a node in the source, in code points.
    pub fn offset(&self, id: NodeId) -> Option<u32> {
        self.offsets.get(id as usize).copied().flatten()
    }
}

/// A node of the syntax tree.
#[derive(Clone, Debug)]
pub struct Expr {
    /// Id of this node.
    pub id: NodeId,
    /// Operation that the node performs, with its operands.
    pub kind: ExprKind,
}

/// The operation of a node.
#[derive(Clone, Debug)]
pub enum ExprKind {
    /// Placeholder after a syntax error; never occurs in a checked tree.
    Unspecified,
    /// A literal of a scalar type.
    Literal(Literal),
    /// A variable or type name.
    Ident(Str),
    /// A selection: `operand.field` or `has(operand.field)`.
    Select {
        /// The value that the field is selected from.
        operand: Box<Expr>,
        /// Name of the selected field.
        field: Str,
        /// True for the presence test `has(operand.field)`.
        test_only: bool,
    },
    /// A call of a function, operator or method.
    Call {
        /// Function name; operators have names such as `_+_`.
        function: Str,
        /// Receiver, if this is a method call.
        target: Option<Box<Expr>>,
        /// Arguments, without the receiver.
        args: Vec<Expr>,
    },
    /// A list literal such as `[a, ?b]`.
    List {
        /// Elements in source order.
        elements: Vec<Expr>,
        /// Positions of the elements written with `?`, in ascending order.
        optional: Vec<usize>,
    },
    /// A map literal such as `{k: v, ?k: v}`.
    Map(Vec<MapEntry>),
    /// A struct literal such as `Type{field: value}`.
    Struct {
        /// Name of the struct's type.
        type_name: Str,
        /// Fields in source order.
        fields: Vec<StructField>,
    },
    /// A loop: the expansion of `all`, `exists`, `map` and the other comprehension macros.
    Comprehension(Box<Comprehension>),
}

/// The value of a literal.
#[derive(Clone, Debug, PartialEq)]
pub enum Literal {
    /// The null literal, `null`.
    Null,
    /// The literals `true` and `false`.
    Bool(bool),
    /// An integer such as `1`.
    Int(i64),
    /// An unsigned integer such as `1u`.
    Uint(u64),
    /// A floating-point number such as `1.0`.
    Double(f64),
    /// A string such as `'a'`, unescaped.
    String(Str),
    /// A byte string such as `b'a'`, unescaped.
    Bytes(Vec<u8>),
}

/// An entry of a map literal.
#[expect(missing_docs, reason = "the names of the other fields say what they are")]
#[derive(Clone, Debug)]
pub struct MapEntry {
    pub id: NodeId,
    pub key: Expr,
    pub value: Expr,
    /// Whether it was written with `?`.
    pub optional: bool,
}

/// A field of a struct literal.
#[expect(missing_docs, reason = "the names of the other fields say what they are")]
#[derive(Clone, Debug)]
pub struct StructField {
    pub id: NodeId,
    pub name: Str,
    pub value: Expr,
    /// Whether it was written with `?`.
    pub optional: bool,
}

/// A loop over a list or map that computes one value.
#[derive(Clone, Debug)]
pub struct Comprehension {
    /// The list or map to loop over.
    pub range: Expr,
    /// Name of the element variable, or of the key or index variable if there are two.
    pub var: Str,
    /// Name of the second variable, which holds the value.
    pub var2: Option<Str>,
    /// Name of the accumulator variable.
    pub accu: Str,
    /// Initial value of the accumulator.
    pub init: Expr,
    /// The loop continues while this is true.
    pub condition: Expr,
    /// Next value of the accumulator.
    pub step: Expr,
    /// Result of the loop, computed after the last turn.
    pub result: Expr,
}

impl Expr {
    /// The value of a string literal; `None` for other nodes.
    pub(crate) fn as_string(&self) -> Option<&Str> {
        match &self.kind {
            ExprKind::Literal(Literal::String(s)) => Some(s),
            _ => None,
        }
    }

    /// Calls `visit` for this node and all its descendants, parents first.
    pub(crate) fn walk<'e>(&'e self, visit: &mut impl FnMut(&'e Expr)) {
        visit(self);
        self.children(&mut |child| child.walk(visit));
    }

    /// Calls `visit` for the direct children.
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
