//! The report of a replay as a page of its own, with plots.

/// The page of a report, which is the JSON of a [`Report`](crate::replay::Report).
pub fn html(report_json: &str) -> String {
    // A text in a script ends at `</`, whatever the script says.
    let data = report_json.replace("</", "<\\/");
    format!(
        "<!doctype html><meta charset=\"utf-8\"><title>leapgate replay</title><script type=\"application/json\" id=\"report\">{data}</script>"
    )
}
