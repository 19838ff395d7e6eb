//! What teams hold, get back, lend and are charged for, and that nobody gains by splitting or by lying.

use expect_test::expect;

use crate::world::check;

#[test]
fn a_team_borrows_what_the_others_leave_and_the_books_say_so() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf quota=8, eval quota=8
           0s   submit a: 16 team=rlhf
           1h   a exits 0
           1h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            1h00m settle job-1.1: succeeded
            1h00m rlhf holds 0, used 16.00 GPU-h, borrowed 8.00 GPU-h, lent 0 GPU-s
            1h00m eval holds 0, used 0 GPU-s, borrowed 0 GPU-s, lent 8.00 GPU-h
        "#]],
    );
}

/// A team that was set up at noon had lent its quota since 1970.
#[test]
fn a_quota_is_lent_from_the_moment_at_which_it_is_set_up() {
    check(
        "nodes: n[0-1] 8 H100
           10h  teams: rlhf quota=8, eval quota=8
           10h  submit a: 8 team=rlhf
           11h  submit b: 4 team=eval
           12h  a exits 0
           12h  books
           13h  teams: rlhf quota=8, eval quota=16
           14h  b exits 0
           14h  books",
        expect![[r#"
            10h00m launch job-1.1 on n0[0-7]
            11h00m launch job-2.1 on n1[0-3]
            12h00m settle job-1.1: succeeded
            12h00m rlhf holds 0, used 16.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            12h00m eval holds 4, used 4.00 GPU-h, borrowed 0 GPU-s, lent 12.00 GPU-h
            14h00m settle job-2.1: succeeded
            14h00m rlhf holds 0, used 16.00 GPU-h, borrowed 0 GPU-s, lent 16.00 GPU-h
            14h00m eval holds 0, used 12.00 GPU-h, borrowed 0 GPU-s, lent 28.00 GPU-h
        "#]],
    );
}

#[test]
fn a_quota_that_the_parts_of_a_team_use_is_not_lent() {
    check(
        "nodes: n[0-1] 8 H100
         teams: lab quota=8, rlhf parent=lab, eval parent=lab
           0s   submit a: 8 team=rlhf
           1h   submit b: 8 team=eval
           2h   a exits 0
           2h   b exits 0
           2h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1h00m launch job-2.1 on n1[0-7]
            2h00m settle job-1.1: succeeded
            2h00m settle job-2.1: succeeded
            2h00m lab holds 0, used 0 GPU-s, borrowed 8.00 GPU-h, lent 0 GPU-s
            2h00m rlhf holds 0, used 16.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            2h00m eval holds 0, used 8.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

#[test]
fn reclaim_takes_the_borrower_and_waits_for_its_grace() {
    check(
        "nodes: n[0-1] 8 H100 leaf=l0
         teams: rlhf quota=8, eval quota=8
           0s   submit a: 16 team=rlhf grace=30s stubborn
           60s  submit b: 8 team=eval
           61s  why b
           95s  why a",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            60s  SIGTERM job-1.1: for job-2 (reclaim of its team's quota), grace 30s
            60s  hold n1 for job-2, in 30s
            61s  why job-2: waiting for job-1 to save and give way, at the latest in 29s
            90s  SIGKILL job-1.1: its grace of 30s after SIGTERM is over
            90s  settle job-1.1: requeued
            90s  launch job-2.1 on n0[0-7]
            90s  hold n0 n1 for job-1, nobody knows when
            95s  why job-1: waiting for 16 GPUs: 8 free, best node n1 has 8 of 8; job-2 (standard) holds 8
        "#]],
    );
}

#[test]
fn what_a_team_holds_within_its_quota_is_never_reclaimed() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=8, eval quota=8
           0s   submit a: 8 team=rlhf
           60s  submit b: 8 team=eval
           3h   why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            60s  hold n0 for job-2, nobody knows when
            3h00m why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 8
        "#]],
    );
}

#[test]
fn nothing_is_reclaimed_for_what_goes_beyond_a_quota() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf quota=8, eval quota=4
           0s   submit a: 16 team=rlhf
           60s  submit b: 8 team=eval
           3h   why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            60s  hold n0 for job-2, nobody knows when
            3h00m why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 16
        "#]],
    );
}

#[test]
fn best_effort_reclaims_nothing() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf quota=8, eval quota=8
           0s   submit a: 16 team=rlhf
           60s  submit b: 8 team=eval best-effort
           61s  why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            60s  hold n0 for job-2, nobody knows when
            61s  why job-2: waiting for 8 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 16
        "#]],
    );
}

#[test]
fn a_team_never_holds_more_than_its_limit_nor_than_that_of_the_whole() {
    check(
        "nodes: n[0-3] 8 H100
         teams: lab limit=16, rlhf parent=lab limit=8, eval parent=lab
           0s   submit a: 8 team=rlhf
           1s   submit b: 1 team=rlhf
           2s   submit c: 8 team=eval
           3s   submit d: 1 team=eval
           4s   why b
           5s   why d
           6s   a exits 0
           7s   why d",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2s   launch job-3.1 on n1[0-7]
            4s   why job-2: team `rlhf` holds 8 of at most 8 GPUs: 1 more are over its limit
            5s   why job-4: team `lab` holds 16 of at most 16 GPUs: 1 more are over its limit
            6s   settle job-1.1: succeeded
            6s   launch job-2.1 on n0[0]
            6s   launch job-4.1 on n0[1]
            7s   why job-4: running
        "#]],
    );
}

#[test]
fn a_limit_of_one_type_leaves_the_others_free() {
    check(
        "nodes: n0 8 H100, n1 8 A100
         teams: rlhf limit=4xH100
           0s   submit a: 4 team=rlhf type=H100
           1s   submit b: 4 team=rlhf type=H100
           2s   submit c: 4 team=rlhf
           3s   why b",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            2s   launch job-3.1 on n1[0-3]
            3s   why job-2: team `rlhf` holds 4 of at most 4 H100: 4 more are over its limit
        "#]],
    );
}

#[test]
fn a_team_without_a_quota_counts_on_that_of_the_whole() {
    check(
        "nodes: n[0-1] 8 H100
         teams: lab quota=8, rlhf parent=lab, other
           0s   submit a: 16 team=other stubborn
           60s  submit b: 8 team=rlhf production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7] n1[0-7]
            60s  SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            60s  hold n1 for job-2, in 1m00s
        "#]],
    );
}

#[test]
fn a_quota_of_one_type_is_given_back_in_that_type() {
    check(
        "nodes: n0 8 H100, n1 8 A100
         teams: rlhf quota=8xA100, eval quota=8xH100
           0s   submit a: 8 team=rlhf type=H100
           1s   submit b: 8 team=rlhf type=A100
           60s  submit c: 8 team=eval type=H100",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7]
            60s  SIGTERM job-1.1: for job-3 (reclaim of its team's quota), grace 1m00s
            60s  hold n0 for job-3, in 1m00s
            60s  settle job-1.1: requeued
            60s  launch job-3.1 on n0[0-7]
            60s  hold n0 for job-1, nobody knows when
        "#]],
    );
}

#[test]
fn production_beyond_the_quota_runs_as_standard() {
    check(
        "nodes: n[0-1] 8 H100
         teams: rlhf quota=8, eval quota=8
           0s   submit a: 8 team=rlhf production
           1s   submit b: 8 team=rlhf production
           2s   state b
           60s  submit c: 8 team=eval production",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   launch job-2.1 on n1[0-7], as standard
            2s   job-2 is running, as standard
            60s  SIGTERM job-2.1: for job-3 (priority), grace 1m00s
            60s  hold n1 for job-3, in 1m00s
            60s  settle job-2.1: requeued
            60s  launch job-3.1 on n1[0-7]
        "#]],
    );
}

#[test]
fn two_teams_share_idle_gpus_by_weight() {
    check(
        "nodes: n0 8 H100
         teams: rlhf weight=3, eval
           0s   pause
           0s   submit a: 1 team=rlhf array=0-9
           0s   submit b: 1 team=eval array=0-9
           0s   unpause
           60s  books",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-2.1 on n0[1]
            0s   launch job-3.1 on n0[2]
            0s   launch job-11.1 on n0[3]
            0s   launch job-4.1 on n0[4]
            0s   launch job-5.1 on n0[5]
            0s   launch job-6.1 on n0[6]
            0s   launch job-12.1 on n0[7]
            0s   hold n0 for job-7, nobody knows when
            60s  rlhf holds 6, used 0.10 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            60s  eval holds 2, used 120 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

/// Shares are compared level by level: a team with many parts has one claim.
#[test]
fn a_team_gains_nothing_by_splitting_itself() {
    check(
        "nodes: n0 8 H100
         teams: lab, lab1 parent=lab, lab2 parent=lab, lab3 parent=lab, lab4 parent=lab, eval
           0s   pause
           0s   submit a: 1 team=lab1 array=0-9
           0s   submit b: 1 team=lab2 array=0-9
           0s   submit c: 1 team=lab3 array=0-9
           0s   submit d: 1 team=lab4 array=0-9
           0s   submit e: 1 team=eval array=0-9
           0s   unpause
           1s   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0]
            0s   launch job-41.1 on n0[1]
            0s   launch job-11.1 on n0[2]
            0s   launch job-42.1 on n0[3]
            0s   launch job-21.1 on n0[4]
            0s   launch job-31.1 on n0[5]
            0s   launch job-43.1 on n0[6]
            0s   launch job-44.1 on n0[7]
            0s   hold n0 for job-45, nobody knows when
            1s   lab holds 4, used 0 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
            1s   lab1 holds 1, used 1 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
            1s   lab2 holds 1, used 1 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
            1s   lab3 holds 1, used 1 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
            1s   lab4 holds 1, used 1 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
            1s   eval holds 4, used 4 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

#[test]
fn fifty_tiny_jobs_do_not_hold_off_one_big_job_of_another_team() {
    check(
        "nodes: n0 8 H100
         teams: many, one
           0s   submit before: 8 team=many runs=1h
           1s   submit tiny: 1 team=many array=0-49 runs=1h
           2s   submit big: 8 team=one runs=1h
           2h   state big
           5h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   hold n0 for job-52, nobody knows when
            1h00m settle job-1.1: succeeded
            1h00m launch job-52.1 on n0[0-7]
            1h00m hold n0 for job-2, nobody knows when
            2h00m job-52 is running
            2h00m settle job-52.1: succeeded
            2h00m launch job-2.1 on n0[0]
            2h00m launch job-3.1 on n0[1]
            2h00m launch job-4.1 on n0[2]
            2h00m launch job-5.1 on n0[3]
            2h00m launch job-6.1 on n0[4]
            2h00m launch job-7.1 on n0[5]
            2h00m launch job-8.1 on n0[6]
            2h00m launch job-9.1 on n0[7]
            2h00m hold n0 for job-10, nobody knows when
            3h00m settle job-2.1: succeeded
            3h00m launch job-10.1 on n0[0]
            3h00m hold n0 for job-11, nobody knows when
            3h00m settle job-3.1: succeeded
            3h00m launch job-11.1 on n0[1]
            3h00m hold n0 for job-12, nobody knows when
            3h00m settle job-4.1: succeeded
            3h00m launch job-12.1 on n0[2]
            3h00m hold n0 for job-13, nobody knows when
            3h00m settle job-5.1: succeeded
            3h00m launch job-13.1 on n0[3]
            3h00m hold n0 for job-14, nobody knows when
            3h00m settle job-6.1: succeeded
            3h00m launch job-14.1 on n0[4]
            3h00m hold n0 for job-15, nobody knows when
            3h00m settle job-7.1: succeeded
            3h00m launch job-15.1 on n0[5]
            3h00m hold n0 for job-16, nobody knows when
            3h00m settle job-8.1: succeeded
            3h00m launch job-16.1 on n0[6]
            3h00m hold n0 for job-17, nobody knows when
            3h00m settle job-9.1: succeeded
            3h00m launch job-17.1 on n0[7]
            3h00m hold n0 for job-18, nobody knows when
            4h00m settle job-10.1: succeeded
            4h00m launch job-18.1 on n0[0]
            4h00m hold n0 for job-19, nobody knows when
            4h00m settle job-11.1: succeeded
            4h00m launch job-19.1 on n0[1]
            4h00m hold n0 for job-20, nobody knows when
            4h00m settle job-12.1: succeeded
            4h00m launch job-20.1 on n0[2]
            4h00m hold n0 for job-21, nobody knows when
            4h00m settle job-13.1: succeeded
            4h00m launch job-21.1 on n0[3]
            4h00m hold n0 for job-22, nobody knows when
            4h00m settle job-14.1: succeeded
            4h00m launch job-22.1 on n0[4]
            4h00m hold n0 for job-23, nobody knows when
            4h00m settle job-15.1: succeeded
            4h00m launch job-23.1 on n0[5]
            4h00m hold n0 for job-24, nobody knows when
            4h00m settle job-16.1: succeeded
            4h00m launch job-24.1 on n0[6]
            4h00m hold n0 for job-25, nobody knows when
            4h00m settle job-17.1: succeeded
            4h00m launch job-25.1 on n0[7]
            4h00m hold n0 for job-26, nobody knows when
            5h00m many holds 8, used 32.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            5h00m one holds 0, used 8.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

#[test]
fn one_big_job_does_not_hold_off_fifty_tiny_ones_of_another_team() {
    check(
        "nodes: n0 8 H100
         teams: many, one
           0s   submit before: 8 team=one runs=1h
           1s   submit big: 8 team=one
           2s   submit tiny: 1 team=many array=0-49 at-once=8 runs=1h
           90m  books
           2h   state big",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            1s   hold n0 for job-2, nobody knows when
            2s   hold n0 for job-3, nobody knows when
            1h00m settle job-1.1: succeeded
            1h00m launch job-3.1 on n0[0]
            1h00m launch job-4.1 on n0[1]
            1h00m launch job-5.1 on n0[2]
            1h00m launch job-6.1 on n0[3]
            1h00m launch job-7.1 on n0[4]
            1h00m launch job-8.1 on n0[5]
            1h00m launch job-9.1 on n0[6]
            1h00m launch job-10.1 on n0[7]
            1h00m hold n0 for job-2, nobody knows when
            1h30m many holds 8, used 4.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            1h30m one holds 0, used 8.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            2h00m job-2 is pending
        "#]],
    );
}

#[test]
fn a_heavier_gpu_type_counts_for_more() {
    check(
        "nodes: n0 8 B200, n1 8 A100
         teams: rlhf, eval
         policy: gpu_weight_permille.B200=4000
           0s   submit a: 8 team=rlhf type=B200 runs=1h
           0s   submit b: 8 team=eval type=A100 runs=2h
           2h   pause
           2h   submit c: 8 team=rlhf type=A100
           2h   submit d: 8 team=eval type=A100
           3h   unpause",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            1h00m settle job-1.1: succeeded
            2h00m settle job-2.1: succeeded
            3h00m launch job-4.1 on n1[0-7]
            3h00m hold n1 for job-3, nobody knows when
        "#]],
    );
}

#[test]
fn the_victim_is_not_charged_for_what_it_lost() {
    check(
        "nodes: n0 8 H100
         teams: rlhf quota=8, eval quota=8
           0s   submit a: 8 team=rlhf best-effort
           1h   a saves 100
           2h   submit b: 8 team=eval production
           2h   past a
           2h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2h00m SIGTERM job-1.1: for job-2 (priority), grace 1m00s
            2h00m hold n0 for job-2, in 1m00s
            2h00m settle job-1.1: requeued
            2h00m launch job-2.1 on n0[0-7]
            2h00m hold n0 for job-1, nobody knows when
            2h00m job-1.1 ran on n0[0-7] as best-effort for 2h00m: for job-2 (priority), requeued, lost 8.00 GPU-h
            2h00m rlhf holds 0, used 8.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            2h00m eval holds 8, used 0 GPU-s, borrowed 0 GPU-s, lent 16.00 GPU-h
        "#]],
    );
}

#[test]
fn time_lost_to_hardware_is_not_charged() {
    check(
        "nodes: n0 8 H100
         teams: rlhf, eval
           0s   submit a: 8 team=rlhf attached
           1h   a saves 100
           2h   a fails hardware
           2h   past a
           2h   books
           3h   submit b: 8 team=eval
           4h   cancel a
           5h   b fails data
           5h   books",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            2h00m settle job-1.1: retry in 10s, hardware
            2h00m job-1.1 ran on n0[0-7] as standard for 2h00m: retry in 10s, hardware, lost 8.00 GPU-h
            2h00m rlhf holds 0, used 8.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            2h00m eval holds 0, used 0 GPU-s, borrowed 0 GPU-s, lent 0 GPU-s
            2h00m10s launch job-1.2 on n0[0-7]
            3h00m hold n0 for job-2, nobody knows when
            4h00m SIGTERM job-1.2: cancel, grace 1m00s
            4h00m settle job-1.2: canceled
            4h00m launch job-2.1 on n0[0-7]
            5h00m settle job-2.1: failed, data error
            5h00m rlhf holds 0, used 23.97 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
            5h00m eval holds 0, used 8.00 GPU-h, borrowed 0 GPU-s, lent 0 GPU-s
        "#]],
    );
}

/// The borrower's gangs are wider than what is asked for: for half an hour that keeps them, then the quota is given back.
#[test]
fn a_quota_is_given_back_though_the_borrowers_gangs_do_not_match_it() {
    check(
        "nodes: n0 8 H100
         teams: owner quota=5, borrower quota=1
           0s   submit gang: 4 team=borrower array=0-1
           60s  submit back: 5 team=owner
           61s  why back
           1h   state back",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n0[4-7]
            60s  hold n0 for job-3, nobody knows when
            61s  why job-3: waiting for 5 GPUs: 0 free, best node n0 has 0 of 8; job-1 (standard) holds 4, job-2 (standard) holds 4
            1860s SIGTERM job-1.1: for job-3 (reclaim of its team's quota), grace 1m00s
            1860s SIGTERM job-2.1: for job-3 (reclaim of its team's quota), grace 1m00s
            1860s hold n0 for job-3, in 1m00s
            1860s settle job-1.1: requeued
            1860s settle job-2.1: requeued
            1860s launch job-3.1 on n0[0-4]
            1860s hold n0 for job-1, nobody knows when
            1h00m job-3 is running
        "#]],
    );
}

/// Two jobs that a quota covers one at a time reclaim for the first alone.
#[test]
fn no_more_is_reclaimed_than_a_quota_covers_together() {
    check(
        "nodes: n[0-1] 8 H100
         teams: owner quota=8, borrower
           0s   submit gang: 8 team=borrower array=0-1 stubborn
           60s  submit first: 8 team=owner
           60s  submit second: 8 team=owner
           2m   state first
           2m   state second",
        expect![[r#"
            0s   launch job-1.1 on n0[0-7]
            0s   launch job-2.1 on n1[0-7]
            60s  SIGTERM job-1.1: for job-3 (reclaim of its team's quota), grace 1m00s
            60s  hold n0 for job-3, in 1m00s
            60s  hold n1 for job-4, nobody knows when
            120s job-3 is pending
            120s job-4 is pending
        "#]],
    );
}

/// Four GPUs stand free for a wide job of the owner's own team: a small one behind it takes nothing from others for what its
/// quota has already, and once its half hour is over it takes those.
#[test]
fn what_stands_free_for_the_owners_own_jobs_is_not_taken_from_others() {
    check(
        "nodes: n[0-3] 8 H100
         teams: owner quota=4, borrower
           0s   submit small: 4 team=owner
           0s   submit gang: 24 team=borrower
           0s   submit four: 4 team=borrower
           1s   submit wide: 16 team=owner
           2s   small exits 0
           3s   submit back: 4 team=owner
           4s   why back
           1h   state back",
        expect![[r#"
            0s   launch job-1.1 on n0[0-3]
            0s   launch job-2.1 on n1[0-7] n2[0-7] n3[0-7]
            0s   launch job-3.1 on n0[4-7]
            1s   hold n0 n1 for job-4, nobody knows when
            2s   settle job-1.1: succeeded
            3s   hold n2 for job-5, nobody knows when
            4s   why job-5: behind job-4 (standard), which waits for what this one would take
            1803s hold n0 for job-5, in 0s
            1803s launch job-5.1 on n0[0-3]
            1803s hold n0 n1 for job-4, nobody knows when
            1h00m job-5 is running
        "#]],
    );
}
