//! The two text formats of metrics: the choice of a scraper, and the conversion from OpenMetrics to the older one.
//!
//! OpenMetrics names a family without the suffix of its samples (`kedge_commands`, sample `kedge_commands_total`), has the
//! type `info`, and ends with `# EOF`. The text format of Prometheus, version 0.0.4, names families like their samples,
//! and knows neither. Samples and help texts are the same in both.

use axum::http::{HeaderMap, header};

/// A text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MetricsFormat {
    OpenMetrics,
    Prometheus,
}

impl MetricsFormat {
    /// Returns the format that a request prefers by its `Accept` (RFC 9110, section 12.5.1): OpenMetrics, unless the
    /// other is named and preferred.
    pub(super) fn accepted(headers: &HeaderMap) -> Self {
        let values = headers.get_all(header::ACCEPT).iter();
        let text: Vec<&str> = values.filter_map(|value| value.to_str().ok()).collect();
        let text = text.join(",");
        let best = |wanted: fn(&MediaRange<'_>) -> bool| {
            let ranges = text.split(',').map(MediaRange::parse);
            let weights = ranges.filter(wanted).map(|range| range.weight);
            weights.max().unwrap_or(0)
        };
        let open_metrics = best(|range| range.kind == "application/openmetrics-text");
        let prometheus = best(|range| {
            let known = range.version.is_none_or(|version| version == "0.0.4");
            ["text/plain", "text/*"].contains(&range.kind.as_str()) && known
        });
        if prometheus > open_metrics {
            Self::Prometheus
        } else {
            Self::OpenMetrics
        }
    }

    pub(super) fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// One element of `Accept`: `text/plain;version=0.0.4;q=0.5`.
struct MediaRange<'a> {
    kind: String,
    version: Option<&'a str>,
    /// `q`, in thousandths.
    weight: u16,
}

impl<'a> MediaRange<'a> {
    fn parse(text: &'a str) -> Self {
        let mut parts = text.split(';').map(str::trim);
        let mut range = Self {
            kind: parts.next().unwrap_or_default().to_ascii_lowercase(),
            version: None,
            weight: 1_000,
        };
        for (name, value) in parts.filter_map(|part| part.split_once('=')) {
            let value = value.trim().trim_matches('"');
            match name.trim().to_ascii_lowercase().as_str() {
                "version" => range.version = Some(value),
                "q" => {
                    let weight = value.parse::<f64>().unwrap_or(0.0).clamp(0.0, 1.0);
                    range.weight = (weight * 1_000.0) as u16;
                }
                _ => {}
            }
        }
        range
    }
}

/// Converts OpenMetrics text to the text format of Prometheus.
pub(super) fn to_prometheus(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len() + (open_metrics.len() >> 5));
    // The help precedes the type, which determines the family's name.
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ').map(|(_, help)| help);
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (family, kind) = rest.split_once(' ').unwrap_or((rest, "untyped"));
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                "unknown" => ("", "untyped"),
                other => ("", other),
            };
            if let Some(help) = help.take() {
                text.push_str(&format!("# HELP {family}{suffix} {help}\n"));
            }
            text.push_str(&format!("# TYPE {family}{suffix} {kind}\n"));
        } else if !line.starts_with('#') {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    fn accepted(values: &[&str]) -> MetricsFormat {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(header::ACCEPT, HeaderValue::from_str(value).unwrap());
        }
        MetricsFormat::accepted(&headers)
    }

    #[test]
    fn scrapers_get_their_preferred_format() {
        let prometheus_2 = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;\
                            q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        let prometheus_3 = "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;\
                            version=0.0.4;q=0.3,*/*;q=0.2";
        for (values, expected) in [
            (&[][..], MetricsFormat::OpenMetrics),
            (&["*/*"], MetricsFormat::OpenMetrics),
            (&[prometheus_2], MetricsFormat::OpenMetrics),
            (&[prometheus_3], MetricsFormat::OpenMetrics),
            (
                &["text/html,application/xhtml+xml;q=0.9,*/*;q=0.8"],
                MetricsFormat::OpenMetrics,
            ),
            (&["text/plain; version=0.0.4"], MetricsFormat::Prometheus),
            (
                &["Text/Plain;Version=\"0.0.4\";Q=0.3"],
                MetricsFormat::Prometheus,
            ),
            (&["text/plain"], MetricsFormat::Prometheus),
            (&["text/*"], MetricsFormat::Prometheus),
            (
                &["application/openmetrics-text;q=0.2, text/plain;q=0.3"],
                MetricsFormat::Prometheus,
            ),
            (
                &["application/openmetrics-text;q=0.2", "text/plain;q=0.3"],
                MetricsFormat::Prometheus,
            ),
            (&["text/plain;q=0"], MetricsFormat::OpenMetrics),
            (&["text/plain;version=9.0.0"], MetricsFormat::OpenMetrics),
            (&["text/plain;q=x"], MetricsFormat::OpenMetrics),
            (&["\u{e9};;=,,"], MetricsFormat::OpenMetrics),
        ] {
            assert_eq!(accepted(values), expected, "{values:?}");
        }
    }

    #[test]
    fn prometheus_families_are_named_like_their_samples() {
        let open_metrics = "# HELP a Number.\n# TYPE a counter\n# UNIT a bytes\na_total 1\n\
                            # TYPE b info\nb_info{c=\"d # e\"} 1\n\
                            # HELP f Level\n# TYPE f gauge\nf 2.5\n\
                            # TYPE g histogram\ng_bucket{le=\"+Inf\"} 3\n\
                            # TYPE h unknown\nh 4\n# EOF\n";
        let prometheus = "# HELP a_total Number.\n# TYPE a_total counter\na_total 1\n\
                          # TYPE b_info gauge\nb_info{c=\"d # e\"} 1\n\
                          # HELP f Level\n# TYPE f gauge\nf 2.5\n\
                          # TYPE g histogram\ng_bucket{le=\"+Inf\"} 3\n\
                          # TYPE h untyped\nh 4\n";
        assert_eq!(to_prometheus(open_metrics), prometheus);
    }
}
