//! Function declarations: names, overloads and implementations.

use std::sync::Arc;

use value::Str;

use crate::eval::{CallContext, EvalResult};
use crate::types::{self, Type};
use crate::val::{Val, ValKind};

/// Implementation of an overload.
pub(crate) type Implementation = for<'a> fn(&CallContext<'a>, &[Val<'a>]) -> EvalResult<'a>;

/// A function with its overloads.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: Str,
    pub(crate) overloads: Vec<Arc<Overload>>,
    /// One implementation for all overloads, selected by name alone.
    pub(crate) singleton: Option<Singleton>,
    /// Compare argument types with the declaration before calling an overload.
    pub(crate) guarded: bool,
}

/// An implementation shared by all overloads of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Singleton {
    pub(crate) run: Implementation,
    /// Accepted kinds of the first argument; others fail with "no such overload".
    pub(crate) accepts: fn(ValKind) -> bool,
}

/// One signature of a function.
#[derive(Clone, Debug)]
pub(crate) struct Overload {
    pub(crate) id: Str,
    pub(crate) member: bool,
    pub(crate) args: Vec<Type>,
    pub(crate) result: Type,
    pub(crate) parameters: Vec<Str>,
    pub(crate) run: Option<Implementation>,
    /// If true, arguments after a failing one are not evaluated. cel-go does this for functions of variable arity,
    /// and the cost depends on it.
    pub(crate) stops_early: bool,
}

impl Overload {
    /// Parses an overload from a library's table: `string.(int, int) -> string` declares a method, `(int) ->
    /// list(int)` a function.
    pub(crate) fn read(id: &str, signature: &str, run: Option<Implementation>) -> Overload {
        let (before, result) = signature.split_once("->").unwrap_or((signature, "dyn"));
        let (receiver, args) = match before.trim().split_once(".(") {
            Some((receiver, args)) => (Some(receiver), args),
            None => (None, before.trim().trim_start_matches('(')),
        };
        let args = args.trim().strip_suffix(')').unwrap_or(args);
        let args: Vec<Type> = receiver.into_iter().chain(types::split(args)).map(types::read).collect();
        Overload { run, ..Overload::declared(id, receiver.is_some(), args, types::read(result)) }
    }

    /// A declaration without an implementation.
    pub(crate) fn declared(id: &str, member: bool, args: Vec<Type>, result: Type) -> Overload {
        let mut parameters = Vec::new();
        for ty in args.iter().chain([&result]) {
            collect(ty, &mut parameters);
        }
        let stops_early = args.len() > 2;
        Overload { id: id.into(), member, args, result, parameters, run: None, stops_early }
    }

    /// True if the arguments match the declared types, as far as cel-go checks at run time.
    pub(crate) fn fits(&self, args: &[Val<'_>]) -> bool {
        args.len() == self.args.len() && self.args.iter().zip(args).all(|(ty, arg)| fits(ty, arg))
    }
}

fn collect(ty: &Type, parameters: &mut Vec<Str>) {
    if let Type::Param(name) = ty
        && !parameters.contains(name)
    {
        parameters.push(name.clone());
    }
    for inner in ty.parameters() {
        collect(inner, parameters);
    }
}

/// True if a value has the type. Of lists and maps only the first entry is checked, as in cel-go.
pub(crate) fn fits(ty: &Type, val: &Val<'_>) -> bool {
    match ty {
        Type::Dyn | Type::Any | Type::Param(_) => true,
        Type::Bool => matches!(val, Val::Bool(_)),
        Type::Int => matches!(val, Val::Int(_)),
        Type::Uint => matches!(val, Val::Uint(_)),
        Type::Double => matches!(val, Val::Double(_)),
        Type::String => matches!(val, Val::String(_)),
        Type::Bytes => matches!(val, Val::Bytes(_)),
        Type::Duration => matches!(val, Val::Duration(_)),
        Type::Timestamp => matches!(val, Val::Timestamp(_)),
        Type::Null => matches!(val, Val::Null),
        Type::Error => false,
        Type::Wrapper(inner) => matches!(val, Val::Null) || fits(inner, val),
        Type::Type(_) => matches!(val, Val::Type(_)),
        Type::List(element) => match val {
            Val::List(list) => list.get(0).is_none_or(|first| fits(element, &first)),
            _ => false,
        },
        Type::Map(entry) => match val {
            Val::Map(map) => {
                map.iter().next().is_none_or(|(key, value)| fits(&entry.0, &key) && fits(&entry.1, &value))
            }
            _ => false,
        },
        Type::Opaque(name, _) | Type::Struct(name) => val.type_name() == *name,
    }
}
