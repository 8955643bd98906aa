//! Tests that a host can't run, said by name and expected by name.
//!
//! A test that lacks an ability of the host appends `ability<TAB>test` to the file that
//! `SANDBOX_TESTS_SKIPS` names. Each ability must stand in `.ci/expected-missing`, and each
//! one there must really have been missed: a skip is no pass, and an old excuse no skip.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::program::workspace;

/// The variable that names the file.
pub(crate) const FILE: &str = "SANDBOX_TESTS_SKIPS";

/// Holds what was skipped against what is expected.
pub(crate) fn check(files: &[PathBuf]) -> Outcome {
    let mut skipped: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for file in files {
        for line in read(file)?.lines() {
            let (ability, test) = line.split_once('\t').unwrap_or((line, "?"));
            skipped
                .entry(ability.to_owned())
                .or_default()
                .insert(test.to_owned());
        }
    }
    for (ability, tests) in &skipped {
        let tests: Vec<&str> = tests.iter().map(String::as_str).collect();
        println!("skipped, {ability} is missing: {}", tests.join(", "));
    }
    let expected = read(&workspace().join(".ci/expected-missing"))?;
    compare(&skipped.into_keys().collect(), &expected)
}

fn compare(skipped: &BTreeSet<String>, expected: &str) -> Outcome {
    let expected: BTreeSet<String> = expected
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'))
        .map(|line| line.split('\t').next().unwrap_or_default().to_owned())
        .collect();
    if let Some(ability) = skipped.difference(&expected).next() {
        return Err(format!(
            "{ability} is missing and not in .ci/expected-missing: install it, or say there why not"
        ));
    }
    if let Some(ability) = expected.difference(skipped).next() {
        return Err(format!(
            "{ability} is in .ci/expected-missing and no test missed it: take it out"
        ));
    }
    Ok(())
}

fn read(path: &Path) -> Outcome<String> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skip_must_be_expected_and_an_expectation_must_be_met() {
        let skipped = |names: &[&str]| {
            names
                .iter()
                .map(|&name| name.to_owned())
                .collect::<BTreeSet<_>>()
        };
        compare(
            &skipped(&["cgroup-v2"]),
            "# why\ncgroup-v2\tno controllers are delegated\n",
        )
        .unwrap();
        assert!(
            compare(&skipped(&["apparmor"]), "")
                .unwrap_err()
                .contains("apparmor")
        );
        assert!(
            compare(&skipped(&[]), "apparmor\tnot built in\n")
                .unwrap_err()
                .contains("apparmor")
        );
    }
}
