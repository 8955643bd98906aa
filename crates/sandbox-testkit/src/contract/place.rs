//! A session of a test's own, and how long a test waits.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use sandbox_core::{
    Backend, ByteStream, CreateRequest, ErrorCode, Exit, Handle, Output, OutputStream, Process,
    Result, SandboxError, Session, SessionLimits, SpawnOptions, TemplateFile, TemplateFiles,
    TemplateId, TemplateKey, TemplateSource, WorkspacePath,
};

use super::script;

/// How long anything may take before it counts as hanging.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a condition that only time brings about is left alone between two looks.
const LOOK_AGAIN: Duration = Duration::from_millis(2);

/// Waits for what must come.
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    match tokio::time::timeout(PATIENCE, future).await {
        Ok(value) => value,
        Err(_) => panic!("{what} hangs"),
    }
}

/// Repeats what is refused as busy until it is not.
pub(super) async fn once_free<T, F: Future<Output = Result<T>>>(
    what: &str,
    attempt: impl Fn() -> F,
) -> Result<T> {
    within(what, async {
        loop {
            match attempt().await {
                Err(error) if error.code() == ErrorCode::Busy => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                other => return other,
            }
        }
    })
    .await
}

/// The code of a refusal.
#[track_caller]
pub(super) fn code<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    match result {
        Ok(value) => panic!("not refused: {value:?}"),
        Err(error) => error.code(),
    }
}

pub(super) fn path(written: &str) -> WorkspacePath {
    WorkspacePath::parse(written).unwrap()
}

/// What the template of every test holds, beside what a test adds.
pub(super) fn small_tree() -> Vec<TemplateFile> {
    vec![
        TemplateFile::file(path("greeting"), "hello"),
        TemplateFile::executable(path("sub/run"), format!("#!/bin/sh\n{}", script::RAN)),
        TemplateFile::file(path("sub/here"), "there"),
        TemplateFile::directory(path("empty")),
        TemplateFile::symlink(path("inner"), "sub/here"),
    ]
}

/// Makes a template.
pub(super) async fn template(backend: &dyn Backend, files: Vec<TemplateFile>) -> TemplateKey {
    let source = TemplateSource::Files(TemplateFiles::new(files).unwrap());
    let id = TemplateId::new("contract").unwrap();
    backend.prewarm(&id, source).await.unwrap().template_key
}

/// A fresh session.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) handle: Arc<dyn Handle>,
    pub(super) session: Arc<dyn Session>,
}

impl Place {
    pub(super) async fn new(backend: &dyn Backend) -> Self {
        Self::with(backend, SessionLimits::default()).await
    }

    pub(super) async fn with(backend: &dyn Backend, limits: SessionLimits) -> Self {
        let template = template(backend, small_tree()).await;
        let request = CreateRequest::fresh(template).limits(limits);
        Self::of(backend.create(request).await.unwrap())
    }

    /// One that runs at most this many commands.
    pub(super) async fn running(backend: &dyn Backend, max_concurrent_commands: usize) -> Self {
        let limits = SessionLimits {
            max_concurrent_commands,
            ..SessionLimits::default()
        };
        Self::with(backend, limits).await
    }

    pub(super) fn of(handle: Arc<dyn Handle>) -> Self {
        let session = handle.session();
        Self { handle, session }
    }

    /// Runs a script to its end.
    pub(super) async fn run(&self, script: &str, arguments: &[&str]) -> Result<Output> {
        self.run_with(script::command(script, arguments), SpawnOptions::default())
            .await
    }

    pub(super) async fn run_with(
        &self,
        command: sandbox_core::Command,
        options: SpawnOptions,
    ) -> Result<Output> {
        within("a command", self.session.run_with(command, options)).await
    }

    /// Runs a script that must succeed, and gives what it wrote to standard output.
    pub(super) async fn text(&self, script: &str, arguments: &[&str]) -> Bytes {
        let output = self.run(script, arguments).await.unwrap();
        assert_eq!(
            output.finished.exit,
            Exit::Exited(0),
            "{script}: {}",
            output.captured.stderr_lossy()
        );
        output.captured.stdout
    }

    /// Starts a script.
    pub(super) async fn spawn(&self, script: &str) -> Result<Box<dyn Process>> {
        self.spawn_with(script, SpawnOptions::default()).await
    }

    pub(super) async fn spawn_with(
        &self,
        script: &str,
        options: SpawnOptions,
    ) -> Result<Box<dyn Process>> {
        self.session
            .spawn(script::command(script, &[]), options)
            .await
    }

    /// Starts a script that says `begun`, and waits for the word.
    pub(super) async fn begun(&self, script: &str) -> Box<dyn Process> {
        self.begun_with(script, SpawnOptions::default()).await
    }

    pub(super) async fn begun_with(&self, script: &str, options: SpawnOptions) -> Box<dyn Process> {
        let process = self.spawn_with(script, options).await.unwrap();
        let word = next(&*process, b"begun".len()).await;
        assert_eq!(word, "begun", "{script}");
        process
    }

    /// Whether something stands at a path.
    pub(super) async fn is_there(&self, path: &str) -> bool {
        match self.session.stat(path).await {
            Ok(_) => true,
            Err(error) if error.code() == ErrorCode::NotFound => false,
            Err(error) => panic!("{path}: {error}"),
        }
    }

    pub(super) async fn delete(self) {
        within("a delete", self.handle.delete()).await.unwrap();
    }
}

/// The next bytes of standard output, at least so many.
pub(super) async fn next(process: &dyn Process, length: usize) -> Bytes {
    let mut read = Vec::new();
    while read.len() < length {
        let chunk = within("output", process.next_output())
            .await
            .expect("output ended too early");
        assert_eq!(chunk.stream, OutputStream::Stdout);
        assert!(!chunk.bytes.is_empty(), "an empty chunk");
        read.extend_from_slice(&chunk.bytes);
    }
    read.into()
}

/// A stream of these pieces.
pub(super) fn stream_of(pieces: Vec<Result<Bytes, SandboxError>>) -> ByteStream {
    Box::pin(Pieces(pieces.into_iter()))
}

struct Pieces(std::vec::IntoIter<Result<Bytes>>);

impl futures_core::Stream for Pieces {
    type Item = Result<Bytes>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        std::task::Poll::Ready(self.0.next())
    }
}

/// All that a stream brings, or its error.
pub(super) async fn drained(mut stream: ByteStream) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    let mut next =
        async || std::future::poll_fn(|context| stream.as_mut().poll_next(context)).await;
    while let Some(piece) = within("a stream", next()).await {
        all.extend_from_slice(&piece?);
    }
    Ok(all)
}
