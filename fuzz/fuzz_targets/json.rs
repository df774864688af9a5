//! Any bytes: the validator answers, says where it stopped, and does not change its mind about white space around.
#![no_main]

use kedge_json::{is_json, validate};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &[u8]| {
    let result = validate(text);
    assert_eq!(result.is_ok(), is_json(text));
    match result {
        Ok(()) => {
            assert!(std::str::from_utf8(text).is_ok());
            assert!(is_json(&[b" \n", text, b"\t\r"].concat()));
            let member = [b"[{\"a\":".as_slice(), text, b"}]"].concat();
            // The only thing that can be wrong with it one level further in is how deep it is.
            if let Err(error) = validate(&member) {
                assert_eq!(error.kind, kedge_json::JsonErrorKind::TooDeep);
            }
            assert!(!is_json(&[text, b",", text].concat()));
        }
        Err(error) => assert!(error.offset <= text.len()),
    }
});
