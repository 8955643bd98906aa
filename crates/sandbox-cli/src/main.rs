//! The program `sandbox`: commands that nobody has to trust, in a private copy of a project.
//!
//! **Owns** what a person types and what an agent harness reads: arguments, exit codes,
//! JSON, words for people. **Never knows** how anything is confined.
#![forbid(unsafe_code)]

mod arguments;
mod config;
mod doctor;
mod drive;
mod duration;
mod exit;
mod folder;
mod gc;
mod ids;
mod output;
mod record;
mod run;
mod session;
mod show;
mod signals;
mod stdin;
mod summary;
mod template;
mod thread;

use std::process::ExitCode;

use clap::Parser;

use arguments::{Arguments, Command};
use output::Output;

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return exit::of_usage(&error),
    };
    let output = Output::new(arguments.json);
    output::log_to_stderr(arguments.verbose);
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => {
            output::tell(&format!("sandbox: no thread can be started: {error}\n"));
            return ExitCode::from(exit::OURS);
        }
    };
    let streams_events = arguments.streams_events();
    let outcome = runtime.block_on(dispatch(arguments, output));
    // A thread that waits for input that never comes must not hold the end up.
    runtime.shutdown_background();
    let error = match outcome {
        Ok(code) => return ExitCode::from(code),
        Err(error) => error,
    };
    if output.is_json() {
        let mut value = output::failure(&error);
        if streams_events {
            value["event"] = "result".into();
        }
        // A failure to say so adds nothing to the first one.
        let _ = output.event(&value);
    }
    output.error(&error);
    ExitCode::from(exit::of_ended(&Err(error), signals::first()))
}

async fn dispatch(arguments: Arguments, output: Output) -> sandbox_core::Result<u8> {
    let host = config::Host::new(&arguments.global)?;
    match arguments.command {
        Command::Run(run) => run::run(&host, run, output).await,
        Command::Session(command) => session::run(&host, command, output).await,
        Command::Template(command) => template::run(&host, command, output).await,
        Command::Gc => gc::run(&host, output).await,
        Command::Doctor => doctor::run(&host, output).await,
    }
}
