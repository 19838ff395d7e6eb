//! The frame that all reports share: the head with the style, the title, and what holds of all below.

use std::fmt::Write as _;

use crate::escape::{download, text};

/// A whole page: its title, what it is about by name, and a body that is markup already.
#[must_use]
pub fn page(title: &str, about: &[(&str, String)], body: &str) -> String {
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{}{}</style>\n</head>\n\
         <body>\n<main>\n<h1>{title}</h1>\n<dl class=\"about\">",
        include_str!("chart.css"),
        include_str!("page.css"),
        title = text(title),
    );
    for (name, value) in about {
        let (name, value) = (text(name), text(value));
        let _ = write!(out, "<div><dt>{name}</dt><dd>{value}</dd></div>");
    }
    out += "</dl>\n";
    out += body;
    out += "</main>\n</body>\n</html>\n";
    out
}

/// A chart with its values as a file to download.
#[must_use]
pub fn figure(svg: &str, file: &str, csv: &str) -> String {
    format!(
        "<figure>{svg}<figcaption>{}</figcaption></figure>\n",
        download("CSV", &format!("{file}.csv"), csv)
    )
}
