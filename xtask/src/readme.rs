//! The commands that README shows, run as they stand.
//!
//! A fenced block of `sh` that follows a line `<!-- tested -->` is run in a copy of a
//! sample project, with the program on `PATH`.

use std::fs;
use std::process::Command;

use crate::Outcome;
use crate::examples::{Installed, copied};
use crate::program::{run, workspace};

/// Runs every tested block.
pub(crate) fn run_all() -> Outcome {
    let readme = fs::read_to_string(workspace().join("README.md"))
        .map_err(|error| format!("README.md: {error}"))?;
    let blocks = tested_blocks(&readme);
    if blocks.is_empty() {
        return Err("README.md has no block that is marked `<!-- tested -->`".to_owned());
    }
    let installed = Installed::new()?;
    let place = tempfile::tempdir().map_err(|error| error.to_string())?;
    let project = copied("python-project", place.path())?;
    let path = std::env::var("PATH").unwrap_or_default();
    for block in blocks {
        println!("{block}");
        let mut shell = Command::new("sh");
        shell.args(["-eu", "-c", &block]).current_dir(&project);
        shell.env("PATH", format!("{}:{path}", installed.folder().display()));
        shell.env("SANDBOX_STATE_DIR", place.path().join("state"));
        run(&mut shell)?;
    }
    Ok(())
}

fn tested_blocks(text: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if line.trim() != "<!-- tested -->" {
            continue;
        }
        if lines.next().is_some_and(|line| line.trim() == "```sh") {
            let block: Vec<&str> = lines
                .by_ref()
                .take_while(|line| line.trim() != "```")
                .collect();
            blocks.push(block.join("\n"));
        }
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_marked_blocks_are_run() {
        let text = "a\n```sh\nno\n```\n<!-- tested -->\n```sh\none\ntwo\n```\n";
        assert_eq!(tested_blocks(text), ["one\ntwo"]);
    }
}
