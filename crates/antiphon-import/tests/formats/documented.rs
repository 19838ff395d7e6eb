//! The reference names every format, and every option that a reader asks for.

use std::fs;

use antiphon_import::Format;

#[test]
fn the_reference_names_every_option_that_is_read() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src");
    let page = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../docs/reference/plan-imports.md"
    );
    let page = fs::read_to_string(page).unwrap();
    for format in Format::ALL {
        assert!(page.contains(&format!("| `{format}` |")), "{format}");
    }
    // Names of programs and of what launchers have in several spellings stand in the text.
    let readers = [
        "accelerate",
        "axolotl",
        "deepspeed",
        "fsdp",
        "llama_factory",
        "megatron",
        "megatron/shape",
        "openrlhf",
        "script",
        "torchtune",
        "transformers",
        "trl",
        "verl",
    ];
    let getters = [
        "count",
        "flag",
        "on",
        "text",
        "words",
        "choice",
        "number",
        "permille",
        "value",
        "count_if_positive",
    ];
    let mut asked = 0;
    for reader in readers {
        let text = fs::read_to_string(format!("{source}/{reader}.rs")).unwrap();
        for getter in getters {
            for part in text.split(&format!(".{getter}(")).skip(1) {
                let name = part
                    .trim_start()
                    .trim_start_matches("&format!(")
                    .split('"')
                    .nth(1);
                let direct = part.trim_start().starts_with(['"', '&']);
                let Some(name) = name.filter(|_| direct) else {
                    continue;
                };
                // Of a name that is put together, the part behind the table.
                let name = name
                    .rsplit('}')
                    .next()
                    .unwrap()
                    .trim_start_matches(['.', '_']);
                asked += 1;
                // Options of one table stand behind its name.
                let last = name.rsplit('.').next().unwrap();
                let deep = name.matches('.').count() > 1;
                let ends = [
                    format!("`{name}`"),
                    format!(".{name}`"),
                    format!("_{name}`"),
                    format!("`{}`", if deep { last } else { name }),
                ];
                assert!(
                    name.is_empty() || ends.iter().any(|end| page.contains(end)),
                    "plan-imports.md does not name `{name}` of {reader}.rs"
                );
            }
        }
    }
    assert!(asked > 200, "the readers were not found: {asked} options");
}
