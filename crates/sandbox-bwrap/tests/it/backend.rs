//! The backend as callers have it: through the traits, on a real store.

use std::path::Path;
use std::sync::Arc;

use sandbox_bwrap::{BwrapBackend, Config};
use sandbox_core::{
    Backend, Command, CreateRequest, ErrorCode, Exit, Grade, Handle, Policy, Restriction,
    SpawnOptions, Standing, TemplateFile, TemplateFiles, TemplateId, TemplateKey, TemplateSource,
    WorkspacePath,
};
use tempfile::TempDir;

use sandbox_testkit::helper;

/// A backend with a state folder of its own.
pub(crate) struct Bench {
    pub(crate) backend: BwrapBackend,
    /// Removed with everything in it.
    _state: TempDir,
}

impl Bench {
    pub(crate) fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let backend = BwrapBackend::new(config(state.path())).unwrap();
        Self {
            backend,
            _state: state,
        }
    }

    pub(crate) async fn template(&self, files: &[(&str, &str)]) -> TemplateKey {
        let file = |(path, content): &(&str, &str)| {
            TemplateFile::file(WorkspacePath::parse(path).unwrap(), content.to_string())
        };
        let source =
            TemplateSource::Files(TemplateFiles::new(files.iter().map(file).collect()).unwrap());
        self.backend
            .prewarm(&TemplateId::new("test").unwrap(), source)
            .await
            .unwrap()
            .template_key
    }

    pub(crate) async fn session(&self) -> Arc<dyn Handle> {
        let template = self.template(&[("greeting", "hello\n")]).await;
        self.backend
            .create(CreateRequest::fresh(template))
            .await
            .unwrap()
    }
}

pub(crate) fn config(state: &Path) -> Config {
    let mut config = Config::new(state.join("state"));
    config.helper = Some(helper::path().to_owned());
    config
}

pub(crate) fn sh(script: &str) -> Command {
    Command::builder("/bin/sh")
        .args(["-c", script])
        .build()
        .unwrap()
}

// BAK-3, STO-4, SES-2: a whole session, from template to deletion.
#[tokio::test(flavor = "multi_thread")]
async fn bak_3_a_whole_session() {
    let bench = Bench::new();
    let handle = bench.session().await;
    let session = handle.session();
    let output = session
        .run(sh("cat greeting; echo more >> greeting; id -u; pwd"))
        .await
        .unwrap();
    assert_eq!(
        output.finished.exit,
        Exit::Exited(0),
        "{}",
        output.captured.stderr_lossy()
    );
    assert_eq!(output.captured.stdout, "hello\n1000\n/workspace\n");
    assert_eq!(
        session.read_text("greeting").await.unwrap(),
        "hello\nmore\n"
    );
    session.write_text("sub/new", "made").await.unwrap();
    let output = session.run(sh("cat sub/new; rm -r sub")).await.unwrap();
    assert_eq!(output.captured.stdout, "made");
    handle.delete().await.unwrap();
    assert!(bench.backend.store().list_sessions().unwrap().is_empty());
}

// CON-4: what the probe measures on this very host.
#[tokio::test(flavor = "multi_thread")]
async fn con_4_the_posture_is_measured() {
    let bench = Bench::new();
    let posture = bench.backend.posture().await.unwrap();
    for restriction in [
        Restriction::WriteContained,
        Restriction::ProcessContained,
        Restriction::SecretsHidden,
        Restriction::NetworkDenied,
    ] {
        assert_eq!(posture.standing(restriction), Standing::Ok, "{posture:?}");
    }
    assert_eq!(
        posture.standing(Restriction::ResourcesBounded),
        Standing::Missing
    );
    assert_eq!(posture.grade(), Grade::Partial);
}

// POL-1: what nothing enforces is refused, before anything is made.
#[tokio::test(flavor = "multi_thread")]
async fn pol_1_a_policy_that_nothing_enforces_is_unavailable() {
    let bench = Bench::new();
    let template = bench.template(&[]).await;
    let request = CreateRequest::fresh(template).policy(Policy::AllowAll);
    let error = bench.backend.create(request).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(error.to_string().contains("broker"), "{error}");
    assert!(bench.backend.store().list_sessions().unwrap().is_empty());
}

// STO-5, OWN-3: a dropped handle gives the session up, whoever still holds a part of it.
#[tokio::test(flavor = "multi_thread")]
async fn sto_5_a_session_does_not_outlive_its_handle() {
    let bench = Bench::new();
    let handle = bench.session().await;
    let saved = handle.capture_state().await.unwrap();
    let session = handle.session();
    let process = session
        .spawn(sh("sleep 25"), SpawnOptions::default())
        .await
        .unwrap();
    drop(handle);
    assert_eq!(process.wait().await.unwrap_err().code(), ErrorCode::Stopped);
    let again = loop {
        match bench
            .backend
            .create(CreateRequest::resume(saved.clone()))
            .await
        {
            Err(error) if error.code() == ErrorCode::Busy => tokio::task::yield_now().await,
            created => break created.unwrap(),
        }
    };
    again.delete().await.unwrap();
}
