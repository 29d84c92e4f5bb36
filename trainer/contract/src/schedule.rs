//! Learning rate by step: linear warm-up, then half a cosine, as in MLPerf's llama31_8b.

use crate::run_file::{OptimizerSection, ScheduleSection};

/// Learning rate of `step` (the first is 1), in F64.
///
/// Step `warmup_steps` has the full rate; `decay_steps` later the rate is `end_learning_rate`, and stays there.
pub fn learning_rate(optimizer: &OptimizerSection, schedule: &ScheduleSection, step: u64) -> f64 {
    let base = optimizer.learning_rate;
    if step < schedule.warmup_steps {
        return base * step as f64 / schedule.warmup_steps as f64;
    }
    let progress = ((step - schedule.warmup_steps) as f64 / schedule.decay_steps as f64).min(1.0);
    let end = schedule.end_learning_rate;
    // libm, not the standard library: the same bits on every platform.
    end + (base - end) * 0.5 * (1.0 + libm::cos(std::f64::consts::PI * progress))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run_file::{OptimizerName, ScheduleName};

    #[test]
    fn warm_up_is_linear_and_the_cosine_ends_where_it_should() {
        let optimizer = OptimizerSection {
            name: OptimizerName::Adamw,
            learning_rate: 2e-3,
            beta1: 0.9,
            beta2: 0.95,
            epsilon: 1e-5,
            weight_decay: 0.1,
            clip_norm: 1.0,
        };
        let schedule =
            ScheduleSection { name: ScheduleName::CosineWithLinearWarmup, warmup_steps: 20, decay_steps: 100, end_learning_rate: 2e-4 };
        let rate = |step| learning_rate(&optimizer, &schedule, step);
        assert_eq!(rate(5), 5e-4);
        assert_eq!(rate(20), 2e-3);
        // Half-way the cosine is the mean of both ends; one rounding of cos(pi/2) is at most 1e-16 of the span.
        assert!((rate(70) - 1.1e-3).abs() < 1e-15);
        assert_eq!(rate(120), 2e-4);
        assert_eq!(rate(1_000_000), 2e-4);
        assert!((1..20).all(|step| rate(step) < rate(step + 1)));
        assert!((20..120).all(|step| rate(step) > rate(step + 1)));
        let none = ScheduleSection { warmup_steps: 0, ..schedule };
        assert!(learning_rate(&optimizer, &none, 1) < 2e-3);
    }
}
