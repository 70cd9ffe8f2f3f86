//! Generates inputs from seeds and tokens.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use proptest::prelude::*;

use crate::mutate::{Mutation, mutation};

/// The maximum number of mutations of one input.
const MAX_MUTATIONS: usize = 8;

/// Values at the edges of what readers expect, for every language.
const EDGES: &[&str] = &[
    "0",
    "-1",
    "-0",
    "1e999",
    "1E-400",
    "0.1",
    "9223372036854775807",
    "-9223372036854775809",
    "18446744073709551616",
    "2147483648",
    "00",
    "0x1f",
    "\0",
    "\u{feff}",
    "\u{fffd}",
    "\u{2028}",
    "\u{1f600}",
    "\u{e9}",
    "\\",
    "\\u0000",
    "\\ud800",
    "%00",
    "%2F",
    "..",
    "/",
    "\"",
    "'",
    "`",
    "\n",
    "\r\n",
    "\t",
    " ",
    ",",
    ":",
    ";",
    "=",
    "null",
    "true",
];

/// Valid inputs of a language, and its tokens.
#[derive(Clone, Debug)]
pub struct Corpus {
    seeds: Arc<[Vec<u8>]>,
    tokens: Arc<[Vec<u8>]>,
}

/// A generated input, with the mutations that produced it.
#[derive(Clone)]
pub struct Input {
    bytes: Vec<u8>,
    mutations: Vec<Mutation>,
}

impl Deref for Input {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Input {
    /// The input as text; invalid UTF-8 becomes U+FFFD.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes).into_owned()
    }
}

/// Shows at most 2,000 characters of the input, to keep failure messages readable.
impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 2000;
        let text = String::from_utf8_lossy(&self.bytes);
        let shown: String = text.chars().take(SHOWN).collect();
        write!(f, "{shown:?} ({} bytes) by {:?}", self.bytes.len(), self.mutations)
    }
}

impl Corpus {
    /// Adds tokens that matter in every language (numbers, separators, escapes) to `tokens`.
    pub fn new<S: AsRef<[u8]>>(seeds: impl IntoIterator<Item = S>, tokens: &[&str]) -> Self {
        let mut seeds: Vec<Vec<u8>> = seeds.into_iter().map(|seed| seed.as_ref().to_vec()).collect();
        if seeds.is_empty() {
            seeds.push(Vec::new());
        }
        let tokens = tokens.iter().chain(EDGES).map(|token| token.as_bytes().to_vec()).collect();
        Corpus { seeds: seeds.into(), tokens }
    }

    pub fn seeds(&self) -> &[Vec<u8>] {
        &self.seeds
    }

    /// Seeds with up to eight mutations; fewer mutations and earlier seeds are simpler.
    pub fn inputs(&self) -> impl Strategy<Value = Input> + use<> {
        let corpus = self.clone();
        let mutations = prop::collection::vec(mutation(), 0..=MAX_MUTATIONS);
        (0..self.seeds.len(), mutations).prop_map(move |(seed, mutations)| {
            let mut bytes = corpus.seeds.get(seed).cloned().unwrap_or_default();
            for mutation in &mutations {
                mutation.apply(&mut bytes, &corpus.seeds, &corpus.tokens);
            }
            Input { bytes, mutations }
        })
    }
}
