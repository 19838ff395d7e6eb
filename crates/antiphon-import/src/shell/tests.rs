//! Scripts and the commands that they come to.

use super::*;

fn commands(text: &str) -> Vec<String> {
    let script = parse(text);
    let show = |word: &Word| match word.literal {
        true => word.text.clone(),
        false => format!("?{}", word.text),
    };
    script
        .commands
        .iter()
        .map(|words| words.iter().map(show).collect::<Vec<_>>().join(" "))
        .collect()
}

#[test]
fn variables_arrays_and_sums_are_put_in() {
    let text = "#!/bin/bash\nGPUS=8\nNODES=4\nWORLD=$(($GPUS*$NODES))\nARGS=(\n  --tp 8   # within a node\n  --name \"a b\"\n)\ntorchrun --nnodes $NODES --world=${WORLD} \"${ARGS[@]}\" x.py\n";
    assert_eq!(
        commands(text),
        ["torchrun --nnodes 4 --world=32 --tp 8 --name a b x.py"]
    );
}

#[test]
fn a_variable_outside_quotes_falls_into_words_with_their_lines() {
    let script = parse("A=\" \\\n  --x 1 \\\n  --y 2\"\n\npython t.py $A\n");
    let lines: Vec<_> = script.commands[0]
        .iter()
        .map(|word| (word.text.as_str(), word.line))
        .collect();
    assert_eq!(
        lines,
        [
            ("python", 5),
            ("t.py", 5),
            ("--x", 2),
            ("1", 2),
            ("--y", 3),
            ("2", 3)
        ]
    );
}

#[test]
fn what_only_running_would_tell_is_marked() {
    let text =
        "python t.py --a $1 --b $(nproc) --c ${UNSET} --d ${UNSET:-7} --e $((UNSET+1)) --f `date`";
    assert_eq!(
        commands(text),
        ["python t.py --a ?${1} --b ?$(...) --c ?${UNSET} --d 7 --e ?$((UNSET+1)) --f ?`...`"]
    );
}

#[test]
fn comments_redirections_and_fed_texts_are_no_words() {
    let text = "cat <<EOF > ds.json\n{\"a\": 1}\nEOF\nX=1 python t.py \\\n  --a 1 > log.txt 2>&1 & # later\n";
    assert_eq!(commands(text), ["cat", "python t.py --a 1"]);
}

#[test]
fn batch_options_are_kept() {
    let script = parse("#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8 # all\nsrun x\n");
    let words: Vec<_> = script.batch.iter().map(|word| word.text.as_str()).collect();
    assert_eq!(words, ["--nodes=4", "--gpus-per-node=8"]);
}

#[test]
fn a_variable_that_doubles_line_by_line_ends() {
    let mut text = String::from("A=xxxxxxxx\n");
    for _ in 0..64 {
        text.push_str("A=$A$A\n");
    }
    text.push_str("run --a $A\n");
    assert!(commands(&text)[0].len() <= EXPANDED_MAX * 2);
}

#[test]
fn sums_have_values_or_none() {
    let of = |name: &str| (name == "N").then_some(6);
    assert_eq!(sum::value("2 * (N + 1) - 4 / 2", &of), Some(12));
    assert_eq!(sum::value("1 / 0", &of), None);
    assert_eq!(sum::value("M", &of), None);
    assert_eq!(sum::value(&"(".repeat(5000), &of), None);
}
