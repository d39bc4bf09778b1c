//! A page of HTML that any browser opens from a file, without other files.

/// The style, embedded so that a page can be copied on its own.
const STYLE: &str = "body{max-width:52em;margin:2em auto;padding:0 1em;font:16px/1.5 sans-serif;color:#222;background:#fff}\
code{font-family:monospace;background:#f3f3f3;padding:0 .2em}table{border-collapse:collapse}td,th{border:1px solid #bbb;\
padding:.2em .6em;text-align:left;vertical-align:top}a{color:#05c}";

/// An HTML page with that title; `body` is HTML.
pub fn document(title: &str, body: &str) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>{}</title>\n<style>{STYLE}</style>\n</head>\n\
         <body>\n{body}</body>\n</html>\n",
        escape(title)
    )
}

/// Escapes text for HTML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}
