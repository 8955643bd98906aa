//! The whole contract, in one command.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::program::{cargo, run, workspace};
use crate::suites::{self, Suites};
use crate::tally::Tally;
use crate::{examples, fresh, layers, readme, setup};

/// Runs every check; `full` adds what takes long.
pub(crate) fn check(full: bool) -> Outcome {
    let mut report = Report::default();
    steps(full, &mut report);
    report.print();
    let failed = report.failed();
    // The last line is for whoever counts: a step that fails without a test counts as one.
    println!(
        "{} passed, {} failed",
        report.tally.passed,
        report.tally.failed.max(failed.len() as u64)
    );
    if failed.is_empty() {
        Ok(())
    } else {
        Err(format!("failed: {}", failed.join(", ")))
    }
}

/// Every step but those that stand on a failed one, so that one run shows all that is wrong.
fn steps(full: bool, report: &mut Report) {
    if report.step("set-up", setup::run_all).is_none() {
        return;
    }
    report.step("format", format);
    report.step("lints", || {
        run(&mut cargo(&[
            "clippy",
            "--quiet",
            "--workspace",
            "--all-targets",
            "--",
            "--deny",
            "warnings",
        ]))
    });
    report.step("layers", layers::run);
    report.step("licences, bans, sources", licences);
    report.step("docs", || {
        run(cargo(&[
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "--deny warnings"))
    });
    let Some(suites) = report.step("compile", suites::compile) else {
        return;
    };
    report.tests("tests", |tally| suites.first(tally));
    report.tests("tests again", |tally| suites.again(tally));
    report.step("abilities", || suites.check_skips());
    report.tests("doc tests", Suites::doc_tests);
    report.tests("examples", examples::run_all);
    report.step("README", readme::run_all);
    if full {
        report.step("fresh clone", fresh::run_all);
    }
}

/// The sample crate is no member of the workspace, so cargo does not look at it.
fn format() -> Outcome {
    run(&mut cargo(&["fmt", "--all", "--check"]))?;
    run(&mut cargo(&[
        "fmt",
        "--check",
        "--manifest-path",
        "examples/rust-project/Cargo.toml",
    ]))
}

fn licences() -> Outcome {
    let deny = setup::deny()?;
    run(std::process::Command::new(deny)
        .args(["--workspace", "check", "licenses", "bans", "sources"])
        .current_dir(workspace()))
}

/// What was run, how it came out and how long it took.
#[derive(Default)]
struct Report {
    steps: Vec<(&'static str, bool, Duration)>,
    tally: Tally,
}

impl Report {
    /// Runs a step; none where it failed.
    fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Outcome<T>) -> Option<T> {
        println!("\n==== {name}");
        let started = Instant::now();
        let outcome = work();
        let took = started.elapsed();
        let word = word(outcome.is_ok());
        println!("==== {name}: {word} in {:.1} s", took.as_secs_f64());
        self.steps.push((name, outcome.is_ok(), took));
        outcome.map_err(|why| println!("==== {name}: {why}")).ok()
    }

    /// Runs a step whose tests are counted, those of a failed one too.
    fn tests(&mut self, name: &'static str, work: impl FnOnce(&mut Tally) -> Outcome) {
        let mut tally = Tally::default();
        self.step(name, || work(&mut tally));
        self.tally.add(tally);
    }

    fn failed(&self) -> Vec<&'static str> {
        let failed = self.steps.iter().filter(|(_, ok, _)| !ok);
        failed.map(|(name, ..)| *name).collect()
    }

    fn print(&self) {
        println!();
        for (name, ok, took) in &self.steps {
            println!("{name:28} {:6} {:7.1} s", word(*ok), took.as_secs_f64());
        }
        let whole: Duration = self.steps.iter().map(|(_, _, took)| *took).sum();
        println!("{:28} {:6} {:7.1} s", "altogether", "", whole.as_secs_f64());
    }
}

fn word(ok: bool) -> &'static str {
    if ok { "ok" } else { "FAILED" }
}
