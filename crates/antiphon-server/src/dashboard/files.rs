//! The pages' files, as they lie in the binary. Builds for development read them from a directory instead, where one is named.

use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::api::problem::Fault;

/// Nothing is loaded from elsewhere, nothing inline is run, and nobody puts the page into a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
    base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A file by its name, kind and content.
macro_rules! files {
    ($($name:literal: $kind:literal,)*) => {
        [$(($name, $kind, include_str!(concat!("../../web/", $name)))),*]
    };
}

const FILES: &[(&str, &str, &str)] = &files![
    "index.html": "text/html; charset=utf-8",
    "app.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "main.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "format.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "act.js": "text/javascript; charset=utf-8",
    "now.js": "text/javascript; charset=utf-8",
    "cluster.js": "text/javascript; charset=utf-8",
    "queue.js": "text/javascript; charset=utf-8",
    "job.js": "text/javascript; charset=utf-8",
    "picture.js": "text/javascript; charset=utf-8",
    "teams.js": "text/javascript; charset=utf-8",
    "explain.js": "text/javascript; charset=utf-8",
];

/// The one page: which of the six is shown stands behind its `#`, which no server sees.
pub(crate) async fn index(headers: HeaderMap) -> Response {
    answer("index.html", &headers)
}

pub(crate) async fn file(Path(name): Path<String>, headers: HeaderMap) -> Response {
    answer(&name, &headers)
}

fn answer(name: &str, headers: &HeaderMap) -> Response {
    let Some((name, kind, content)) = FILES.iter().find(|(known, ..)| *known == name) else {
        let help = "see `/` for the dashboard and `/v1/openapi.json` for the API";
        return Fault::new(
            StatusCode::NOT_FOUND,
            "AP0504",
            "there is no such path",
            help,
        )
        .into_response();
    };
    let content = from_disk(name).unwrap_or_else(|| (*content).to_owned());
    let tag = format!("\"{}\"", &blake3::hash(content.as_bytes()).to_hex()[..16]);
    let known = headers.get(header::IF_NONE_MATCH);
    let mut response = if known.is_some_and(|known| known.as_bytes() == tag.as_bytes()) {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        content.into_response()
    };
    let headers = response.headers_mut();
    let fixed = |text| HeaderValue::from_static(text);
    headers.insert(header::CONTENT_TYPE, fixed(kind));
    headers.insert(header::CONTENT_SECURITY_POLICY, fixed(POLICY));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(header::REFERRER_POLICY, fixed("no-referrer"));
    // Asked for each time, and answered with "as you have it" until the binary changes.
    headers.insert(header::CACHE_CONTROL, fixed("no-cache"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    response
}

/// A page's file as it lies in a directory, so that pages are written without compiling. Never in a release.
#[cfg(debug_assertions)]
fn from_disk(name: &str) -> Option<String> {
    let dir = std::env::var_os("ANTIPHON_WEB_DIR")?;
    std::fs::read_to_string(std::path::Path::new(&dir).join(name)).ok()
}

#[cfg(not(debug_assertions))]
fn from_disk(_name: &str) -> Option<String> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_load_nothing_from_elsewhere_and_run_nothing_inline() {
        for (name, _, content) in FILES {
            for word in [
                "http://",
                "https://",
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                // The name of SVG's own namespace is no address.
                let content = content.replace("http://www.w3.org/2000/svg", "");
                assert!(!content.contains(word), "{name} has `{word}` in it");
            }
        }
        let (_, _, index) = FILES[0];
        for inline in ["<style", " style=", " onclick=", "<script>"] {
            assert!(!index.contains(inline), "index.html has `{inline}` in it");
        }
    }

    #[test]
    fn every_file_that_a_page_asks_for_is_in_the_binary() {
        let names: Vec<&str> = FILES.iter().map(|(name, ..)| *name).collect();
        for (name, _, content) in FILES {
            let imports = content.split("from \"./").skip(1);
            let links = content.split("=\"/web/").skip(1);
            for asked in imports.chain(links) {
                let asked = asked.split('"').next().unwrap();
                assert!(names.contains(&asked), "{name} asks for `{asked}`");
            }
        }
    }
}
