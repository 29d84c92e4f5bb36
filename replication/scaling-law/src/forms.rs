//! What is fitted: a loss as a function of parameters and tokens, and the ways in which a recipe may change it.

/// Parameters and tokens at which the two terms of the law are given; they keep its constants from being as large as a power of a billion.
pub const REFERENCE: (f64, f64) = (1e7, 1e8);

/// Where a loss is asked for or was measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// ln(N / 10 M).
    pub n: f64,
    /// ln(D / 100 M).
    pub d: f64,
}

impl Place {
    pub fn of(parameters: f64, tokens: f64) -> Self {
        Self { n: (parameters / REFERENCE.0).ln(), d: (tokens / REFERENCE.1).ln() }
    }
}

/// The baseline's law, L = E + (a N^-alpha + b D^-beta)^gamma, with N in units of 10 M and D of 100 M; each constant as its logarithm,
/// so that none becomes negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Law {
    /// ln of E, a, alpha, b, beta, gamma.
    pub constants: [f64; 6],
}

/// Places of the constants in [`Law::constants`].
pub const E: usize = 0;
pub const A: usize = 1;
pub const ALPHA: usize = 2;
pub const B: usize = 3;
pub const BETA: usize = 4;
pub const GAMMA: usize = 5;

/// A value with its derivatives.
pub struct Slopes {
    /// ln L.
    pub value: f64,
    /// By each of the constants.
    pub by: [f64; 6],
    /// By ln eff_N and ln eff_D.
    pub by_efficiency: [f64; 2],
}

impl Law {
    pub fn constant(&self, at: usize) -> f64 {
        self.constants[at].exp()
    }

    /// The terms of size and of tokens, before gamma.
    pub fn terms(&self, place: Place) -> (f64, f64) {
        let term = |level: usize, power: usize, x: f64| (self.constants[level] - self.constant(power) * x).exp();
        (term(A, ALPHA, place.n), term(B, BETA, place.d))
    }

    /// Loss, nats.
    pub fn loss(&self, place: Place) -> f64 {
        let (size, tokens) = self.terms(place);
        self.constant(E) + (size + tokens).powf(self.constant(GAMMA))
    }

    pub fn slopes(&self, place: Place) -> Slopes {
        let (size, tokens) = self.terms(place);
        let [floor, _, alpha, _, beta, gamma] = self.constants.map(f64::exp);
        let sum = size + tokens;
        let above = sum.powf(gamma);
        let loss = floor + above;
        let outer = gamma * above / sum / loss;
        let by_size = outer * size;
        let by_tokens = outer * tokens;
        Slopes {
            value: loss.ln(),
            by: [
                floor / loss,
                by_size,
                -by_size * alpha * place.n,
                by_tokens,
                -by_tokens * beta * place.d,
                gamma * above * sum.ln() / loss,
            ],
            by_efficiency: [-by_size * alpha, -by_tokens * beta],
        }
    }

    /// Extra tokens, as a share, with which a recipe of these efficiencies reaches the baseline's loss at `place`; none where no number of
    /// tokens does. E and gamma cancel.
    pub fn overhead(&self, place: Place, efficiency: [f64; 2]) -> Option<f64> {
        let (size, tokens) = self.terms(place);
        let worse = size * ((-self.constant(ALPHA) * efficiency[0]).exp() - 1.0);
        let left = tokens - worse;
        (left > 0.0).then(|| ((tokens / left).ln() / self.constant(BETA) - efficiency[1]).exp_m1())
    }

    /// The same for a recipe that lies `gap` nats above the baseline everywhere.
    pub fn overhead_of_gap(&self, place: Place, gap: f64) -> Option<f64> {
        let (size, tokens) = self.terms(place);
        let above = (size + tokens).powf(self.constant(GAMMA)) - gap;
        let left = if above > 0.0 { above.powf(self.constant(GAMMA).recip()) - size } else { 0.0 };
        (left > 0.0).then(|| ((tokens / left).ln() / self.constant(BETA)).exp_m1())
    }
}

/// A form of the baseline's law: which constants are free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Base {
    /// gamma = 1 (Hoffmann et al. 2022).
    Additive,
    /// gamma free.
    Joint,
    /// E = 0 and beta = 1, gamma free (Kaplan et al. 2020).
    NoFloor,
}

impl Base {
    pub const ALL: [Self; 3] = [Self::Additive, Self::Joint, Self::NoFloor];

    pub fn word(self) -> &'static str {
        match self {
            Self::Additive => "additive: E + a/N^alpha + b/D^beta",
            Self::Joint => "joint: E + (a/N^alpha + b/D^beta)^gamma",
            Self::NoFloor => "no floor: (a/N^alpha + b/D)^gamma",
        }
    }
}

/// How a recipe may differ from the baseline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Form {
    /// It does not.
    Same,
    /// Fewer parameters and fewer tokens.
    Both,
    /// As if it had fewer tokens.
    Tokens,
    /// As if it had fewer parameters.
    Size,
    /// A loss that stays, whatever size and tokens.
    Gap,
}

impl Form {
    pub const ALL: [Self; 5] = [Self::Same, Self::Both, Self::Tokens, Self::Size, Self::Gap];

    pub fn word(self) -> &'static str {
        match self {
            Self::Same => "no difference",
            Self::Both => "eff_N and eff_D",
            Self::Tokens => "eff_D alone",
            Self::Size => "eff_N alone",
            Self::Gap => "a constant gap",
        }
    }

    /// Numbers that it has.
    pub fn count(self) -> usize {
        match self {
            Self::Same => 0,
            Self::Both => 2,
            Self::Tokens | Self::Size | Self::Gap => 1,
        }
    }

    /// ln eff_N and ln eff_D.
    fn efficiency(self, numbers: &[f64]) -> [f64; 2] {
        let number = |at: usize| numbers.get(at).copied().unwrap_or(0.0);
        match self {
            Self::Both => [number(0), number(1)],
            Self::Tokens => [0.0, number(0)],
            Self::Size => [number(0), 0.0],
            Self::Same | Self::Gap => [0.0; 2],
        }
    }

    /// ln L of the recipe and its derivatives by the form's numbers.
    pub fn value(self, law: &Law, place: Place, numbers: &[f64]) -> (f64, [f64; 2]) {
        if self == Self::Gap {
            let loss = (law.loss(place) + numbers.first().copied().unwrap_or(0.0)).max(f64::MIN_POSITIVE);
            return (loss.ln(), [loss.recip(), 0.0]);
        }
        let [n, d] = self.efficiency(numbers);
        let slopes = law.slopes(Place { n: place.n + n, d: place.d + d });
        let [by_n, by_d] = slopes.by_efficiency;
        (slopes.value, if self == Self::Tokens { [by_d, 0.0] } else { [by_n, by_d] })
    }

    /// Loss above the baseline's at `place`, nats.
    pub fn gap(self, law: &Law, place: Place, numbers: &[f64]) -> f64 {
        self.value(law, place, numbers).0.exp() - law.loss(place)
    }

    /// Extra tokens to the baseline's loss at `place`, as a share; none where no number of tokens is enough.
    pub fn overhead(self, law: &Law, place: Place, numbers: &[f64]) -> Option<f64> {
        match self {
            Self::Same => Some(0.0),
            Self::Gap => law.overhead_of_gap(place, numbers.first().copied().unwrap_or(0.0)),
            _ => law.overhead(place, self.efficiency(numbers)),
        }
    }
}
