//! The document: an order of a shop, without white space, as SDKs write it.

use kedge_bench_common::random::Random;
use serde_json::{Value, json};

/// The least length of the document in bytes; it is less than one line of the order longer.
pub const DOCUMENT_BYTES: usize = 10_000;
/// Paths to a string at the start, in the middle and at the end of the document, and the same as JSON Pointers.
pub const PLACES: [(&str, &str, &str); 3] = [
    ("first", "number", "/number"),
    ("middle", "lines[20].product.name", "/lines/20/product/name"),
    ("last", "shipping.carrier", "/shipping/carrier"),
];

/// Returns the text of the document, the same each time.
#[must_use]
pub fn document() -> Vec<u8> {
    let mut random = Random::new(7);
    let mut lines = Vec::new();
    loop {
        let text = with_lines(&lines).to_string();
        if text.len() >= DOCUMENT_BYTES {
            return text.into_bytes();
        }
        lines.push(line(&mut random));
    }
}

fn with_lines(lines: &[Value]) -> Value {
    json!({
        "number": "2024-000317",
        "version": 3,
        "customer": {
            "id": 41_873,
            "name": "Zo\u{eb} Nieuwenhuis-O'Brien",
            "addresses": [
                {"kind": "billing", "street": "14 Canal Street", "city": "Amsterdam", "postcode": "1015 CJ"},
                {"kind": "delivery", "street": "Unit 7, \"The Old Mill\"", "city": "Leeds", "postcode": "LS1 4AP"},
            ],
            "newsletter": true,
            "phone": null,
        },
        "lines": lines,
        "tags": ["priority", "gift", "insured"],
        "total": {"net": 1523.75, "tax": 319.99, "currency": "EUR"},
        "shipping": {"parcels": 2, "carrier": "Northern Freight"},
    })
}

fn line(random: &mut Random) -> Value {
    const WORDS: [&str; 8] = [
        "oak", "brass", "linen", "folding", "garden", "reading", "travel", "kitchen",
    ];
    const THINGS: [&str; 6] = ["lamp", "chair", "kettle", "table", "blanket", "clock"];
    let mut word = || WORDS[random.below(8) as usize];
    let name = format!("{} {} {}", word(), word(), THINGS[random.below(6) as usize]);
    json!({
        "product": {"id": random.below(1_000_000), "name": name, "colours": ["white", "grey"]},
        "quantity": 1 + random.below(9),
        "price": random.below(100_000) as f64 / 100.0,
        "note": "Leave it with the neighbours at number 16 if nobody opens the door, and ring twice.",
        "returned": false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn document_has_the_given_length() {
        let text = document();
        assert!((DOCUMENT_BYTES..DOCUMENT_BYTES + 300).contains(&text.len()));
        assert_eq!(text, document());
        assert!(kedge_json::is_json(&text));
    }
}
