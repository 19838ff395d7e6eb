//! Files of many architectures, and the counts that they come to.

use super::counted::COUNTED;
use super::*;

fn shape(text: &str) -> ModelShape {
    model_config(text, "config.json").unwrap().shape
}

fn error(text: &str) -> String {
    let error = model_config(text, "config.json").unwrap_err();
    format!("{} {error}", error.code())
}

#[test]
fn every_model_has_the_parameters_that_it_is_known_to_have() {
    let mut wrong = Vec::new();
    for (name, parameters, text) in COUNTED {
        let found = shape(text).parameters();
        if found != *parameters {
            wrong.push(format!("{name}: {found} and not {parameters}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(COUNTED.len(), 80);
}
