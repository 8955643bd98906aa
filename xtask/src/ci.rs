//! The whole contract, in one command.

use std::time::{Duration, Instant};

use crate::Outcome;
use crate::program::{cargo, run};
use crate::suites::{self, Tally};
use crate::{examples, fresh, layers, readme, setup};

/// Runs every check; `full` adds what takes long.
pub(crate) fn check(full: bool) -> Outcome {
    let mut report = Report::default();
    let outcome = steps(full, &mut report);
    report.print();
    // The last line is for whoever counts.
    println!(
        "{} passed, {} failed",
        report.tally.passed,
        report.tally.failed.max(u64::from(outcome.is_err()))
    );
    outcome
}

fn steps(full: bool, report: &mut Report) -> Outcome {
    report.step("set-up", setup::run_all)?;
    report.step("format", || run(&mut cargo(&["fmt", "--all", "--check"])))?;
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
    })?;
    report.step("layers", layers::run)?;
    let compiled = report.step("compile tests and helper", suites::compile)?;
    let tally = report.step("tests", || compiled.run())?;
    report.tally.add(tally);
    let tally = report.step("doc tests", || counted(&["test", "--workspace", "--doc"]))?;
    report.tally.add(tally);
    report.step("docs", || {
        run(cargo(&[
            "doc",
            "--quiet",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ])
        .env("RUSTDOCFLAGS", "--deny warnings"))
    })?;
    report.step("licences, bans, sources", || {
        let deny = setup::deny()?;
        run(std::process::Command::new(deny)
            .args(["--workspace", "check", "licenses", "bans", "sources"])
            .current_dir(crate::program::workspace()))
    })?;
    report.step("sample projects", examples::run_all)?;
    report.step("README", readme::run_all)?;
    if full {
        report.step("fresh clone", fresh::run_all)?;
    }
    Ok(())
}

fn counted(arguments: &[&str]) -> Outcome<Tally> {
    match suites::tee(&mut cargo(arguments))? {
        (tally, true) => Ok(tally),
        (tally, false) => Err(format!("{} tests failed", tally.failed.max(1))),
    }
}

/// What was run, how it came out and how long it took.
#[derive(Default)]
struct Report {
    steps: Vec<(&'static str, bool, Duration)>,
    tally: Tally,
}

impl Report {
    fn step<T>(&mut self, name: &'static str, work: impl FnOnce() -> Outcome<T>) -> Outcome<T> {
        println!("\n==== {name}");
        let started = Instant::now();
        let outcome = work();
        let took = started.elapsed();
        println!(
            "==== {name}: {} in {:.1} s",
            if outcome.is_ok() { "ok" } else { "FAILED" },
            took.as_secs_f64()
        );
        self.steps.push((name, outcome.is_ok(), took));
        outcome
    }

    fn print(&self) {
        println!();
        for (name, ok, took) in &self.steps {
            println!(
                "{:28} {:6} {:7.1} s",
                name,
                if *ok { "ok" } else { "FAILED" },
                took.as_secs_f64()
            );
        }
    }
}
