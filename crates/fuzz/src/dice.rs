/// Pseudo-random numbers for tests, the same in every run with the same seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Dice(seed)
    }

    /// With the seed in `PORTCULLIS_SEED`, or 1.
    pub fn from_env() -> Self {
        Dice(crate::run::number("PORTCULLIS_SEED").unwrap_or(1))
    }

    /// A number below `sides`, which should be at most 2³¹; 0 if there are none.
    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides.max(1)
    }

    /// A number of 64 random bits.
    pub fn word(&mut self) -> u64 {
        const BITS: u64 = 1 << 31;
        (self.roll(BITS) << 33) | (self.roll(BITS) << 2) | self.roll(4)
    }

    /// An index below `length`; 0 if there are none.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.roll(length as u64)).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        let index = self.index(of.len());
        of.get(index)
    }
}
