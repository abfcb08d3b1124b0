//! As much of HTTP/1.1 (RFC 9112) as it takes to hand out one page: a request, an answer, and the end of the connection.

use std::fmt::Write as _;

/// Where the page is.
const PATH: &str = "/metrics";
/// The text exposition format of Prometheus.
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parsed {
    /// The head of the request has not ended.
    Part,
    /// The page, or its header alone.
    Get { is_head: bool },
    /// Something that there is not.
    Refused(Status),
}

/// Why there is no page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    BadRequest,
    NotFound,
    MethodNotAllowed,
    Unavailable,
}

/// Looks at what has come of a request. Its headers say nothing that would change the answer, but have to be such.
pub(super) fn parse(bytes: &[u8]) -> Parsed {
    // A line may end without CR (RFC 9112, 2.2), as people write it by hand.
    let ends = [&b"\r\n\r\n"[..], b"\n\n"];
    let Some(end) = ends.iter().find_map(|end| bytes.windows(end.len()).position(|it| it == *end)) else {
        return Parsed::Part;
    };
    let Ok(head) = std::str::from_utf8(&bytes[..end]) else { return Parsed::Refused(Status::BadRequest) };
    let mut lines = head.lines();
    let words: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
    let &[method, target, version] = words.as_slice() else { return Parsed::Refused(Status::BadRequest) };
    let is_header = |line: &str| {
        let name = line.split_once(':').map(|(name, _)| name);
        name.is_some_and(|name| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_graphic()))
    };
    let is_request = matches!(version, "HTTP/1.0" | "HTTP/1.1")
        && !method.is_empty()
        && method.bytes().all(|byte| byte.is_ascii_uppercase())
        && target.starts_with('/')
        && lines.all(is_header);
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    match (is_request, path, method) {
        (false, ..) => Parsed::Refused(Status::BadRequest),
        (true, PATH, "GET" | "HEAD") => Parsed::Get { is_head: method == "HEAD" },
        (true, PATH, _) => Parsed::Refused(Status::MethodNotAllowed),
        (true, ..) => Parsed::Refused(Status::NotFound),
    }
}

/// The answer with this page.
pub(super) fn metrics(page: &str, is_head: bool) -> Vec<u8> {
    answer("200 OK", FORMAT, "", page, is_head)
}

impl Status {
    /// The answer that says so.
    pub(super) fn page(self) -> Vec<u8> {
        let (status, more, text) = match self {
            Self::BadRequest => ("400 Bad Request", "", "This is no request of HTTP/1.1.\n"),
            Self::NotFound => ("404 Not Found", "", "There is /metrics, and nothing else.\n"),
            Self::MethodNotAllowed => {
                ("405 Method Not Allowed", "Allow: GET, HEAD\r\n", "There is GET, and HEAD.\n")
            }
            Self::Unavailable => ("503 Service Unavailable", "", "The node could not tell.\n"),
        };
        answer(status, "text/plain; charset=utf-8", more, text, false)
    }
}

fn answer(status: &str, format: &str, more: &str, body: &str, is_head: bool) -> Vec<u8> {
    let mut text = String::with_capacity(body.len() + 256);
    let _ = write!(
        text,
        "HTTP/1.1 {status}\r\nContent-Type: {format}\r\nContent-Length: {}\r\n{more}Connection: close\r\n\r\n",
        body.len()
    );
    if !is_head {
        text.push_str(body);
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_page_is_there_by_get_and_head() {
        for (request, parsed) in [
            ("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: */*\r\n\r\n", Parsed::Get { is_head: false }),
            ("GET /metrics?x=1 HTTP/1.0\n\n", Parsed::Get { is_head: false }),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", Parsed::Get { is_head: true }),
            ("GET /metrics HTTP/1.1\r\nHost: a\r\n", Parsed::Part),
            ("", Parsed::Part),
            ("GET / HTTP/1.1\r\n\r\n", Parsed::Refused(Status::NotFound)),
            ("GET /metricsx HTTP/1.1\r\n\r\n", Parsed::Refused(Status::NotFound)),
            ("POST /metrics HTTP/1.1\r\n\r\nbody", Parsed::Refused(Status::MethodNotAllowed)),
            ("DELETE /else HTTP/1.1\r\n\r\n", Parsed::Refused(Status::NotFound)),
            ("GET /metrics\r\n\r\n", Parsed::Refused(Status::BadRequest)),
            ("GET /metrics HTTP/2\r\n\r\n", Parsed::Refused(Status::BadRequest)),
            ("get /metrics HTTP/1.1\r\n\r\n", Parsed::Refused(Status::BadRequest)),
            ("GET metrics HTTP/1.1\r\n\r\n", Parsed::Refused(Status::BadRequest)),
            ("GET /metrics HTTP/1.1\r\nno header\r\n\r\n", Parsed::Refused(Status::BadRequest)),
            ("\r\n\r\n", Parsed::Refused(Status::BadRequest)),
        ] {
            assert_eq!(parse(request.as_bytes()), parsed, "{request:?}");
        }
        assert_eq!(parse(b"GET /\xFF HTTP/1.1\r\n\r\n"), Parsed::Refused(Status::BadRequest));
    }

    proptest::proptest! {
        /// Bytes of anybody are refused or waited for, and what has been understood stays so whatever follows.
        #[test]
        fn no_bytes_end_it_and_none_that_follow_change_it(
            lines in proptest::collection::vec("[ -~\\r\\n]{0,20}|GET /metrics HTTP/1.1\\r?", 0..6),
            noise in proptest::collection::vec(proptest::num::u8::ANY, 0..40),
        ) {
            let text = lines.join("\n").into_bytes();
            let parsed = parse(&text);
            parse(&noise);
            if parsed != Parsed::Part && !text.windows(2).any(|it| it == b"\n\n") {
                let more = [&text[..], &noise].concat();
                proptest::prop_assert_eq!(parse(&more), parsed);
            }
        }
    }

    #[test]
    fn a_length_is_that_of_the_body_that_follows() {
        let text = String::from_utf8(metrics("aé\n", false)).unwrap();
        assert!(text.contains("Content-Length: 4\r\n") && text.ends_with("\r\n\r\naé\n"), "{text}");
        let head = String::from_utf8(metrics("aé\n", true)).unwrap();
        assert!(head.contains("Content-Length: 4\r\n") && head.ends_with("\r\n\r\n"), "{head}");
        let refusal = String::from_utf8(Status::MethodNotAllowed.page()).unwrap();
        assert!(refusal.starts_with("HTTP/1.1 405 ") && refusal.contains("Allow: GET"), "{refusal}");
    }
}
