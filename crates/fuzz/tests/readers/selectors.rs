//! Readers of label and field selectors.

use api::selector::{FieldSelector, LabelSelector};
use fuzz::Corpus;
use value::{json, write};

#[test]
fn selectors_are_written_as_the_same_selector() {
    let seeds = [
        "a=b",
        "a==b,c!=d",
        "a in (b,c), d notin (e)",
        "a,!b",
        "x.example.com/y>1,z<2",
        "a in (), b=",
        "metadata.name=x",
        "spec.nodeName!=n,metadata.name==a\\,b\\=c\\\\d",
        "a in (b , , c)",
    ];
    let tokens = [
        "in", "notin", " in (", "(", ")", "!", "!=", "==", ">", "<", "\\,", "\\=", "\\\\", "a/b/c", "a,",
        ",,", "exists",
    ];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let text = input.text();
        if let Ok(selector) = LabelSelector::parse(&text) {
            let written = selector.to_string();
            let again = LabelSelector::parse(&written).map_err(|error| format!("{written}: {error}"))?;
            if again.to_string() != written {
                return Err(format!("{written} is written as {again}"));
            }
            let labels = json::parse(br#"{"a":"b","c":"d","x.example.com/y":"2","z":"1"}"#).unwrap();
            let labels = labels.as_map().unwrap();
            if again.matches(labels) != selector.matches(labels) {
                return Err(format!("{written} matches others"));
            }
        }
        if let Ok(selector) = FieldSelector::parse(&text) {
            let written = selector.to_string();
            let again = FieldSelector::parse(&written).map_err(|error| format!("{written}: {error}"))?;
            // Parsing sorts the terms by their text, and `==b` is written as `=b`: the order may differ.
            let sorted = |selector: &FieldSelector| {
                let mut texts: Vec<String> =
                    selector.requirements().iter().map(|requirement| format!("{requirement:?}")).collect();
                texts.sort();
                texts
            };
            if sorted(&again) != sorted(&selector) {
                return Err(format!("{written} has other requirements"));
            }
        }
        Ok(())
    });
}

#[test]
fn reading_label_selectors_of_objects_never_panics() {
    let seeds = [
        r#"{"matchLabels":{"a":"b"}}"#,
        r#"{"matchExpressions":[{"key":"a","operator":"In","values":["b","c"]},{"key":"d","operator":"Exists"}]}"#,
        "{}",
    ];
    let tokens = ["NotIn", "DoesNotExist", "Gt", "values", "operator", "[", "]", "{", "}", "\"a\":", "null,"];
    fuzz::run(&Corpus::new(seeds, &tokens).inputs(), |input| {
        let Ok(value) = json::parse(input) else { return Ok(()) };
        let _ = api::selector::format_label_selector(Some(&value));
        let _ = api::selector::validate_label_selector(&value, true, &value::Path::root());
        if let Ok(selector) = LabelSelector::from_label_selector(Some(&value)) {
            let _ = selector.matches_object(&value);
            let written = selector.to_string();
            if !selector.is_nothing() && LabelSelector::parse(&written).is_err() {
                return Err(format!("{} is written as {written}", write::to_string(&value)));
            }
        }
        Ok(())
    });
}
