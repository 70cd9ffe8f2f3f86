//! The targets of the store on etcd, beside what was measured in the same run.

use super::Figures;
use super::etcd::{EMBEDDED, ETCD};

/// A target and the figure that it is about.
#[derive(Debug, PartialEq)]
struct TargetRow {
    work: &'static str,
    target: &'static str,
    measured: Option<f64>,
}

/// Prints each target and its figure. Without a reference, that of creates has none.
pub fn print_store_targets(own: &Figures, reference: Option<&Figures>) {
    println!("{:<44} {:>12} {:>12}", "target of the store on etcd", "target", "measured");
    for TargetRow { work, target, measured } in rows(own, reference) {
        let measured = measured.map_or_else(|| "–".to_owned(), |figure| format!("{figure:.2}"));
        println!("{work:<44} {target:>12} {measured:>12}");
    }
}

fn rows(own: &Figures, reference: Option<&Figures>) -> Vec<TargetRow> {
    let figure = |name: &str| figure(own, name);
    let ratio = |one: &str, other: &str| Some(figure(one)? / figure(other)?);
    let difference = |one: &str, other: &str| Some(figure(one)? - figure(other)?);
    let create_of_reference = reference.and_then(|reference| self::figure(reference, ETCD.create));
    let row = |work, target, measured| TargetRow { work, target, measured };
    vec![
        row(
            "durable create, ratio to kube-apiserver",
            "≥ 1.5",
            figure(ETCD.create).zip(create_of_reference).map(|(own, other)| own / other),
        ),
        row("get from memory, ratio to embedded", "1", ratio(ETCD.get_any, EMBEDDED.get_any)),
        row("list from memory, ratio to embedded", "1", ratio(ETCD.list_any, EMBEDDED.list_any)),
        row("freshness p50 of get, ms", "< 1", difference(ETCD.serial_get, ETCD.serial_get_any)),
        row("freshness p50 of list, ms", "< 1", difference(ETCD.serial_list, ETCD.serial_list_any)),
        row("start with 100,000 objects of 1 KiB, ms", "< 3000", figure(ETCD.start)),
        row("memory with them, ratio to embedded", "≤ 1.3", ratio(ETCD.memory, EMBEDDED.memory)),
    ]
}

fn figure(figures: &Figures, name: &str) -> Option<f64> {
    figures.iter().find(|(known, _)| *known == name).and_then(|(_, figure)| *figure)
}

#[cfg(test)]
mod tests {
    use super::{EMBEDDED, ETCD, rows};

    #[test]
    fn targets_are_compared_with_the_figures_of_both_stores_and_the_reference() {
        let own = vec![
            (EMBEDDED.get_any, Some(1000.0)),
            (EMBEDDED.memory, Some(200.0)),
            (ETCD.create, Some(300.0)),
            (ETCD.get_any, Some(900.0)),
            (ETCD.serial_get, Some(1.5)),
            (ETCD.serial_get_any, Some(1.0)),
            (ETCD.start, Some(2500.0)),
            (ETCD.memory, Some(250.0)),
        ];
        let measured =
            |reference| rows(&own, reference).into_iter().map(|row| row.measured).collect::<Vec<_>>();
        let reference = vec![(ETCD.create, Some(150.0))];
        let rest = [Some(0.9), None, Some(0.5), None, Some(2500.0), Some(1.25)];
        assert_eq!(measured(Some(&reference)), [&[Some(2.0)][..], &rest].concat());
        assert_eq!(measured(None), [&[None][..], &rest].concat());
    }
}
