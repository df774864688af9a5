//! Any bytes as a client certificate, and any rules: a user name is never empty, too long, or has control characters.
#![no_main]

use kedge_tls::{CertificateInfo, ClientDemand, NameRule, NameRules, NameSource, user_name};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (&str, &str, &[u8])| {
    let (prefix, delimiter, der) = input;
    let _ = CertificateInfo::parse(der);
    let _ = NameRules::parse(prefix);
    let _ = ClientDemand::parse(der);
    let rule = |path| NameRule {
        path,
        prefix: prefix.to_owned(),
        delimiter: delimiter.to_owned(),
    };
    let rules = [
        NameSource::SubjectCn,
        NameSource::SanUri,
        NameSource::SanDns,
        NameSource::SanEmail,
    ];
    let rules = NameRules::new(rules.map(rule).to_vec()).expect("there are four");
    if let Ok(user) = user_name(der, &rules) {
        assert!(!user.is_empty() && user.len() <= 128);
        assert!(
            !user
                .chars()
                .any(|c| c.is_control() || delimiter.contains(c))
        );
    }
});
