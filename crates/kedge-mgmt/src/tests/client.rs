//! A client that writes and reads HTTP/1.1 by hand, so that the tests see what is on the wire.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::Value;

/// Far above what any reply takes; a test that meets it has failed.
const DEADLINE: Duration = Duration::from_secs(20);

#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: String,
}

impl Reply {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name)?;
        Some(&found.1)
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub(super) fn is(&self, status: u16, body: &str) {
        assert_eq!((self.status, self.body.as_str()), (status, body));
    }
}

pub(super) struct Client {
    stream: BufReader<TcpStream>,
    authorization: String,
}

impl Client {
    pub(super) fn connect(address: SocketAddr, login: Option<(&str, &str)>) -> Self {
        Self::over(TcpStream::connect(address).unwrap(), login)
    }

    pub(super) fn over(stream: TcpStream, login: Option<(&str, &str)>) -> Self {
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.set_write_timeout(Some(DEADLINE)).unwrap();
        let authorization = login.map(|(user, password)| {
            let encoded = STANDARD.encode(format!("{user}:{password}"));
            format!("Authorization: Basic {encoded}\r\n")
        });
        Self {
            stream: BufReader::new(stream),
            authorization: authorization.unwrap_or_default(),
        }
    }

    pub(super) fn request(&mut self, method: &str, path: &str, body: &str) -> Reply {
        self.head(method, path, &format!("Content-Length: {}\r\n", body.len()));
        self.send(body.as_bytes());
        self.reply()
    }

    /// Sends a request without its body.
    pub(super) fn head(&mut self, method: &str, path: &str, headers: &str) {
        let authorization = &self.authorization;
        let head =
            format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\n{authorization}{headers}\r\n");
        self.send(head.as_bytes());
    }

    /// Sends a request line and headers as they are, with the login.
    pub(super) fn raw_head(&mut self, head: &str) {
        let authorization = &self.authorization;
        let head = format!("{head}{authorization}\r\n");
        self.send(head.as_bytes());
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.get_mut().write_all(bytes).unwrap();
    }

    pub(super) fn reply(&mut self) -> Reply {
        let (status, headers) = self.reply_head();
        let mut reply = Reply {
            status,
            headers,
            body: String::new(),
        };
        let length: usize = reply
            .header("content-length")
            .expect("a length")
            .parse()
            .unwrap();
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body).unwrap();
        reply.body = String::from_utf8(body).unwrap();
        reply
    }

    /// Reads the status line and the headers; names come in lower case.
    pub(super) fn reply_head(&mut self) -> (u16, Vec<(String, String)>) {
        let status = self.line();
        let code = status
            .split(' ')
            .nth(1)
            .unwrap_or_else(|| panic!("{status:?}"));
        let mut headers = Vec::new();
        loop {
            let line = self.line();
            let Some((name, value)) = line.split_once(':') else {
                return (code.parse().unwrap(), headers);
            };
            headers.push((name.to_lowercase(), value.trim().to_owned()));
        }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Reads one chunk of a body without a length; `None` at its end.
    pub(super) fn chunk(&mut self) -> Option<Vec<u8>> {
        let size = usize::from_str_radix(&self.line(), 16).unwrap();
        let mut bytes = vec![0; size];
        self.stream.read_exact(&mut bytes).unwrap();
        assert_eq!(self.line(), "");
        (size > 0).then_some(bytes)
    }

    /// Reads everything until the server closes the connection.
    pub(super) fn rest(&mut self) -> String {
        let mut rest = String::new();
        self.stream.read_to_string(&mut rest).unwrap();
        rest
    }
}
