//! Divides the seats of the server among priority levels that lend and borrow.

/// Smaller targets are raised to this value, to avoid a division by zero.
const MIN_TARGET: f64 = 0.001;
const EPSILON: f64 = 1e-7;

/// The target and bounds of one priority level, in seats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SeatClaim {
    /// The seats it should get if all targets could be met.
    pub target: f64,
    /// Minimum number of seats.
    pub lower: f64,
    /// Maximum number of seats.
    pub upper: f64,
}

/// The result of a division.
#[derive(Clone, Debug, PartialEq)]
pub struct SeatAllocation {
    /// Seats in the order of the claims.
    pub seats: Vec<f64>,
    /// The fraction of its target that each claim gets unless a bound applies.
    pub fair_fraction: f64,
}

/// Divides exactly `total` seats: each claim gets the same fraction of its target, unless a bound applies. The error says why no such
/// division exists.
pub fn divide(total: f64, claims: &[SeatClaim]) -> Result<SeatAllocation, String> {
    for (number, claim) in claims.iter().enumerate() {
        if claim.lower < 0.0 || claim.target < claim.lower || claim.upper < claim.lower {
            return Err(format!("the bounds of claim {number} contradict each other: {claim:?}"));
        }
    }
    let sum = |of: fn(&SeatClaim) -> f64| claims.iter().map(of).sum::<f64>();
    let (low, high) = (sum(|claim| claim.lower), sum(|claim| claim.upper));
    if low - total > EPSILON {
        return Err(format!("the lower bounds sum to {low}, which is more than {total}"));
    }
    if total - high > EPSILON {
        return Err(format!("the upper bounds sum to {high}, which is less than {total}"));
    }
    let target = |claim: &SeatClaim| claim.target.max(MIN_TARGET);
    if total == 0.0 {
        return Ok(SeatAllocation { seats: vec![0.0; claims.len()], fair_fraction: 0.0 });
    }
    let smallest = claims.iter().map(|claim| claim.lower / target(claim)).fold(f64::INFINITY, f64::min);
    if low - total > -EPSILON {
        let seats = claims.iter().map(|claim| claim.lower).collect();
        return Ok(SeatAllocation { seats, fair_fraction: smallest });
    }
    if total - high > -EPSILON {
        let largest = claims.iter().map(|claim| claim.upper / target(claim)).fold(0.0, f64::max);
        let seats = claims.iter().map(|claim| claim.upper).collect();
        return Ok(SeatAllocation { seats, fair_fraction: largest });
    }
    // Raise the fraction from one bound to the next. Between two bounds, the allocated total grows with the targets of the claims that are
    // at no bound.
    let mut bounds: Vec<f64> =
        claims.iter().flat_map(|claim| [claim.lower / target(claim), claim.upper / target(claim)]).collect();
    bounds.sort_unstable_by(f64::total_cmp);
    let given = |fraction: f64| -> f64 {
        claims.iter().map(|claim| (fraction * target(claim)).max(claim.lower).min(claim.upper)).sum()
    };
    let mut fraction = smallest;
    for bound in bounds {
        if bound <= fraction {
            continue;
        }
        if given(bound) < total {
            fraction = bound;
            continue;
        }
        let free: f64 = claims
            .iter()
            // Compare in the way the bounds were computed, so that a bound that is just reached counts as reached.
            .filter(|claim| claim.lower / target(claim) <= fraction && claim.upper / target(claim) > fraction)
            .map(target)
            .sum();
        if free > 0.0 {
            fraction = (fraction + (total - given(fraction)) / free).min(bound);
        }
        break;
    }
    let seats =
        claims.iter().map(|claim| (fraction * target(claim)).max(claim.lower).min(claim.upper)).collect();
    Ok(SeatAllocation { seats, fair_fraction: fraction })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(target: f64, lower: f64, upper: f64) -> SeatClaim {
        SeatClaim { target, lower, upper }
    }

    #[track_caller]
    fn check(total: f64, claims: &[SeatClaim], seats: &[f64], fraction: f64) {
        let allocation = divide(total, claims).unwrap();
        let close = |a: f64, b: f64| (a - b).abs() < 1e-6;
        assert!(allocation.seats.iter().zip(seats).all(|(a, b)| close(*a, *b)), "{allocation:?}");
        assert!(close(allocation.fair_fraction, fraction), "{allocation:?}");
    }

    #[test]
    fn unbounded_levels_get_seats_in_proportion_to_their_targets() {
        check(30.0, &[claim(10.0, 0.0, 100.0), claim(5.0, 0.0, 100.0)], &[20.0, 10.0], 2.0);
    }

    #[test]
    fn seats_that_a_bound_withholds_go_to_other_levels() {
        check(30.0, &[claim(10.0, 0.0, 12.0), claim(5.0, 0.0, 100.0)], &[12.0, 18.0], 3.6);
        check(12.0, &[claim(10.0, 9.0, 12.0), claim(5.0, 0.0, 100.0)], &[9.0, 3.0], 0.6);
        check(30.0, &[claim(0.0, 0.0, 20.0), claim(0.0, 0.0, 10.0)], &[20.0, 10.0], 20_000.0);
        check(15.0, &[claim(10.0, 10.0, 20.0), claim(5.0, 5.0, 9.0)], &[10.0, 5.0], 1.0);
    }

    #[test]
    fn seat_allocation_outside_the_bounds_is_an_error() {
        assert!(divide(5.0, &[claim(10.0, 6.0, 12.0)]).unwrap_err().contains("lower bounds"));
        assert!(divide(50.0, &[claim(10.0, 6.0, 12.0)]).unwrap_err().contains("upper bounds"));
        assert!(divide(10.0, &[claim(1.0, 6.0, 12.0)]).unwrap_err().contains("contradict"));
    }

    proptest::proptest! {
        #[test]
        fn all_seats_are_allocated_within_all_bounds(
            parts in proptest::collection::vec((0.0..50.0_f64, 0.0..1.0_f64, 0.0..50.0_f64), 1..12),
            at in 0.0..1.0_f64,
        ) {
            let claims: Vec<SeatClaim> = parts
                .iter()
                .map(|(target, part, more)| claim(*target, target * part, target * part + more))
                .collect();
            let low: f64 = claims.iter().map(|claim| claim.lower).sum();
            let high: f64 = claims.iter().map(|claim| claim.upper).sum();
            let total = low + (high - low) * at;
            let allocation = divide(total, &claims).unwrap();
            let given: f64 = allocation.seats.iter().sum();
            proptest::prop_assert!((given - total).abs() < 1e-4, "{} of {}", given, total);
            for (seats, claim) in allocation.seats.iter().zip(&claims) {
                proptest::prop_assert!(*seats >= claim.lower - 1e-9 && *seats <= claim.upper + 1e-9);
            }
        }
    }
}
