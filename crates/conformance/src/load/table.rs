//! Prints the table of figures.

use super::Figures;

/// Prints the figures of the built binary and of a reference, with their ratio. A ratio above 1 means that the built binary is
/// better.
pub fn print(own: &Figures, reference: Option<&Figures>) {
    println!("{:<36} {:>12} {:>12} {:>8}", "work", "portcullis", "reference", "ratio");
    for (name, figure) in own {
        let other =
            reference.and_then(|figures| figures.iter().find(|(own, _)| own == name)).and_then(|(_, f)| *f);
        let ratio = match (figure, other) {
            (Some(figure), Some(other)) if name.ends_with("/s") => Some(figure / other),
            (Some(figure), Some(other)) => Some(other / figure),
            _ => None,
        };
        println!("{name:<36} {:>12} {:>12} {:>8}", shown(*figure, ""), shown(other, ""), shown(ratio, "x"));
    }
}

fn shown(figure: Option<f64>, unit: &str) -> String {
    match figure {
        None => "–".to_owned(),
        Some(figure) if figure < 100.0 => format!("{figure:.1}{unit}"),
        Some(figure) => format!("{figure:.0}{unit}"),
    }
}
