//! CEL environments of admission: match conditions, policies and their parts compile in them.
//!
//! Validation compiles an expression to report its errors; admission compiles the same text in the same environment to
//! run it. Both use [`Compiler`], so an expression that was accepted also runs.

mod kinds;
mod types;

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};

use cel::{Env, EstimateRange, NoHints, Program, Type, TypeProvider, Version};
use value::Str;

pub use kinds::{KindTypes, TypedCompiler};
use types::{AdmissionTypes, NAMESPACE, REQUEST};

/// Optional variables of an expression, besides `object`, `oldObject`, `namespaceObject` and `request`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionalVariables {
    /// Declares `params`; set if the policy has a `paramKind`.
    pub params: bool,
    /// Declares `authorizer` and `authorizer.requestResource`.
    pub authorizer: bool,
    /// Declares the types `Object` and `JSONPatch`, and `jsonpatch.escapeKey`.
    pub patches: bool,
}

/// Origin of an expression. As in Kubernetes, new expressions may use only features of the previous minor version, so
/// that a rollback can still run them; stored expressions may use everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The expression is part of a new or changed object.
    New,
    /// The expression is already stored.
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

/// Type that an expression must evaluate to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Returns {
    Bool,
    String,
    /// For audit annotations; null omits the annotation.
    StringOrNull,
    /// For variables of policies.
    Anything,
    /// For apply configurations of mutating policies.
    Object,
    /// For the operations of a JSON patch.
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

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompileError {
    /// The expression is wrong; holds the compiler's message.
    Invalid(String),
    /// The compiler failed for a reason that the author of the expression did not cause.
    Internal(String),
}

impl CompileError {
    pub fn detail(&self) -> &str {
        match self {
            CompileError::Invalid(detail) | CompileError::Internal(detail) => detail,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Compiled {
    pub program: Program,
    pub output: Type,
    /// Estimated cost of one evaluation.
    pub estimate: EstimateRange,
}

/// Compiles expressions. [`Compiler::composed`] also declares the `variables` of one policy, added one after another.
#[derive(Clone, Debug)]
pub struct Compiler {
    variables: Option<Arc<VariableTypes>>,
}

impl Compiler {
    /// A compiler without `variables`.
    pub const PLAIN: Compiler = Compiler { variables: None };

    /// A compiler for one policy, with no `variables` yet.
    pub fn composed() -> Self {
        Compiler { variables: Some(Arc::default()) }
    }

    /// Returns the environment in which an expression compiles.
    pub fn env(&self, optional: OptionalVariables, age: Age) -> Env {
        let env = environment(EnvironmentKey { optional, composed: self.variables.is_some(), age });
        match &self.variables {
            None => env.clone(),
            Some(variables) => env.with_types(Arc::clone(variables) as Arc<dyn TypeProvider>),
        }
    }

    /// Compiles an expression and checks its result type.
    pub fn compile(
        &self,
        expression: &str,
        optional: OptionalVariables,
        returns: Returns,
        age: Age,
    ) -> Result<Compiled, CompileError> {
        let checked = self
            .env(optional, age)
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

    /// Compiles a variable and declares it for later expressions. One that does not compile is declared as `dyn`.
    pub fn variable(
        &self,
        name: &str,
        expression: &str,
        optional: OptionalVariables,
        age: Age,
    ) -> Result<Compiled, CompileError> {
        let compiled = self.compile(expression, optional, Returns::Anything, age);
        if let Some(variables) = &self.variables {
            let ty = compiled
                .as_ref()
                .map_or(Type::Dyn, |compiled| declared(&compiled.output, DEEPEST_TYPE, false));
            variables.add(name, ty);
        }
        compiled
    }
}

#[derive(Clone, Copy)]
struct EnvironmentKey {
    optional: OptionalVariables,
    composed: bool,
    age: Age,
}

impl EnvironmentKey {
    fn position(self) -> usize {
        usize::from(self.optional.params)
            | usize::from(self.optional.authorizer) << 1
            | usize::from(self.optional.patches) << 2
            | usize::from(self.composed) << 3
            | usize::from(self.age == Age::Stored) << 4
    }

    fn at(position: usize) -> Self {
        let bit = |n: usize| position >> n & 1 == 1;
        EnvironmentKey {
            optional: OptionalVariables { params: bit(0), authorizer: bit(1), patches: bit(2) },
            composed: bit(3),
            age: if bit(4) { Age::Stored } else { Age::New },
        }
    }
}

/// All 32 environments, built once because their libraries are large.
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
            let EnvironmentKey { optional, composed, age } = EnvironmentKey::at(position);
            let [plain, patches] = bases.get(usize::from(age == Age::Stored))?;
            let base = if optional.patches { patches } else { plain };
            let mut variables = vec![
                ("object", Type::Dyn),
                ("oldObject", Type::Dyn),
                ("namespaceObject", Type::Struct(NAMESPACE.into())),
                ("request", Type::Struct(REQUEST.into())),
            ];
            // The order matters: environments of one policy differ only at the end of this list. Therefore all its
            // expressions, and the variables they share, can run with the values of the environment with most variables.
            if composed {
                variables.push(("variables", Type::Struct(VARIABLES.into())));
            }
            if optional.params {
                variables.push(("params", Type::Dyn));
            }
            if optional.authorizer {
                variables.push(("authorizer", cel::authz::authorizer_type()));
                variables.push(("authorizer.requestResource", cel::authz::resource_check_type()));
            }
            Some(base.with_variables(variables))
        })
        .collect()
});

fn environment(shape: EnvironmentKey) -> &'static Env {
    #[expect(clippy::indexing_slicing, reason = "there is one for every shape")]
    &ENVIRONMENTS[shape.position()]
}

const VARIABLES: &str = "kubernetes.variables";

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

/// Maximum depth of a variable's type: each variable may contain the previous one, and their number is unlimited.
const DEEPEST_TYPE: usize = 64;

/// Type with which a variable is declared: scalars, lists, maps and, if `objects` is set, structs. Everything else, and
/// everything below `levels` levels, is `dyn`.
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
