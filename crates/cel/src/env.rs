//! Environments: the variables, functions, macros and types that expressions may use.

mod builder;
mod libraries;
mod names;
mod stages;

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use value::Str;

pub(crate) use builder::Builder;
pub(crate) use names::GlobalName;
pub use stages::{Checked, Parsed, Program};

use crate::check::{self, Validator};
use crate::decl::{Function, Overload};
use crate::deep_stack::with_deep_stack;
use crate::eval::Error;
use crate::lib;
use crate::plan;
use crate::schema::MutationTypes;
use crate::syntax::macros::STANDARD;
use crate::syntax::parser;
use crate::syntax::source::{Issues, Source};
use crate::syntax::work;
use crate::types::Type;

/// A Kubernetes version, which selects the available libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Major version; 1 for all of Kubernetes.
    pub major: u32,
    /// Minor version, such as 37.
    pub minor: u32,
}

impl Version {
    /// The Kubernetes version whose libraries are complete here.
    pub const CURRENT: Version = Version { major: 1, minor: 37 };

    const fn v1(minor: u32) -> Version {
        Version { major: 1, minor }
    }
}

/// Declares struct types, such as those of a schema.
pub trait TypeProvider: Send + Sync + fmt::Debug {
    /// Looks up a type by name.
    fn find_type(&self, name: &str) -> Option<Type>;

    /// Looks up the type of a struct's field.
    fn find_field(&self, type_name: &str, field: &str) -> Option<Type>;
}

#[derive(Debug)]
struct Library {
    functions: HashMap<Str, Arc<Function>>,
    parser: parser::ParserOptions,
    validators: Vec<Validator>,
    cross_type_comparisons: bool,
    costs_of_lists: bool,
    types: HashMap<Str, Type>,
}

/// The declarations that an expression is compiled against. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Env {
    library: Arc<Library>,
    variables: Arc<[(Str, Type)]>,
    names: Arc<[Str]>,
    providers: Arc<[Arc<dyn TypeProvider>]>,
    container: Str,
}

impl Env {
    /// Kubernetes' base environment: the language and libraries available to new expressions in `version`.
    pub fn kubernetes(version: Version) -> Env {
        let mut builder = Builder::default();
        builder.macros(&STANDARD);
        lib::standard::add(&mut builder);
        libraries::add(&mut builder, version);
        Env::build(builder)
    }

    /// The base environment with the types and functions of mutating admission policies.
    pub fn kubernetes_mutation(version: Version) -> Env {
        let env = Env::kubernetes(version);
        env.extended(lib::jsonpatch::add).with_types(Arc::new(MutationTypes))
    }

    /// cel-go's standard environment with optional types and the string, list and two-variable extensions, without
    /// Kubernetes' libraries.
    pub fn standard() -> Env {
        let mut builder = Builder::default();
        builder.macros(&STANDARD);
        builder.cross_type_comparisons = true;
        lib::standard::add(&mut builder);
        lib::optional::add(&mut builder);
        lib::strings::add(&mut builder);
        lib::lists::add(&mut builder);
        lib::comprehensions::add(&mut builder);
        builder.validators.clear();
        Env::build(builder)
    }

    fn build(builder: Builder) -> Env {
        let Builder {
            functions,
            macros,
            validators,
            optional_syntax,
            cross_type_comparisons,
            costs_of_lists,
            types,
        } = builder;
        let functions = functions.into_iter().map(|(name, function)| (name, Arc::new(function))).collect();
        let parser = parser::ParserOptions { macros, optional_syntax, keep_macro_calls: false };
        let library =
            Library { functions, parser, validators, cross_type_comparisons, costs_of_lists, types };
        Env {
            library: Arc::new(library),
            variables: Arc::from([]),
            names: Arc::from([]),
            providers: Arc::from([]),
            container: Str::default(),
        }
    }

    pub(crate) fn extended(&self, add: impl FnOnce(&mut Builder)) -> Env {
        let library = &*self.library;
        let mut builder = Builder {
            functions: library
                .functions
                .iter()
                .map(|(name, function)| (name.clone(), (**function).clone()))
                .collect(),
            macros: library.parser.macros.clone(),
            validators: library.validators.clone(),
            optional_syntax: library.parser.optional_syntax,
            cross_type_comparisons: library.cross_type_comparisons,
            costs_of_lists: library.costs_of_lists,
            types: library.types.clone(),
        };
        add(&mut builder);
        let Env { variables, names, providers, container, .. } = self.clone();
        Env { variables, names, providers, container, ..Env::build(builder) }
    }

    /// Adds variables; a variable of the same name is replaced.
    #[must_use]
    pub fn with_variables<N: Into<Str>>(&self, variables: impl IntoIterator<Item = (N, Type)>) -> Env {
        let mut all: Vec<(Str, Type)> = self.variables.to_vec();
        for (name, ty) in variables {
            let name = name.into();
            match all.iter_mut().find(|(declared, _)| *declared == name) {
                Some((_, old)) => *old = ty,
                None => all.push((name, ty)),
            }
        }
        let names = all.iter().map(|(name, _)| name.clone()).collect();
        Env { variables: all.into(), names, ..self.clone() }
    }

    /// Declares an overload without an implementation: expressions that call it can be checked but not run. For a
    /// method (`member`), the first argument is the receiver.
    #[must_use]
    pub fn with_declaration(
        &self,
        name: &str,
        overload: &str,
        member: bool,
        args: Vec<Type>,
        result: Type,
    ) -> Env {
        let overload = Overload::declared(overload, member, args, result);
        self.extended(|builder| builder.entry(name).overloads.push(Arc::new(overload)))
    }

    /// Adds the struct types of a provider.
    #[must_use]
    pub fn with_types(&self, provider: Arc<dyn TypeProvider>) -> Env {
        let providers = self.providers.iter().cloned().chain([provider]).collect();
        Env { providers, ..self.clone() }
    }

    /// Sets the container in which names are looked up first.
    #[must_use]
    pub fn with_container(&self, container: &str) -> Env {
        Env { container: container.into(), ..self.clone() }
    }

    /// Keeps macro calls as written, so that [`Parsed::print`] can print them.
    #[must_use]
    pub fn keeping_macro_calls(&self) -> Env {
        let library = &*self.library;
        let parser = parser::ParserOptions { keep_macro_calls: true, ..library.parser.clone() };
        let library = Library {
            functions: library.functions.clone(),
            parser,
            validators: library.validators.clone(),
            cross_type_comparisons: library.cross_type_comparisons,
            costs_of_lists: library.costs_of_lists,
            types: library.types.clone(),
        };
        Env { library: Arc::new(library), ..self.clone() }
    }

    /// Parses an expression and expands its macros.
    pub fn parse(&self, text: &str) -> Result<Parsed, Issues> {
        work::count_text(text.len());
        let source = Source::new(text);
        let deep = may_be_deep(text);
        let ast = with_deep_stack(deep, || parser::parse(&source, &self.library.parser))?;
        Ok(Parsed { source, ast })
    }

    /// Type-checks a parsed expression.
    pub fn check(&self, parsed: Parsed) -> Result<Checked, Issues> {
        let Parsed { source, ast } = parsed;
        work::count_stage(ast.nodes());
        let checked = with_deep_stack(may_be_deep(source.text()), || check::check(&source, ast, self))?;
        Ok(Checked { env: self.clone(), source, tree: checked })
    }

    /// Plans an expression without type-checking it, for language conformance tests. Overloads are chosen at run
    /// time, and undeclared names fail when they are evaluated.
    pub fn unchecked_program(&self, parsed: Parsed) -> Result<Program, Error> {
        let Parsed { source, ast } = parsed;
        let deep = may_be_deep(source.text());
        let plan = with_deep_stack(deep, || {
            let resolved = check::resolve_only(&source, ast, self);
            plan::plan(&resolved, self, plan::PlanOptions { fold: false, checked: false })
        })?;
        Ok(Program { plan: Arc::new(plan), output: Type::Dyn })
    }

    /// Parses and type-checks an expression.
    pub fn compile(&self, text: &str) -> Result<Checked, Issues> {
        self.check(self.parse(text)?)
    }

    /// Names of the variables, in declaration order.
    pub fn variable_names(&self) -> Arc<[Str]> {
        self.names.clone()
    }

    /// Names of the functions except operators, unordered.
    pub fn function_names(&self) -> impl Iterator<Item = &str> {
        let names = self.library.functions.keys().map(Str::as_str);
        names.filter(|name| name.starts_with(|c: char| c.is_ascii_alphabetic()))
    }

    /// Names of the macros, each possibly several times.
    pub(crate) fn macro_names(&self) -> impl Iterator<Item = &str> {
        self.library.parser.macros.names()
    }

    pub(crate) fn variable(&self, name: &str) -> Option<usize> {
        self.variables.iter().position(|(declared, _)| declared == name)
    }

    pub(crate) fn is_disabled(&self, overload: &str) -> bool {
        !self.library.cross_type_comparisons && lib::standard::is_cross_type(overload)
    }

    pub(crate) fn validators(&self) -> &[Validator] {
        &self.library.validators
    }

    pub(crate) fn costs_of_lists(&self) -> bool {
        self.library.costs_of_lists
    }
}

/// True if the expression may nest deeply: it has many nested brackets, or is long enough for a long chain of
/// operators.
fn may_be_deep(text: &str) -> bool {
    const LONG_BYTES: usize = 1000;
    const DEEP_BRACKETS: usize = 24;
    let mut depth = 0usize;
    let mut deepest = 0;
    for byte in text.bytes() {
        match byte {
            b'(' | b'[' | b'{' | b'?' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest > DEEP_BRACKETS || text.len() > LONG_BYTES
}
