//! The contract names every property once.

use std::collections::BTreeSet;

use sandbox_testkit::contract::script;

/// The list of the macro, as text.
macro_rules! listed {
    ({ } $($kind:ident: [$($property:ident,)*])*) => {
        fn lists() -> Vec<(&'static str, Vec<&'static str>)> {
            vec![$((stringify!($kind), vec![$(stringify!($property)),*]),)*]
        }
    };
}

sandbox_testkit::contract_properties!(listed,);

// A property that stands in no list proves nothing.
#[test]
fn every_property_is_a_test() {
    let sources = [
        include_str!("../../src/contract/files.rs"),
        include_str!("../../src/contract/commands.rs"),
        include_str!("../../src/contract/policy.rs"),
        include_str!("../../src/contract/lifecycle.rs"),
    ];
    assert_eq!(lists().len(), sources.len());
    for ((kind, listed), source) in lists().into_iter().zip(sources) {
        let written: Vec<&str> = source
            .split("\npub async fn ")
            .skip(1)
            .filter_map(|rest| Some(rest.split_once('(')?.0))
            .collect();
        assert_eq!(listed, written, "{kind}");
    }
}

#[test]
fn no_two_scripts_are_the_same() {
    let different: BTreeSet<&str> = script::ALL.into_iter().collect();
    assert_eq!(different.len(), script::ALL.len());
}
