//! Comprehensions. The loops of the standard macros run natively, and charge the cost of their expansion.

use super::{Error, Eval, EvalResult, VariableSlot, go_type};
use crate::plan::node::{Fold, FoldKind, ListNode, PlanNode};
use crate::val::{ListVal, MapEntries, MapVal, Steps, Val};

/// Memory of an element of a growing list.
const APPENDED_BYTES: usize = 2 * size_of::<Val<'_>>();

/// The elements that a loop iterates over.
enum LoopRange<'a> {
    List(ListVal<'a>),
    /// A map of the data, iterated without collecting its keys.
    Data(&'a value::Map),
    /// A map of the expression or the program.
    Map(MapVal<'a>),
    Entries(Vec<(Val<'a>, Val<'a>)>),
}

impl<'a> LoopRange<'a> {
    fn of(val: Val<'a>, two: bool) -> Result<LoopRange<'a>, Error> {
        match val {
            Val::List(list) => Ok(LoopRange::List(list)),
            Val::Map(MapVal::Data(map, None)) => Ok(LoopRange::Data(map)),
            Val::Map(map @ (MapVal::Borrowed(_) | MapVal::Owned(_))) => Ok(LoopRange::Map(map)),
            Val::Map(map) if two => Ok(LoopRange::Entries(map.iter().collect())),
            Val::Map(map) => {
                Ok(LoopRange::Entries(map.keys().into_iter().map(|key| (key, Val::Null)).collect()))
            }
            other if two => {
                Err(Error::new(format!("unsupported comprehension range type: {}", go_type(&other))))
            }
            other => Err(Error::new(format!("got '{}', expected iterable type", go_type(&other)))),
        }
    }

    fn len(&self) -> usize {
        match self {
            LoopRange::List(list) => list.len(),
            LoopRange::Data(map) => map.len(),
            LoopRange::Map(map) => map.len(),
            LoopRange::Entries(entries) => entries.len(),
        }
    }

    /// The loop variables at a position; `two` asks for key (or index) and value.
    fn get(&self, at: usize, two: bool) -> Option<(Val<'a>, Option<Val<'a>>)> {
        Some(match self {
            LoopRange::List(list) if two => {
                (Val::Int(i64::try_from(at).unwrap_or(i64::MAX)), Some(list.get(at)?))
            }
            LoopRange::List(list) => (list.get(at)?, None),
            LoopRange::Data(map) => {
                let (key, value) = map.entry_at(at)?;
                (Val::str(key), two.then(|| Val::data(value)))
            }
            LoopRange::Map(MapVal::Borrowed(entries)) => {
                let entries: &'a MapEntries<'a> = entries;
                let (key, val) = entries.get(at)?;
                (key.borrow(), two.then(|| val.borrow()))
            }
            LoopRange::Map(MapVal::Owned(entries)) => {
                let (key, val) = entries.get(at)?;
                (key.clone(), two.then(|| val.clone()))
            }
            LoopRange::Map(_) => return None,
            LoopRange::Entries(entries) => {
                let (key, val) = entries.get(at)?;
                (key.clone(), two.then(|| val.clone()))
            }
        })
    }
}

impl<'a> Eval<'a, '_> {
    pub(super) fn fold(&mut self, fold: &'a Fold) -> EvalResult<'a> {
        let range = self.node(&fold.range)?;
        let two = fold.var2.is_some();
        let collected = match &range {
            Val::Map(map @ (MapVal::Lazy(_) | MapVal::Data(_, Some(_)))) => map.len(),
            _ => 0,
        };
        self.count_parts(collected)?;
        let bytes = collected.saturating_mul(size_of::<(Val<'a>, Val<'a>)>());
        self.cx.steps.create(bytes)?;
        let outcome = self.fold_over(fold, &LoopRange::of(range, two)?);
        self.cx.steps.release(bytes);
        outcome
    }

    fn fold_over(&mut self, fold: &'a Fold, range: &LoopRange<'a>) -> EvalResult<'a> {
        match &fold.kind {
            FoldKind::All(predicate) => self.quantify(fold, range, predicate, true),
            FoldKind::Exists(predicate) => self.quantify(fold, range, predicate, false),
            FoldKind::ExistsOne(predicate) => self.exists_one(fold, range, predicate),
            FoldKind::Append { filter, items } => self.append(fold, range, filter.as_ref(), items),
            FoldKind::Insert { filter, key, value } => {
                self.insert(fold, range, filter.as_ref(), key.as_ref(), value)
            }
            FoldKind::General { accu, init, condition, step, result } => {
                self.set_slot(*accu, VariableSlot::Lazy(init));
                for at in 0..range.len() {
                    self.tick()?;
                    self.set_loop_variables(fold, range, at)?;
                    match self.node(condition) {
                        Ok(Val::Bool(false)) => break,
                        Err(error) if error.is_fatal() => return Err(error),
                        _ => {}
                    }
                    let next = match self.node(step) {
                        Ok(val) => VariableSlot::Val(val),
                        Err(error) if error.is_fatal() => return Err(error),
                        Err(error) => VariableSlot::Failed(error),
                    };
                    self.set_slot(*accu, next);
                }
                self.node(result)
            }
        }
    }

    /// Assigns the loop variables of one turn.
    fn set_loop_variables(&mut self, fold: &Fold, range: &LoopRange<'a>, at: usize) -> Result<(), Error> {
        if let (LoopRange::List(ListVal::Data(items, None)), None) = (range, fold.var2) {
            if let Some(item) = items.get(at) {
                self.set_slot(fold.var, VariableSlot::Val(Val::data(item)));
            }
            return Ok(());
        }
        if let Some((first, second)) = range.get(at, fold.var2.is_some()) {
            self.count_decoded(&first)?;
            self.set_slot(fold.var, VariableSlot::Val(first));
            if let (Some(slot), Some(second)) = (fold.var2, second) {
                self.count_decoded(&second)?;
                self.set_slot(slot, VariableSlot::Val(second));
            }
        }
        Ok(())
    }

    /// `all` and `exists`: `&&` or `||` over the elements, with short-circuiting.
    fn quantify(
        &mut self,
        fold: &'a Fold,
        range: &LoopRange<'a>,
        predicate: &'a PlanNode,
        all: bool,
    ) -> EvalResult<'a> {
        // The loop condition reads the accumulator, negates it for `exists`, and calls @not_strictly_false.
        let condition = if all { 2 } else { 3 };
        let mut decided = false;
        let mut failed: Option<Error> = None;
        // Elements of plain lists are tested without creating values.
        let plain = match (predicate, range, fold.var2) {
            (PlanNode::Condition(tried), LoopRange::List(ListVal::Data(items, None)), None) => {
                Some((&**tried, *items))
            }
            _ => None,
        };
        for at in 0..range.len() {
            self.tick()?;
            if decided {
                self.charge(condition)?;
                break;
            }
            // The step reads the accumulator too.
            self.charge(condition + 1)?;
            let tried = plain.and_then(|(tried, items)| {
                let element = items.get(at)?.as_map()?;
                self.attempt(tried, Some((fold.var, element)))
            });
            let holds = match (tried, predicate) {
                (Some(holds), _) => Ok(holds),
                (None, predicate) => {
                    self.set_loop_variables(fold, range, at)?;
                    self.eval_bool(match predicate {
                        PlanNode::Condition(tried) if plain.is_some() => &tried.node,
                        predicate => predicate,
                    })
                }
            };
            match holds {
                Ok(b) if b == all => {}
                Ok(_) => {
                    decided = true;
                    failed = None;
                }
                Err(error) if error.is_fatal() => return Err(error),
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        self.charge(1)?;
        failed.map_or(Ok(Val::Bool(decided != all)), Err)
    }

    fn exists_one(
        &mut self,
        fold: &'a Fold,
        range: &LoopRange<'a>,
        predicate: &'a PlanNode,
    ) -> EvalResult<'a> {
        let mut count = 0u64;
        let mut failed: Option<Error> = None;
        for at in 0..range.len() {
            self.tick()?;
            self.set_loop_variables(fold, range, at)?;
            if self.filter_passes(Some(predicate), &mut failed)? {
                // Reads the accumulator and adds one.
                self.charge(2)?;
                count += 1;
            }
        }
        // Reads the accumulator and compares it.
        self.charge(2)?;
        failed.map_or(Ok(Val::Bool(count == 1)), Err)
    }

    /// Evaluates the filter of a turn. Errors and values that are not booleans are recorded in `failed`.
    fn filter_passes(
        &mut self,
        filter: Option<&'a PlanNode>,
        failed: &mut Option<Error>,
    ) -> Result<bool, Error> {
        let Some(filter) = filter else { return Ok(true) };
        match self.node(filter).and_then(|value| value.as_bool().ok_or_else(Error::no_such_overload)) {
            Err(error) if !error.is_fatal() => {
                // The step evaluates the filter before it reads the accumulator, so the last error wins.
                *failed = Some(error);
                Ok(false)
            }
            outcome => outcome,
        }
    }

    /// `map` and `filter`: appends `items` for every turn that passes the filter.
    fn append(
        &mut self,
        fold: &'a Fold,
        range: &LoopRange<'a>,
        filter: Option<&'a PlanNode>,
        items: &'a PlanNode,
    ) -> EvalResult<'a> {
        let mut gathered = Vec::new();
        self.accumulate(fold, range, filter, false, |eval| eval.append_items(items, &mut gathered))?;
        Ok(Val::list(gathered))
    }

    /// Runs `step` in every turn that passes the filter. If a turn fails, the others still run, unless `stops` is true.
    fn accumulate(
        &mut self,
        fold: &'a Fold,
        range: &LoopRange<'a>,
        filter: Option<&'a PlanNode>,
        stops: bool,
        mut step: impl FnMut(&mut Self) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut failed: Option<Error> = None;
        for at in 0..range.len() {
            self.tick()?;
            self.set_loop_variables(fold, range, at)?;
            if !self.filter_passes(filter, &mut failed)? {
                continue;
            }
            // Reads the accumulator.
            self.charge(1)?;
            if stops && failed.is_some() {
                continue;
            }
            if let Err(error) = step(self) {
                if error.is_fatal() {
                    return Err(error);
                }
                failed = Some(failed.unwrap_or(error));
            }
            self.charge(1)?;
        }
        self.charge(1)?;
        failed.map_or(Ok(()), Err)
    }

    /// Appends the elements of a list node without creating the list.
    fn append_items(&mut self, items: &'a PlanNode, gathered: &mut Vec<Val<'a>>) -> Result<(), Error> {
        if let PlanNode::List(list) = items
            && let ListNode { elements } = &**list
            && let [(element, false)] = &**elements
        {
            let outcome = self.node(element);
            if let Err(error) = &outcome
                && error.is_fatal()
            {
                return Err(error.clone());
            }
            self.charge(10)?;
            self.cx.steps.create(APPENDED_BYTES)?;
            gathered.push(outcome?);
            return Ok(());
        }
        match self.node(items)? {
            Val::List(list) => {
                self.cx.steps.create(list.len().saturating_mul(APPENDED_BYTES))?;
                gathered.extend(list.iter());
                Ok(())
            }
            _ => Err(Error::no_such_overload()),
        }
    }

    /// `transformMap` and `transformMapEntry`: inserts an entry, or a map of entries, per turn.
    fn insert(
        &mut self,
        fold: &'a Fold,
        range: &LoopRange<'a>,
        filter: Option<&'a PlanNode>,
        key: Option<&'a PlanNode>,
        value: &'a PlanNode,
    ) -> EvalResult<'a> {
        let mut entries = MapEntries::default();
        // A call with three arguments stops at the first one that fails, and costs nothing.
        let stops = key.is_some();
        self.accumulate(fold, range, filter, stops, |eval| eval.inserted(key, value, &mut entries))?;
        Ok(Val::Map(MapVal::of(entries)))
    }

    fn inserted(
        &mut self,
        key: Option<&'a PlanNode>,
        value: &'a PlanNode,
        entries: &mut MapEntries<'a>,
    ) -> Result<(), Error> {
        let mut put = |steps: &Steps<'_>, key: Val<'a>, val: Val<'a>| {
            super::check_hashable(&key)?;
            steps.take_bytes(key.flat_bytes())?;
            steps.create(MapEntries::ENTRY_BYTES + key.flat_bytes())?;
            if entries.find(&key).is_some() {
                return Err(Error::new(format!("insert failed: key {key} already exists")));
            }
            entries.insert(key, val);
            Ok(())
        };
        if let Some(key) = key {
            let key = self.node(key)?;
            let val = self.node(value)?;
            return put(&self.cx.steps, key, val);
        }
        match self.node(value)? {
            Val::Map(map) => map.iter().try_for_each(|(key, val)| put(&self.cx.steps, key, val)),
            other => Err(super::no_such_overload(
                "cel.@mapInsert",
                &[Val::Map(MapVal::of(MapEntries::default())), other],
            )),
        }
    }
}
