//! Programs over characters, for patterns that are too large for the engines over bytes.
//!
//! Over bytes each copy of `\p{L}` becomes hundreds of states; here it is one instruction that refers to a table, which
//! all copies share. A program is slower than an engine, and always counted.

use std::collections::HashMap;
use std::sync::OnceLock;

use regex_automata::util::look::{Look, LookMatcher};
use regex_syntax::ast::{Ast, Flag, Flags, FlagsItemKind, GroupKind, RepetitionKind, RepetitionRange};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{Class, ClassUnicode, HirKind};

use super::threads::{PatternAutomaton, ThreadStep};
use super::weight::{CLASS_UNITS, FOLDED_CLASS_UNITS};

/// Go's limit for the instructions of a compiled pattern: 128 MiB at 40 bytes each.
pub(super) const MAX_INSTRUCTIONS: u64 = (128 << 20) / 40;

/// A pattern reduced to what a program is built from.
pub(super) struct CharPattern {
    root: PatternNode,
    /// The sorted ranges of each distinct class.
    classes: Vec<Box<[(char, char)]>>,
    instructions: u64,
    program: OnceLock<Vec<Instruction>>,
}

enum PatternNode {
    Empty,
    Char(char),
    /// Index of the class.
    Class(u32),
    Look(Look),
    Repeat {
        least: u32,
        /// `None` means any number.
        most: Option<u32>,
        greedy: bool,
        body: Box<PatternNode>,
    },
    Concat(Vec<PatternNode>),
    Alternate(Vec<PatternNode>),
}

/// An instruction; the next one is reached by reading what it names.
#[derive(Clone, Copy)]
enum Instruction {
    Char(char),
    Class(u32),
    Look(Look),
    /// Continues at the next instruction and at `other`.
    Split {
        other: u32,
        prefers_other: bool,
    },
    Jump(u32),
    Match,
}

impl CharPattern {
    /// Reads a parsed pattern; calls `spend` with the units of each distinct class before it is read. `None` if the
    /// program would exceed [`MAX_INSTRUCTIONS`].
    pub(super) fn read<E>(
        pattern: &str,
        ast: &Ast,
        spend: impl Fn(u64) -> Result<(), E>,
    ) -> Result<Option<Self>, E> {
        let mut reader = PatternReader {
            pattern,
            flags: LeafFlags { unicode: true, ..LeafFlags::default() },
            leaves: HashMap::new(),
            classes: Vec::new(),
            spend,
        };
        let root = reader.node(ast)?;
        let classes = reader.classes;
        let instructions = root.instructions().saturating_add(1);
        let fits = instructions <= MAX_INSTRUCTIONS;
        Ok(fits.then(|| CharPattern { root, classes, instructions, program: OnceLock::new() }))
    }

    /// Upper bound of the program's instructions.
    pub(super) fn instructions(&self) -> u64 {
        self.instructions
    }

    fn program(&self) -> &[Instruction] {
        self.program.get_or_init(|| {
            let mut code = Vec::with_capacity(usize::try_from(self.instructions).unwrap_or(0));
            self.root.emit(&mut code);
            code.push(Instruction::Match);
            code.shrink_to_fit();
            code
        })
    }

    /// The program, ready to read a text.
    pub(super) fn machine<'p>(&'p self, text: &'p str) -> CharMachine<'p> {
        CharMachine {
            code: self.program(),
            classes: &self.classes,
            text,
            looks: LookMatcher::new(),
            char: None,
            tested: vec![(usize::MAX, false); self.classes.len()],
        }
    }
}

/// The flags that change the meaning of a single character, class or assertion.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of a regular expression")]
struct LeafFlags {
    case_insensitive: bool,
    multi_line: bool,
    dot_matches_new_line: bool,
    swap_greed: bool,
    unicode: bool,
}

impl LeafFlags {
    fn set(&mut self, flags: &Flags) {
        let mut on = true;
        for item in &flags.items {
            match item.kind {
                FlagsItemKind::Negation => on = false,
                FlagsItemKind::Flag(Flag::CaseInsensitive) => self.case_insensitive = on,
                FlagsItemKind::Flag(Flag::MultiLine) => self.multi_line = on,
                FlagsItemKind::Flag(Flag::DotMatchesNewLine) => self.dot_matches_new_line = on,
                FlagsItemKind::Flag(Flag::SwapGreed) => self.swap_greed = on,
                FlagsItemKind::Flag(Flag::Unicode) => self.unicode = on,
                // Go has no such flags.
                FlagsItemKind::Flag(Flag::CRLF | Flag::IgnoreWhitespace) => {}
            }
        }
    }
}

/// A node without others inside it, as read once for all its occurrences.
#[derive(Clone, Copy)]
enum Leaf {
    Empty,
    Char(char),
    Class(u32),
    Look(Look),
}

struct PatternReader<'p, F> {
    pattern: &'p str,
    flags: LeafFlags,
    /// The leaves read so far, by their text and flags.
    leaves: HashMap<(&'p str, LeafFlags), Leaf>,
    classes: Vec<Box<[(char, char)]>>,
    spend: F,
}

impl<E, F: Fn(u64) -> Result<(), E>> PatternReader<'_, F> {
    fn node(&mut self, ast: &Ast) -> Result<PatternNode, E> {
        Ok(match ast {
            Ast::Empty(_) => PatternNode::Empty,
            Ast::Flags(set) => {
                self.flags.set(&set.flags);
                PatternNode::Empty
            }
            Ast::Repetition(repetition) => {
                let (least, most) = match &repetition.op.kind {
                    RepetitionKind::ZeroOrOne => (0, Some(1)),
                    RepetitionKind::ZeroOrMore => (0, None),
                    RepetitionKind::OneOrMore => (1, None),
                    RepetitionKind::Range(RepetitionRange::Exactly(count)) => (*count, Some(*count)),
                    RepetitionKind::Range(RepetitionRange::AtLeast(least)) => (*least, None),
                    RepetitionKind::Range(RepetitionRange::Bounded(least, most)) => (*least, Some(*most)),
                };
                let greedy = repetition.greedy != self.flags.swap_greed;
                PatternNode::Repeat { least, most, greedy, body: Box::new(self.node(&repetition.ast)?) }
            }
            Ast::Group(group) => {
                let outer = self.flags;
                if let GroupKind::NonCapturing(flags) = &group.kind {
                    self.flags.set(flags);
                }
                let inside = self.node(&group.ast)?;
                self.flags = outer;
                inside
            }
            Ast::Alternation(branches) => PatternNode::Alternate(
                branches.asts.iter().map(|each| self.node(each)).collect::<Result<_, E>>()?,
            ),
            Ast::Concat(parts) => {
                PatternNode::Concat(parts.asts.iter().map(|each| self.node(each)).collect::<Result<_, E>>()?)
            }
            Ast::Literal(_)
            | Ast::Dot(_)
            | Ast::Assertion(_)
            | Ast::ClassUnicode(_)
            | Ast::ClassPerl(_)
            | Ast::ClassBracketed(_) => match self.leaf(ast)? {
                Leaf::Empty => PatternNode::Empty,
                Leaf::Char(char) => PatternNode::Char(char),
                Leaf::Class(class) => PatternNode::Class(class),
                Leaf::Look(look) => PatternNode::Look(look),
            },
        })
    }

    fn leaf(&mut self, ast: &Ast) -> Result<Leaf, E> {
        let span = ast.span();
        let text = self.pattern.get(span.start.offset..span.end.offset).unwrap_or_default();
        if let Some(leaf) = self.leaves.get(&(text, self.flags)) {
            return Ok(*leaf);
        }
        let classes = text.matches(r"\p").count() + text.matches(r"\P").count() + text.matches('[').count();
        let each = if self.flags.case_insensitive { FOLDED_CLASS_UNITS } else { CLASS_UNITS };
        (self.spend)((classes as u64).saturating_mul(each))?;
        let hir = TranslatorBuilder::new()
            .case_insensitive(self.flags.case_insensitive)
            .multi_line(self.flags.multi_line)
            .dot_matches_new_line(self.flags.dot_matches_new_line)
            .unicode(self.flags.unicode)
            .build()
            .translate(self.pattern, ast);
        let leaf = match hir.as_ref().map(regex_syntax::hir::Hir::kind) {
            Ok(HirKind::Empty) => Leaf::Empty,
            Ok(HirKind::Literal(literal)) => {
                match std::str::from_utf8(&literal.0).ok().and_then(|text| text.chars().next()) {
                    Some(char) => Leaf::Char(char),
                    None => self.class(&ClassUnicode::empty()),
                }
            }
            Ok(HirKind::Look(look)) => match Look::from_repr(look.as_repr()) {
                Some(look) => Leaf::Look(look),
                None => self.class(&ClassUnicode::empty()),
            },
            Ok(HirKind::Class(Class::Unicode(class))) => self.class(class),
            // The translation writes nothing else; a class that matches nothing is safe.
            _ => self.class(&ClassUnicode::empty()),
        };
        self.leaves.insert((text, self.flags), leaf);
        Ok(leaf)
    }

    fn class(&mut self, class: &ClassUnicode) -> Leaf {
        let index = u32::try_from(self.classes.len()).unwrap_or(u32::MAX);
        self.classes.push(class.iter().map(|range| (range.start(), range.end())).collect());
        Leaf::Class(index)
    }
}

impl PatternNode {
    /// Upper bound of the instructions that [`emit`](Self::emit) writes.
    fn instructions(&self) -> u64 {
        match self {
            PatternNode::Empty => 0,
            PatternNode::Char(_) | PatternNode::Class(_) | PatternNode::Look(_) => 1,
            PatternNode::Repeat { least, most, body, .. } => {
                // An empty body takes as long to repeat as one instruction.
                let body = body.instructions().max(1);
                match most {
                    None => body.saturating_mul(u64::from(*least).max(1)).saturating_add(2),
                    Some(most) => {
                        body.saturating_mul((*most).into()).saturating_add(most.saturating_sub(*least).into())
                    }
                }
            }
            PatternNode::Concat(parts) => {
                parts.iter().map(PatternNode::instructions).fold(0, u64::saturating_add)
            }
            PatternNode::Alternate(branches) => branches
                .iter()
                .map(|branch| branch.instructions().saturating_add(2))
                .fold(0, u64::saturating_add),
        }
    }

    fn emit(&self, code: &mut Vec<Instruction>) {
        match self {
            PatternNode::Empty => {}
            PatternNode::Char(char) => code.push(Instruction::Char(*char)),
            PatternNode::Class(class) => code.push(Instruction::Class(*class)),
            PatternNode::Look(look) => code.push(Instruction::Look(*look)),
            PatternNode::Concat(parts) => parts.iter().for_each(|part| part.emit(code)),
            PatternNode::Alternate(branches) => {
                let mut ends = Vec::new();
                for (i, branch) in branches.iter().enumerate() {
                    let split = code.len();
                    let is_last = i + 1 == branches.len();
                    if !is_last {
                        code.push(Instruction::Split { other: 0, prefers_other: false });
                    }
                    branch.emit(code);
                    if !is_last {
                        ends.push(code.len());
                        code.push(Instruction::Jump(0));
                        aim(code, &[split]);
                    }
                }
                aim(code, &ends);
            }
            PatternNode::Repeat { least, most: Some(most), greedy, body } => {
                (0..*least).for_each(|_| body.emit(code));
                let mut skips = Vec::new();
                for _ in *least..*most {
                    skips.push(code.len());
                    code.push(Instruction::Split { other: 0, prefers_other: !greedy });
                    body.emit(code);
                }
                aim(code, &skips);
            }
            PatternNode::Repeat { least, most: None, greedy, body } => {
                // `x*` is `(x+)?`: with an empty match of `x` the loop would lose the order of preference.
                let mut skips = Vec::new();
                if *least == 0 {
                    skips.push(code.len());
                    code.push(Instruction::Split { other: 0, prefers_other: !greedy });
                }
                (1..*least).for_each(|_| body.emit(code));
                let start = position(code);
                body.emit(code);
                code.push(Instruction::Split { other: start, prefers_other: *greedy });
                aim(code, &skips);
            }
        }
    }
}

fn position(code: &[Instruction]) -> u32 {
    u32::try_from(code.len()).unwrap_or(u32::MAX)
}

/// Makes jumps and splits continue at the end of the code.
fn aim(code: &mut [Instruction], sources: &[usize]) {
    let end = position(code);
    for source in sources {
        if let Some(Instruction::Split { other: target, .. } | Instruction::Jump(target)) =
            code.get_mut(*source)
        {
            *target = end;
        }
    }
}

/// A program reading a text.
pub(super) struct CharMachine<'p> {
    code: &'p [Instruction],
    classes: &'p [Box<[(char, char)]>],
    text: &'p str,
    looks: LookMatcher,
    /// The character at the current position.
    char: Option<char>,
    /// For each class, the last position where it was tested, and the result.
    tested: Vec<(usize, bool)>,
}

impl PatternAutomaton for CharMachine<'_> {
    type State = u32;

    fn states(&self) -> usize {
        self.code.len()
    }

    fn index(state: u32) -> usize {
        state as usize
    }

    fn start(&self) -> u32 {
        0
    }

    fn is_anchored(&self) -> bool {
        matches!(self.code.first(), Some(Instruction::Look(Look::Start)))
    }

    fn text(&self) -> &str {
        self.text
    }

    fn read(&mut self, at: usize) -> usize {
        self.char = self.text.get(at..).and_then(|rest| rest.chars().next());
        // Only the start of a search can be inside a code point.
        at + self.char.map_or(1, char::len_utf8)
    }

    fn follow(&self, state: u32, at: usize, stack: &mut Vec<u32>) {
        match self.code.get(state as usize) {
            Some(Instruction::Split { other, prefers_other: true }) => stack.extend([state + 1, *other]),
            Some(Instruction::Split { other, prefers_other: false }) => stack.extend([*other, state + 1]),
            Some(Instruction::Jump(target)) => stack.push(*target),
            Some(Instruction::Look(look)) if self.looks.matches(*look, self.text.as_bytes(), at) => {
                stack.push(state + 1);
            }
            _ => {}
        }
    }

    fn step(&mut self, state: u32, at: usize, visits: &mut u64) -> ThreadStep<u32> {
        let reads = match (self.code.get(state as usize), self.char) {
            (Some(Instruction::Match), _) => return ThreadStep::Match,
            (Some(Instruction::Char(wanted)), Some(char)) => *wanted == char,
            (Some(Instruction::Class(class)), Some(char)) => {
                let class = *class as usize;
                match (self.tested.get_mut(class), self.classes.get(class)) {
                    (Some((tested, result)), Some(ranges)) => {
                        if *tested != at {
                            *visits += u64::from(ranges.len().checked_ilog2().unwrap_or(0));
                            let found = ranges.partition_point(|(_, last)| *last < char);
                            *result = ranges.get(found).is_some_and(|(first, _)| *first <= char);
                            *tested = at;
                        }
                        *result
                    }
                    _ => false,
                }
            }
            _ => false,
        };
        if reads { ThreadStep::To(state + 1) } else { ThreadStep::Dead }
    }
}
