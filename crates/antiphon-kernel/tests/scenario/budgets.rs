//! The GPU-time that a team may use in a week, and what becomes of its jobs when it has.

use expect_test::expect;

use crate::world::check;

#[test]
fn over_its_weekly_budget_new_jobs_of_a_team_are_best_effort_and_nothing_is_killed() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf budget=16 quota=8, eval quota=8
           0s   submit a: 8 team=rlhf
           3h   submit b: 8 team=rlhf production
           3h   state a
           3h   state b
           3h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3h00m launch job-2.1 on n1[0-7], as best-effort
            3h00m job-1 is running
            3h00m job-2 is running, as best-effort
            3h00m rlhf holds 16, used 24.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            3h00m eval holds 0, used 0 GPU-s, borrowed 0 GPU-s, lent 24.00 GPU-h
        "#]],
    );
}

#[test]
fn a_job_that_waits_is_told_of_the_budget_and_of_the_next_free_date() {
    check(
        "nodes: n0 8 H100
         teams: rlhf budget=16, eval
           0s   submit a: 8 team=rlhf runs=3h
           3h   submit x: 8 team=eval
           4h   submit b: 8 team=rlhf
           4h   reasons b
           169h reasons b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3h00m hold n0 for job-2, nobody knows when
            3h00m settle job-1.1: succeeded
            3h00m launch job-2.1 on n0[0-7]
            4h00m why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8
            4h00m and: team `rlhf` has used 24.00 GPU-h of 16.00 GPU-h in seven days: its jobs count as best-effort for 6d21h more
            169h00m why job-3: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-2 (standard) holds 8
        "#]],
    );
}

#[test]
fn a_run_over_its_budget_keeps_its_class_until_its_next_checkpoint() {
    check(
        "nodes: n0 8 H100
         teams: rlhf budget=16, eval
           0s   submit a: 8 team=rlhf attached
           1h   a saves 100
           3h   submit b: 8 team=eval
           3h   why b
           4h   a saves 300
           4h   state a
           5h   past a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3h00m hold n0 for job-2, nobody knows when
            3h00m why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8
            4h00m direct job-1 #1: yield (for job-2 (priority))
            4h00m yield job-1.1: for job-2 (priority), at most 8s for its checkpoint
            4h00m hold n0 for job-2, in 1m08s
            4h00m settle job-1.1: requeued
            4h00m launch job-2.1 on n0[0-7]
            4h00m job-1 is pending
            5h00m job-1.1 ran on n0[0-7] as best-effort for 4h00m: for job-2 (priority), requeued, lost 0 GPU-s
        "#]],
    );
}

#[test]
fn production_over_its_budget_gives_way_to_standard_once_it_has_saved() {
    check(
        "nodes: n0 8 H100
         teams: rlhf budget=16 quota=8, eval
           0s   submit a: 8 team=rlhf attached production
           3h   submit b: 8 team=eval standard
           4h   a saves 300
           4h   state a
           4h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3h00m hold n0 for job-2, nobody knows when
            4h00m direct job-1 #1: yield (for job-2 (priority))
            4h00m yield job-1.1: for job-2 (priority), at most 8s for its checkpoint
            4h00m hold n0 for job-2, in 1m08s
            4h00m settle job-1.1: requeued
            4h00m launch job-2.1 on n0[0-7]
            4h00m job-1 is pending
            4h00m rlhf holds 0, used 32.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            4h00m eval holds 8, used 0 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

#[test]
fn a_budget_of_one_type_bounds_that_type_alone() {
    check(
        "nodes: n0 8 H100, n[1-2] 8 A100
         teams: rlhf budget=8xA100 budget=8xH100
           0s   submit a: 8 team=rlhf type=A100
           2h   submit b: 8 team=rlhf type=A100
           2h   submit c: 8 team=rlhf type=H100 runs=1h
           4h   submit d: 8 team=rlhf type=H100",
        expect![[r#"
            0s   launch job-1.1 on n1[0-7]
            2h00m launch job-2.1 on n2[0-7], as best-effort
            2h00m launch job-3.1 on n0[0-7]
            3h00m settle job-3.1: succeeded
            4h00m launch job-4.1 on n0[0-7], as best-effort
        "#]],
    );
}

#[test]
fn a_budget_counts_what_the_parts_of_a_team_use() {
    check(
        "nodes: n[0-1] 8 H100
         teams: lab budget=16, rlhf parent=lab, eval parent=lab
           0s   submit a: 8 team=rlhf runs=3h
           4h   submit b: 8 team=eval",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            3h00m settle job-1.1: succeeded
            4h00m launch job-2.1 on n0[0-7], as best-effort
        "#]],
    );
}
