//! `--learned`: what measured attempts on a cluster have taught, asked of its server.

use antiphon_planner::Plan;
use antiphon_planner::calibrate::Calibration;
use antiphon_server::api::model::{LearnedView, LessonList, LessonView};

use crate::cli::Target;
use crate::client::Client;
use crate::failure::Failure;
use crate::render::{json, print, table};

/// The lessons of a server.
pub(super) fn lessons(target: &Target) -> Result<LessonList, Failure> {
    Client::new(target)?.get("/v1/lessons")
}

/// Prints them.
pub(super) fn show(lessons: &LessonList, as_json: bool) {
    if as_json {
        json(lessons);
        return;
    }
    if lessons.lessons.is_empty() {
        print("nothing is learned yet: no job with `[train]` has reported 30 steps\n");
        return;
    }
    let error =
        |before: f64, after: f64| format!("{:.1} % -> {:.1} %", 100.0 * before, 100.0 * after);
    let factor = |permille: u32| format!("{:.3}", f64::from(permille) / 1e3);
    let rows = lessons.lessons.iter().map(|lesson| {
        let factors = &lesson.factors;
        vec![
            lesson.gpu_type.clone(),
            lesson.framework.clone(),
            factors.attempts.to_string(),
            factor(factors.compute_permille),
            factor(factors.communication_permille),
            factor(factors.memory_permille),
            error(lesson.step_error_before, lesson.step_error_after),
            lesson
                .memory_error_before
                .zip(lesson.memory_error_after)
                .map_or_else(|| "not told".into(), |(before, after)| error(before, after)),
        ]
    });
    let header = [
        "GPU TYPE",
        "FRAMEWORK",
        "ATTEMPTS",
        "COMPUTE",
        "COMMUNICATION",
        "MEMORY",
        "STEP OFF BY",
        "MEMORY OFF BY",
    ];
    table(&header, rows.collect(), &["STEP OFF BY", "MEMORY OFF BY"]);
}

/// The factors for a GPU type and a framework; 1 where nothing was measured.
pub(super) fn factors(lessons: &LessonList, gpu: &str, framework: &str) -> Calibration {
    let same = |lesson: &&LessonView| lesson.gpu_type == gpu && lesson.framework == framework;
    let share = |permille: u32| f64::from(permille) / 1e3;
    lessons
        .lessons
        .iter()
        .find(same)
        .map_or_else(Calibration::default, |lesson| {
            let LearnedView {
                compute_permille,
                communication_permille,
                memory_permille,
                ..
            } = lesson.factors;
            Calibration {
                compute: share(compute_permille),
                communication: share(communication_permille),
                memory: share(memory_permille),
            }
        })
}

/// A plan with what was learned, and a sentence that says what that changed.
pub(super) fn applied(plan: Plan, lessons: &LessonList) -> (Plan, String) {
    let gpu = plan.machine.gpu.name.clone();
    let framework = plan.run.profile.framework.name();
    let attempts = lessons
        .lessons
        .iter()
        .find(|lesson| lesson.gpu_type == gpu && lesson.framework == framework)
        .map_or(0, |lesson| lesson.factors.attempts);
    if attempts == 0 {
        let told =
            format!("nothing was measured here on {gpu} with {framework}: by the formulas alone");
        return (plan, told);
    }
    const GIB: f64 = 1_073_741_824.0;
    let before = (plan.speed.step_ms, plan.memory.device);
    let plan = plan.learned(&factors(lessons, &gpu, framework));
    let told = format!(
        "{attempts} measured attempts on {gpu} with {framework}: a step {:.0} ms instead of {:.0}, {:.1} GiB instead of {:.1}",
        plan.speed.step_ms,
        before.0,
        plan.memory.device / GIB,
        before.1 / GIB,
    );
    (plan, told)
}
