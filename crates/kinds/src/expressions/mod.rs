//! What the expressions of admission may use: the environments in which match conditions, policies and their parts compile.
//!
//! Validation compiles an expression to say what is wrong with it; admission compiles the same text in the same environment to
//! run it. [`Compiler`] is the one place where both meet, so that what was accepted is what runs.

mod kinds;
mod types;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use cel::{Env, NoHints, Program, Range, Type, TypeProvider, Version};
use value::Str;

pub use kinds::{KindTypes, TypedCompiler};
use types::{AdmissionTypes, NAMESPACE, REQUEST};

/// The optional variables that an expression may use, besides `object`, `oldObject`, `namespaceObject` and `request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offered {
    /// `params`: the policy has a `paramKind`.
    pub params: bool,
    /// `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
    /// The types `Object` and `JSONPatch`, and `jsonpatch.escapeKey`.
    pub patches: bool,
}

/// How long an expression has been there. Kubernetes lets new ones use only what the version before knew too, so that a
/// roll-back finds nothing it cannot run; stored ones may use everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// Somebody is about to store it.
    New,
    /// It is stored.
    Stored,
}

impl Age {
    fn version(self) -> Version {
        match self {
            Age::New => Version { minor: Version::CURRENT.minor - 1, ..Version::CURRENT },
            Age::Stored => Version::CURRENT,
        }
    }
}

/// What an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    /// A condition.
    Bool,
    /// A message.
    String,
    /// An audit annotation, or nothing.
    StringOrNull,
    /// A variable.
    Anything,
    /// An apply configuration.
    Object,
    /// The operations of a JSON patch.
    Patches,
}

impl Returns {
    fn types(self) -> Vec<Type> {
        match self {
            Returns::Bool => vec![Type::Bool],
            Returns::String => vec![Type::String],
            Returns::StringOrNull => vec![Type::String, Type::Null],
            Returns::Anything => Vec::new(),
            Returns::Object => vec![Type::Struct("Object".into())],
            Returns::Patches => vec![Type::list(Type::Struct("JSONPatch".into()))],
        }
    }
}

/// Why an expression cannot be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// It is wrong, in the compiler's words.
    Invalid(String),
    /// Not its author's fault.
    Internal(String),
}

impl CompileError {
    /// The words alone.
    pub fn detail(&self) -> &str {
        match self {
            CompileError::Invalid(detail) | CompileError::Internal(detail) => detail,
        }
    }
}

/// A compiled expression.
#[derive(Clone, Debug)]
pub struct Compiled {
    /// What runs.
    pub program: Program,
    /// The type of its value.
    pub output: Type,
    /// What running it may cost.
    pub estimate: Range,
}

/// Compiles expressions. One made by [`Compiler::composed`] knows the `variables` of one policy, which are added as they come.
#[derive(Clone, Debug)]
pub struct Compiler {
    variables: Option<Arc<VariableTypes>>,
}

impl Compiler {
    /// A compiler without `variables`.
    pub const PLAIN: Compiler = Compiler { variables: None };

    /// A compiler with the `variables` of one policy, none so far.
    pub fn composed() -> Self {
        Compiler { variables: Some(Arc::default()) }
    }

    /// The environment of an expression.
    pub fn env(&self, offered: Offered, age: Age) -> Env {
        let env = environment(Shape { offered, composed: self.variables.is_some(), age });
        match &self.variables {
            None => env.clone(),
            Some(variables) => env.with_types(Arc::clone(variables) as Arc<dyn TypeProvider>),
        }
    }

    /// Compiles an expression.
    pub fn compile(
        &self,
        expression: &str,
        offered: Offered,
        returns: Returns,
        age: Age,
    ) -> Result<Compiled, CompileError> {
        let checked = self
            .env(offered, age)
            .compile(expression)
            .map_err(|issues| CompileError::Invalid(format!("compilation failed: {issues}")))?;
        let output = checked.output_type().clone();
        let wanted = returns.types();
        if !wanted.is_empty() && !wanted.contains(&output) {
            let reason = match wanted.as_slice() {
                [one] => format!("must evaluate to {one} but got {output}"),
                many => {
                    let many: Vec<String> = many.iter().map(ToString::to_string).collect();
                    format!("must evaluate to one of [{}] but got {output}", many.join(" "))
                }
            };
            return Err(CompileError::Invalid(reason));
        }
        let program = checked
            .program()
            .map_err(|error| CompileError::Internal(format!("program instantiation failed: {error}")))?;
        Ok(Compiled { program, output, estimate: checked.estimate(&NoHints) })
    }

    /// Compiles a variable and makes it known to what comes after; one that does not compile is known too, as anything.
    pub fn variable(
        &self,
        name: &str,
        expression: &str,
        offered: Offered,
        age: Age,
    ) -> Result<Compiled, CompileError> {
        let compiled = self.compile(expression, offered, Returns::Anything, age);
        if let Some(variables) = &self.variables {
            let ty = compiled
                .as_ref()
                .map_or(Type::Dyn, |compiled| declared(&compiled.output, DEEPEST_TYPE, false));
            variables.add(name, ty);
        }
        compiled
    }
}

/// What distinguishes the environments.
#[derive(Clone, Copy)]
struct Shape {
    offered: Offered,
    composed: bool,
    age: Age,
}

impl Shape {
    fn position(self) -> usize {
        usize::from(self.offered.params)
            | usize::from(self.offered.authorizer) << 1
            | usize::from(self.offered.patches) << 2
            | usize::from(self.composed) << 3
            | usize::from(self.age == Age::Stored) << 4
    }

    fn at(position: usize) -> Self {
        let bit = |n: usize| position >> n & 1 == 1;
        Shape {
            offered: Offered { params: bit(0), authorizer: bit(1), patches: bit(2) },
            composed: bit(3),
            age: if bit(4) { Age::Stored } else { Age::New },
        }
    }
}

/// Every environment, made once: they are few, and the libraries in them are large.
static ENVIRONMENTS: LazyLock<Vec<Env>> = LazyLock::new(|| {
    let bases: Vec<[Env; 2]> = [Age::New, Age::Stored]
        .into_iter()
        .map(|age| {
            [Env::kubernetes(age.version()), Env::kubernetes_mutation(age.version())]
                .map(|env| env.with_types(Arc::new(AdmissionTypes)))
        })
        .collect();
    (0..32)
        .filter_map(|position| {
            let Shape { offered, composed, age } = Shape::at(position);
            let [plain, patches] = bases.get(usize::from(age == Age::Stored))?;
            let base = if offered.patches { patches } else { plain };
            let mut variables = vec![
                ("object", Type::Dyn),
                ("oldObject", Type::Dyn),
                ("namespaceObject", Type::Struct(NAMESPACE.into())),
                ("request", Type::Struct(REQUEST.into())),
            ];
            // The order matters: what a policy's expressions may use differs only at the end, so that all of them, and the
            // variables they share, can be run with the values of the one that may use most.
            if composed {
                variables.push(("variables", Type::Struct(VARIABLES.into())));
            }
            if offered.params {
                variables.push(("params", Type::Dyn));
            }
            if offered.authorizer {
                variables.push(("authorizer", cel::authz::authorizer_type()));
                variables.push(("authorizer.requestResource", cel::authz::resource_check_type()));
            }
            Some(base.with_variables(variables))
        })
        .collect()
});

fn environment(shape: Shape) -> &'static Env {
    #[expect(clippy::indexing_slicing, reason = "there is one for every shape")]
    &ENVIRONMENTS[shape.position()]
}

const VARIABLES: &str = "kubernetes.variables";

/// The type of `variables`: one field each.
#[derive(Debug, Default)]
struct VariableTypes {
    fields: RwLock<HashMap<Str, Type>>,
}

impl VariableTypes {
    fn add(&self, name: &str, ty: Type) {
        self.fields.write().unwrap_or_else(PoisonError::into_inner).insert(name.into(), ty);
    }
}

impl TypeProvider for VariableTypes {
    fn find_type(&self, name: &str) -> Option<Type> {
        (name == VARIABLES).then(|| Type::Struct(VARIABLES.into()))
    }

    fn find_field(&self, type_name: &str, field: &str) -> Option<Type> {
        if type_name != VARIABLES {
            return None;
        }
        self.fields.read().unwrap_or_else(PoisonError::into_inner).get(field).cloned()
    }
}

/// How deep a variable's type is known: each variable may hold the one before it, and there is no limit to their number.
const DEEPEST_TYPE: usize = 64;

/// The type with which a variable is known to later expressions: scalars, lists, maps and, if `objects`, those, as deep as `levels`;
/// all else is anything.
fn declared(ty: &Type, levels: usize, objects: bool) -> Type {
    let Some(inner) = levels.checked_sub(1) else { return Type::Dyn };
    match ty {
        Type::Any
        | Type::Bool
        | Type::Bytes
        | Type::Double
        | Type::Duration
        | Type::Int
        | Type::Null
        | Type::String
        | Type::Timestamp
        | Type::Uint => ty.clone(),
        Type::List(items) => Type::list(declared(items, inner, objects)),
        Type::Map(entry) => Type::map(declared(&entry.0, inner, objects), declared(&entry.1, inner, objects)),
        Type::Struct(_) if objects => ty.clone(),
        _ => Type::Dyn,
    }
}

#[cfg(test)]
mod tests;
