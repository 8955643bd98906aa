//! Which crate may know which: the table of ARCHITECTURE.md, held against the real edges.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::Outcome;
use crate::program::{cargo, output};

/// Each crate of the workspace with those it may depend on.
const ALLOWED: [(&str, &[&str]); 10] = [
    ("sandbox-core", &[]),
    ("sandbox-helper", &[]),
    ("sandbox-broker", &["sandbox-core"]),
    ("sandbox-storage", &["sandbox-core"]),
    ("sandbox-coding", &["sandbox-core"]),
    ("sandbox-testkit", &["sandbox-core"]),
    (
        "sandbox-bwrap",
        &[
            "sandbox-core",
            "sandbox-broker",
            "sandbox-storage",
            "sandbox-helper",
        ],
    ),
    (
        "sandbox-cli",
        &[
            "sandbox-core",
            "sandbox-broker",
            "sandbox-bwrap",
            "sandbox-coding",
            "sandbox-helper",
            "sandbox-storage",
        ],
    ),
    ("unconfined-backend", &["sandbox-core"]),
    ("xtask", &[]),
];

/// What a crate must not know, however it would get there.
const NEVER: [(&str, &[&str]); 3] = [
    (
        "sandbox-core",
        &["tokio", "nix", "rustix", "libc", "tempfile"],
    ),
    ("sandbox-storage", &["tokio", "hyper", "reqwest"]),
    (
        "sandbox-helper",
        &["tokio", "serde_json", "serde", "tracing"],
    ),
];

/// Tests may use these beside what their crate may.
const FOR_TESTS: [&str; 1] = ["sandbox-testkit"];

/// Reads the edges from cargo and fails on one that the table lacks.
pub(crate) fn run() -> Outcome {
    let metadata = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps"]))?;
    let metadata: Value = serde_json::from_str(&metadata).map_err(|error| error.to_string())?;
    let wrong = violations(&metadata);
    if wrong.is_empty() {
        println!("layers: every edge is in the table");
        Ok(())
    } else {
        Err(format!(
            "edges that ARCHITECTURE.md does not allow:\n  {}",
            wrong.join("\n  ")
        ))
    }
}

fn violations(metadata: &Value) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let never: BTreeMap<&str, &[&str]> = NEVER.into_iter().collect();
    let packages = metadata["packages"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let ours: BTreeSet<&str> = packages
        .iter()
        .filter_map(|package| package["name"].as_str())
        .collect();
    let mut wrong = Vec::new();
    for package in packages {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            wrong.push(format!("{name} is not in the table"));
            continue;
        };
        for dependency in package["dependencies"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default()
        {
            let target = dependency["name"].as_str().unwrap_or_default();
            let for_tests = dependency["kind"].as_str() == Some("dev");
            if ours.contains(target)
                && !may.contains(&target)
                && !(for_tests && FOR_TESTS.contains(&target))
            {
                wrong.push(format!("{name} -> {target}"));
            }
            if !for_tests && never.get(name).is_some_and(|never| never.contains(&target)) {
                wrong.push(format!("{name} -> {target}, which it must never know"));
            }
        }
    }
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Value {
        let dependency =
            |(name, kind): &(&str, Option<&str>)| json!({ "name": name, "kind": kind });
        json!({ "name": name, "dependencies": dependencies.iter().map(dependency).collect::<Vec<_>>() })
    }

    #[test]
    fn an_edge_that_the_table_lacks_is_named() {
        let metadata = json!({ "packages": [
            package("sandbox-core", &[("tokio", None), ("serde", None)]),
            package("sandbox-storage", &[("sandbox-core", None), ("sandbox-testkit", Some("dev")), ("tokio", Some("dev"))]),
            package("sandbox-coding", &[("sandbox-bwrap", None)]),
            package("sandbox-bwrap", &[("sandbox-storage", None)]),
            package("sandbox-testkit", &[("sandbox-core", None)]),
            package("newcomer", &[]),
        ]});
        assert_eq!(
            violations(&metadata),
            [
                "sandbox-core -> tokio, which it must never know",
                "sandbox-coding -> sandbox-bwrap",
                "newcomer is not in the table",
            ]
        );
    }
}
