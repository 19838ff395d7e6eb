//! Deadlines: they count inside the team's own share, or are ignored and said to be.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_deadline_that_the_share_cannot_meet_is_accepted_ignored_and_said_to_be() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=4, eval quota=4
           0s   pause
           0s   submit due: 8 team=rlhf estimate=10h deadline=12h
           1s   submit short: 8 team=rlhf estimate=1h
           2s   deadline due
           3s   unpause",
        expect![[r#"
            2s   the deadline of job-1 is ignored: it needs 80.00 GPU-h, the share gives 48.00 GPU-h
            3s   launch job-2.1 on n0[0-7]
            3s   hold n0 for job-1, in 1h00m
        "#]],
    );
}

#[test]
fn a_deadline_sooner_than_the_job_is_long_is_ignored_however_wide_the_share() {
    check(
        "nodes: n[0-9] 8 H100
           0s   submit due: 1 estimate=10h deadline=2h
           1s   deadline due",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            1s   the deadline of job-1 is ignored: it needs 10.00 GPU-h, the share gives 160.00 GPU-h
        "#]],
    );
}

#[test]
fn deadlines_that_were_promised_before_count_against_the_share() {
    check(
        "nodes: n0 8 H100
           0s   submit a: 8 estimate=6h deadline=10h
           0s   submit b: 8 estimate=6h deadline=10h
           0s   submit c: 8 estimate=2h deadline=20h
           1s   deadline a
           1s   deadline b
           1s   deadline c",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   hold n0 for job-2, in 6h00m
            1s   the deadline of job-1 counts
            1s   the deadline of job-2 is ignored: it needs 96.00 GPU-h, the share gives 80.00 GPU-h
            1s   the deadline of job-3 counts
        "#]],
    );
}

#[test]
fn a_deadline_takes_nothing_from_another_team_beyond_the_own_share() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf, eval
           0s   pause
           0s   submit a: 8 team=rlhf estimate=1h deadline=20h
           1s   submit b: 8 team=rlhf estimate=1h deadline=20h
           2s   submit c: 8 team=eval estimate=9h
           3s   unpause
           4s   why b",
        expect![[r#"
            3s   launch job-1.1 on n0[0-7]
            3s   launch job-3.1 on n1[0-7]
            3s   hold n0 for job-2, in 1h00m
            4s   why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8 for about 59m59s, job-3 (standard) holds 8 for about 8h59m
        "#]],
    );
}

/// Deadlines are free to name: each is judged against the share of the team alone.
#[test]
fn a_team_that_names_false_deadlines_gains_nothing_from_others() {
    check(
        "nodes: n0 8 H100
         teams: liar, honest
           0s   pause
           0s   submit a: 4 team=liar estimate=1h deadline=1h
           0s   submit b: 4 team=liar estimate=1h deadline=65m
           0s   submit c: 4 team=liar estimate=1h deadline=70m
           0s   submit d: 4 team=honest estimate=9h
           1s   deadline a
           1s   deadline b
           1s   deadline c
           2s   unpause",
        expect![[r#"
            1s   the deadline of job-1 counts
            1s   the deadline of job-2 is ignored: it needs 8.00 GPU-h, the share gives 4.33 GPU-h
            1s   the deadline of job-3 is ignored: it needs 8.00 GPU-h, the share gives 4.66 GPU-h
            2s   launch job-1.1 on n0[0-3]
            2s   launch job-4.1 on n0[4-7]
            2s   hold n0 for job-2, in 1h00m
        "#]],
    );
}
