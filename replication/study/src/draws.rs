//! Random numbers for simulations: a function of a seed, the same on every machine. No cryptography.

/// xorshift64* (Vigna 2016).
#[derive(Debug, Clone)]
pub struct Draws {
    state: u64,
    /// The second of the two numbers that a pair of uniform ones gives.
    spare: Option<f64>,
}

impl Default for Draws {
    fn default() -> Self {
        Self { state: 0x9E37_79B9_7F4A_7C15, spare: None }
    }
}

impl Draws {
    /// The upper half of the next word.
    fn next(&mut self) -> u64 {
        self.state ^= self.state >> 12;
        self.state ^= self.state << 25;
        self.state ^= self.state >> 27;
        self.state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32
    }

    /// A whole number below `below`.
    pub fn below(&mut self, below: usize) -> usize {
        ((self.next() * below as u64) >> 32) as usize
    }

    /// A standard normal number, by Marsaglia's polar method.
    pub fn normal(&mut self) -> f64 {
        if let Some(spare) = self.spare.take() {
            return spare;
        }
        loop {
            let mut side = || (self.next() as f64 + 0.5) / 2_147_483_648.0 - 1.0;
            let (x, y) = (side(), side());
            let square = x * x + y * y;
            if square < 1.0 {
                let factor = (-2.0 * square.ln() / square).sqrt();
                self.spare = Some(y * factor);
                return x * factor;
            }
        }
    }

    /// A chi-squared number over its degrees of freedom: a variance estimated where the true one is one.
    pub fn variance(&mut self, freedom: usize) -> f64 {
        (0..freedom).map(|_| self.normal().powi(2)).sum::<f64>() / freedom as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Standard errors: of a mean of n normals 1/sqrt(n), of their variance sqrt(2/n), of the share beyond 1.96 sqrt(0.05 0.95 / n).
    #[test]
    fn normal_numbers_are_normal() {
        let (mut draws, n) = (Draws::default(), 40_000);
        let all: Vec<f64> = (0..n).map(|_| draws.normal()).collect();
        let mean = all.iter().sum::<f64>() / f64::from(n);
        let variance = all.iter().map(|x| x * x).sum::<f64>() / f64::from(n);
        let beyond = all.iter().filter(|x| x.abs() > 1.959_964).count() as f64 / f64::from(n);
        assert!(mean.abs() < 4.0 / 200.0 && (variance - 1.0).abs() < 4.0 * (2.0 / f64::from(n)).sqrt(), "{mean} {variance}");
        assert!((beyond - 0.05).abs() < 4.0 * (0.05 * 0.95 / f64::from(n)).sqrt(), "{beyond}");
    }
}
