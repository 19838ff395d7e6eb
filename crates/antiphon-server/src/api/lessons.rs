//! What measured attempts have taught the planner, by GPU type and framework.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;

use super::Shared;
use super::model::{LessonList, LessonView};
use super::plans::learned_view;
use crate::lessons::Site;

/// What attempts on this cluster have taught the planner.
#[utoipa::path(get, path = "/v1/lessons", responses((status = 200, body = LessonList)))]
pub(crate) async fn list(State(shared): State<Arc<Shared>>) -> Json<LessonList> {
    let site = Site::of(&shared.view.state());
    let lessons = site.lessons.all().map(|(gpu_type, framework, lesson)| {
        let (step_error_before, step_error_after) = lesson.step_error;
        LessonView {
            gpu_type: gpu_type.to_owned(),
            framework: framework.name().to_owned(),
            factors: learned_view(&lesson.learned()),
            step_error_before,
            step_error_after,
            memory_error_before: lesson.memory_error.map(|(before, _)| before),
            memory_error_after: lesson.memory_error.map(|(_, after)| after),
        }
    });
    Json(LessonList {
        lessons: lessons.collect(),
    })
}
