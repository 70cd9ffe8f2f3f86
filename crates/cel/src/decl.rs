//! Declarations: the functions of an environment, their overloads and what runs them.

use std::sync::Arc;

use value::Str;

use crate::eval::{CallContext, EvalResult};
use crate::types::{self, Type};
use crate::val::{Tag, Val};

/// What runs an overload.
pub(crate) type Implementation = for<'a> fn(&CallContext<'a>, &[Val<'a>]) -> EvalResult<'a>;

/// A function: one name, several overloads.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub(crate) name: Str,
    pub(crate) overloads: Vec<Arc<Overload>>,
    /// One implementation for all overloads, chosen by nothing but the name.
    pub(crate) singleton: Option<Singleton>,
    /// Whether argument types are compared with the declaration before an overload runs.
    pub(crate) guarded: bool,
}

/// The one implementation of all overloads of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Singleton {
    pub(crate) run: Implementation,
    /// Which values may stand first; any other is "no such overload".
    pub(crate) accepts: fn(Tag) -> bool,
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
    /// Whether arguments after a failing one are left alone. cel-go does so where it binds a function of any number of
    /// arguments, and the cost shows it.
    pub(crate) stops_early: bool,
}

impl Overload {
    /// Reads an overload from a library table: `string.(int, int) -> string` is a method, `(int) -> list(int)` a function.
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

    /// An overload that nothing runs.
    pub(crate) fn declared(id: &str, member: bool, args: Vec<Type>, result: Type) -> Overload {
        let mut parameters = Vec::new();
        for ty in args.iter().chain([&result]) {
            collect(ty, &mut parameters);
        }
        let stops_early = args.len() > 2;
        Overload { id: id.into(), member, args, result, parameters, run: None, stops_early }
    }

    /// Whether values have the types this overload declares, as far as cel-go looks.
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

/// Whether a value has a type. Of lists and maps only the first entry is looked at, as in cel-go.
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
