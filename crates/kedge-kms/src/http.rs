//! Requests over HTTP/1.1, one per connection. Replies are short.

use std::sync::Arc;
use std::time::Duration;

use httparse::Status;
use kedge_tls::rustls::ClientConfig;
use zeroize::Zeroizing;

use crate::net::Connection;
use crate::service::ServiceError;

/// Largest reply, in bytes.
const REPLY_BYTES_MAX: usize = 64 << 10;
const HEADERS_MAX: usize = 64;

/// A URL of HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    pub(crate) is_tls: bool,
    /// A name or an address, IPv6 without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// The path and the query; it begins with `/`.
    pub(crate) path: String,
}

impl Url {
    /// Reads a URL without a user and without a fragment.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let (is_tls, default_port) = match scheme {
            "https" => (true, 443),
            "http" => (false, 80),
            _ => return None,
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let is_odd = |c: char| c.is_whitespace() || c.is_control() || "@#?".contains(c);
        let is_blank = |c: char| c.is_whitespace() || c.is_control();
        if authority.contains(is_odd) || path.contains(is_blank) {
            return None;
        }
        let (host, port) = split_host(authority)?;
        Some(Self {
            is_tls,
            host: host.to_owned(),
            port: port.unwrap_or(default_port),
            path: path.to_owned(),
        })
    }

    /// Returns the URL of another path of the server.
    pub(crate) fn with_path(&self, path: &str) -> Self {
        Self {
            path: path.to_owned(),
            ..self.clone()
        }
    }

    /// Returns the value of the header `Host`.
    pub(crate) fn host_header(&self) -> String {
        let host = match self.host.contains(':') {
            true => format!("[{}]", self.host),
            false => self.host.clone(),
        };
        match (self.is_tls, self.port) {
            (true, 443) | (false, 80) => host,
            (_, port) => format!("{host}:{port}"),
        }
    }

    /// Returns whether requests stay on this machine.
    pub(crate) fn is_loopback(&self) -> bool {
        let address = self.host.parse::<std::net::IpAddr>();
        self.host == "localhost" || address.is_ok_and(|address| address.is_loopback())
    }
}

/// Splits `HOST`, `HOST:PORT` or `[ADDRESS]:PORT`.
pub(crate) fn split_host(text: &str) -> Option<(&str, Option<u16>)> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']')?;
            match rest {
                "" => (host, None),
                rest => (host, Some(rest.strip_prefix(':')?)),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (text, None),
        },
    };
    let port = port.map(str::parse).transpose().ok()?;
    (!host.is_empty()).then_some((host, port))
}

/// A request.
pub(crate) struct Request<'r> {
    pub(crate) method: &'r str,
    pub(crate) url: &'r Url,
    /// Headers but for `Host`, `Content-Length` and `Connection`. Values contain no line ends.
    pub(crate) headers: &'r [(&'r str, &'r str)],
    pub(crate) body: &'r [u8],
}

/// A reply.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) body: Zeroizing<Vec<u8>>,
}

impl Request<'_> {
    /// Sends the request and returns the reply, whatever its status is.
    pub(crate) fn send(
        &self,
        tls: Option<&Arc<ClientConfig>>,
        time_max: Duration,
    ) -> Result<Reply, ServiceError> {
        let url = self.url;
        let tls = tls.filter(|_| url.is_tls);
        let mut connection = Connection::open((&url.host, url.port), tls, time_max)?;
        connection.send(&self.head())?;
        connection.send(self.body)?;
        // With its capacity from the start, it leaves no copies of secrets.
        let mut bytes = Zeroizing::new(Vec::with_capacity(REPLY_BYTES_MAX));
        loop {
            let goes_on = connection.receive(&mut bytes, REPLY_BYTES_MAX)?;
            let reply = parse(&bytes, !goes_on)
                .map_err(|why| ServiceError::unavailable(format!("{}: {why}", url.host)))?;
            if let Some(reply) = reply {
                return Ok(reply);
            }
        }
    }

    fn head(&self) -> Zeroizing<Vec<u8>> {
        let mut head = Zeroizing::new(Vec::with_capacity(8 << 10));
        let url = self.url;
        let line = format!(
            "{} {} HTTP/1.1\r\nHost: {}\r\n",
            self.method,
            url.path,
            url.host_header()
        );
        head.extend_from_slice(line.as_bytes());
        for (name, value) in self.headers {
            for part in [*name, ": ", *value, "\r\n"] {
                head.extend_from_slice(part.as_bytes());
            }
        }
        let end = format!(
            "Content-Length: {}\r\nConnection: close\r\n\r\n",
            self.body.len()
        );
        head.extend_from_slice(end.as_bytes());
        head
    }
}

/// Reads a reply. Returns `None` if it is not complete.
fn parse(bytes: &[u8], is_end: bool) -> Result<Option<Reply>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    let parsed = response.parse(bytes).map_err(|_| "the reply is not HTTP")?;
    let Status::Complete(head_bytes) = parsed else {
        return match is_end {
            true => Err("the reply is cut off"),
            false => Ok(None),
        };
    };
    let code = response.code.unwrap_or_default();
    let rest = &bytes[head_bytes..];
    let header = |name: &str| {
        let found = response
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))?;
        std::str::from_utf8(found.value).ok()
    };
    let body = if header("transfer-encoding").is_some_and(|it| it.eq_ignore_ascii_case("chunked")) {
        unchunked(rest)?
    } else if let Some(length) = header("content-length") {
        let length: usize = length.trim().parse().map_err(|_| "a length is wrong")?;
        let body = rest.get(..length);
        body.map(|body| Zeroizing::new(body.to_vec()))
    } else {
        is_end.then(|| Zeroizing::new(rest.to_vec()))
    };
    match body {
        None if is_end => Err("the reply is cut off"),
        None => Ok(None),
        Some(body) => Ok(Some(Reply { code, body })),
    }
}

/// Joins the chunks of a body. Returns `None` without the last one.
fn unchunked(mut rest: &[u8]) -> Result<Option<Zeroizing<Vec<u8>>>, &'static str> {
    let mut body = Zeroizing::new(Vec::with_capacity(rest.len()));
    loop {
        let size = httparse::parse_chunk_size(rest).map_err(|_| "a chunk is wrong")?;
        let Status::Complete((head_bytes, chunk_bytes)) = size else {
            return Ok(None);
        };
        if chunk_bytes == 0 {
            return Ok(Some(body));
        }
        let chunk_bytes = usize::try_from(chunk_bytes).map_err(|_| "a chunk is wrong")?;
        let Some((chunk, after)) = rest[head_bytes..].split_at_checked(chunk_bytes) else {
            return Ok(None);
        };
        body.extend_from_slice(chunk);
        let Some(after) = after.get(2..) else {
            return Ok(None);
        };
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_read() {
        let url =
            |text: &str| Url::read(text).map(|url| (url.is_tls, url.host, url.port, url.path));
        let made = |is_tls, host: &str, port, path: &str| {
            Some((is_tls, host.to_owned(), port, path.to_owned()))
        };
        assert_eq!(url("https://a.org"), made(true, "a.org", 443, "/"));
        assert_eq!(url("http://[::1]:80/x?y"), made(false, "::1", 80, "/x?y"));
        assert_eq!(
            url("http://[fd00:ec2::23]/v1"),
            made(false, "fd00:ec2::23", 80, "/v1")
        );
        for wrong in [
            "a.org",
            "ftp://a.org",
            "https://u@a.org/",
            "https://",
            "https://a:x/",
            "https://a.org/ b",
        ] {
            assert_eq!(url(wrong), None, "{wrong}");
        }
        let host = |text: &str| Url::read(text).expect("a URL").host_header();
        assert_eq!(host("https://a.org:443/"), "a.org");
        assert_eq!(host("https://a.org:8443/"), "a.org:8443");
        assert_eq!(host("http://[::1]:81/"), "[::1]:81");
        assert!(
            Url::read("http://127.0.0.1:1/")
                .expect("a URL")
                .is_loopback()
        );
        assert!(
            !Url::read("http://127.0.0.1.example.org/")
                .expect("a URL")
                .is_loopback()
        );
    }

    #[test]
    fn replies_are_read_when_they_are_complete() {
        let body = |bytes: &[u8], is_end| {
            parse(bytes, is_end).map(|reply| reply.map(|reply| (reply.code, reply.body.to_vec())))
        };
        let with_length = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody";
        let chunked = b"HTTP/1.1 400 Bad\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n";
        assert_eq!(body(with_length, false), Ok(Some((200, b"body".to_vec()))));
        assert_eq!(body(chunked, false), Ok(Some((400, b"body".to_vec()))));
        for bytes in 0..with_length.len() {
            assert_eq!(body(&with_length[..bytes], false), Ok(None), "{bytes}");
            assert!(body(&with_length[..bytes], true).is_err(), "{bytes}");
        }
        for bytes in 0..chunked.len() - 4 {
            assert_eq!(body(&chunked[..bytes], false), Ok(None), "{bytes}");
        }
        let to_the_end = b"HTTP/1.0 200 OK\r\n\r\nbody";
        assert_eq!(body(to_the_end, false), Ok(None));
        assert_eq!(body(to_the_end, true), Ok(Some((200, b"body".to_vec()))));
        assert!(body(b"SSH-2.0\r\n\r\n", false).is_err());
    }
}
