//! A deterministic random number generator.

/// The state of a SplitMix64 generator.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below the bound, which is at least 1.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() % bound as u64).expect("it is below a usize")
    }

    /// Returns true with probability 1/n.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<'a, T>(&mut self, list: &'a [T]) -> &'a T {
        &list[self.below(list.len())]
    }

    /// Draws a row from a table of weights, names and items.
    pub fn weighted<T: Copy>(&mut self, table: &[(usize, &'static str, T)]) -> (&'static str, T) {
        let total: usize = table.iter().map(|(weight, ..)| weight).sum();
        let mut left = self.below(total);
        for (weight, name, row) in table {
            if left < *weight {
                return (*name, *row);
            }
            left -= weight;
        }
        unreachable!("a number below the sum is within a row")
    }
}
