//! What goes wrong in the fake when it is asked to.

use std::sync::Arc;
use std::time::Duration;

use sandbox_core::{
    Backend, CancelToken, Command, CreateRequest, Deadline, ErrorCode, Exit, Grade, Handle, Output,
    OutputStream, Policy, Result, Session, SpawnOptions, TemplateFiles, TemplateId, TemplateKey,
    TemplateSource, When, WorkspacePath,
};
use sandbox_testkit::contract::script;
use sandbox_testkit::fake::{FakeBackend, Fault, Program, Step};
use tokio::time::Instant;

/// The longest deadline that a command may have: 2³¹ − 1 ms.
const LONGEST: Duration = Duration::from_millis(2_147_483_647);

async fn template(backend: &FakeBackend) -> TemplateKey {
    let source = TemplateSource::Files(TemplateFiles::default());
    let id = TemplateId::new("empty").unwrap();
    backend.prewarm(&id, source).await.unwrap().template_key
}

async fn session(backend: &FakeBackend) -> (Arc<dyn Handle>, Arc<dyn Session>) {
    let request = CreateRequest::fresh(template(backend).await);
    let handle = backend.create(request).await.unwrap();
    let session = handle.session();
    (handle, session)
}

async fn run(session: &Arc<dyn Session>, script: &str, arguments: &[&str]) -> Result<Output> {
    session.run(script::command(script, arguments)).await
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> ErrorCode {
    result.unwrap_err().code()
}

// STO-6
#[tokio::test]
async fn sto_6_a_session_that_can_not_be_isolated_leaves_nothing() {
    let backend = FakeBackend::new();
    backend.inject(Fault::Create);
    let request = CreateRequest::fresh(template(&backend).await);
    assert_eq!(
        code(backend.create(request.clone()).await),
        ErrorCode::Unavailable
    );
    assert_eq!(backend.sessions(), []);
    assert_eq!(backend.waiting_faults(), 0);
    // A caller that goes away half-way leaves as little.
    tokio::select! {
        biased;
        handle = backend.create(request) => panic!("{handle:?}"),
        () = tokio::task::yield_now() => {}
    }
    assert_eq!(backend.sessions(), []);
}

// PROC-7: a failed set-up is an error, happens once and gives the place back.
#[tokio::test]
async fn proc_7_a_failed_set_up_starts_nothing() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    backend.inject(Fault::SetUp);
    assert_eq!(
        code(run(&session, script::TOUCH, &[]).await),
        ErrorCode::Unavailable
    );
    assert_eq!(code(session.stat("started").await), ErrorCode::NotFound);
    session
        .set_network_policy(Policy::DenyAll, When::Idle)
        .await
        .unwrap();
    run(&session, script::TOUCH, &[]).await.unwrap();
}

// PROC-3: what came before the cut is kept.
#[tokio::test]
async fn proc_3_a_cut_stream_keeps_what_came() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    backend.inject(Fault::CutOutput { after: 100_000 });
    let error = run(&session, script::ZEROS, &["99999", "2"])
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    let output = error.output().unwrap();
    assert_eq!((output.stdout.len(), output.stderr.len()), (99_999, 1));
}

// PROC-5: an end that is told late is waited for, with the place taken.
#[tokio::test(start_paused = true)]
async fn proc_5_a_late_end_is_waited_for() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    let late = Duration::from_secs(3600);
    backend.inject(Fault::LateExit(late));
    let process = session
        .spawn(script::command(script::TRUE, &[]), SpawnOptions::default())
        .await
        .unwrap();
    assert_eq!(process.next_output().await, None);
    let changed = session.set_network_policy(Policy::DenyAll, When::Idle);
    assert_eq!(code(changed.await), ErrorCode::Busy);
    let finished = process.wait().await.unwrap();
    assert_eq!(finished.exit, Exit::Exited(0));
    assert!(finished.wall >= late);
}

// PROC-3: a deadline of weeks holds to the millisecond when the clock jumps.
#[tokio::test(start_paused = true)]
async fn proc_3_a_clock_that_jumps_meets_the_deadline() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    let command = script::builder(script::SLEEP, &[])
        .deadline(Deadline::After(LONGEST))
        .build()
        .unwrap();
    let process = session
        .spawn(command, SpawnOptions::default())
        .await
        .unwrap();
    process.next_output().await.unwrap();
    let started = Instant::now();
    tokio::time::advance(LONGEST - Duration::from_secs(1)).await;
    let changed = session.set_network_policy(Policy::DenyAll, When::Idle);
    assert_eq!(code(changed.await), ErrorCode::Busy, "it runs still");
    assert_eq!(code(process.wait().await), ErrorCode::Limit);
    assert!(started.elapsed() >= LONGEST, "{:?}", started.elapsed());
}

// OWN-2: a session whose other side is gone fails at everything, and can still be stopped.
#[tokio::test]
async fn own_2_a_lost_session_fails_until_it_is_stopped() {
    let backend = FakeBackend::new();
    let (handle, session) = session(&backend).await;
    let process = session
        .spawn(script::command(script::SLEEP, &[]), SpawnOptions::default())
        .await
        .unwrap();
    backend.inject(Fault::LostSession);
    for _ in 0..2 {
        assert_eq!(code(session.stat(".").await), ErrorCode::Unavailable);
    }
    assert_eq!(code(process.wait().await), ErrorCode::Unavailable);
    let saved = handle.capture_state().await.unwrap();
    handle.stop().await.unwrap();
    assert_eq!(code(session.stat(".").await), ErrorCode::Stopped);
    let again = backend.create(CreateRequest::resume(saved)).await.unwrap();
    again.session().stat(".").await.unwrap();
}

// BAK-6: a policy that can't be enforced leaves the old one, and nothing prepared in between starts.
#[tokio::test]
async fn bak_6_a_refused_policy_leaves_the_old_one() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    let (_, before) = session.posture().await.unwrap();
    backend.inject(Fault::Policy);
    let changed = session.set_network_policy(Policy::AllowAll, When::Idle);
    assert_eq!(code(changed.await), ErrorCode::Unavailable);
    let (_, after) = session.posture().await.unwrap();
    assert!(after > before.next(), "{after} after {before}");
    run(&session, script::TRUE, &[]).await.unwrap();
}

// BAK-6: while a change is under way nothing starts and no other change begins; one that
// is given up half-way keeps it so until a policy is set again.
#[tokio::test]
async fn bak_6_nothing_starts_while_a_policy_changes() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    let hold = CancelToken::new();
    backend.inject(Fault::HeldPolicy(hold.clone()));
    let changing = tokio::spawn({
        let session = Arc::clone(&session);
        async move {
            session
                .set_network_policy(Policy::AllowAll, When::Idle)
                .await
        }
    });
    while backend.waiting_faults() > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(
        code(run(&session, script::TRUE, &[]).await),
        ErrorCode::Busy
    );
    let second = session.set_network_policy(Policy::DenyAll, When::Now);
    assert_eq!(code(second.await), ErrorCode::Busy);
    hold.cancel();
    changing.await.unwrap().unwrap();
    run(&session, script::TRUE, &[]).await.unwrap();

    backend.inject(Fault::HeldPolicy(CancelToken::new()));
    {
        let given_up = session.set_network_policy(Policy::DenyAll, When::Idle);
        tokio::pin!(given_up);
        while backend.waiting_faults() > 0 {
            tokio::select! {
                biased;
                changed = &mut given_up => panic!("{changed:?}"),
                () = tokio::task::yield_now() => {}
            }
        }
    }
    assert_eq!(
        code(run(&session, script::TRUE, &[]).await),
        ErrorCode::Busy
    );
    session
        .set_network_policy(Policy::DenyAll, When::Idle)
        .await
        .unwrap();
    run(&session, script::TRUE, &[]).await.unwrap();
}

// BAK-5, ERR-4: a stop that fails says so to everybody, and gives the lease up.
#[tokio::test]
async fn bak_5_a_failed_stop_still_gives_the_lease_up() {
    let backend = FakeBackend::new();
    let (handle, _) = session(&backend).await;
    let saved = handle.capture_state().await.unwrap();
    backend.inject(Fault::Stop);
    for _ in 0..2 {
        assert_eq!(code(handle.stop().await), ErrorCode::Unavailable);
    }
    backend.create(CreateRequest::resume(saved)).await.unwrap();
}

// A test's own program: its steps in order, its input, and its end.
#[tokio::test(start_paused = true)]
async fn programs_take_their_steps() {
    let backend = FakeBackend::new();
    let made = WorkspacePath::parse("target/made").unwrap();
    let program = Program::new(Exit::Signalled(6))
        .prints("compiling\n")
        .then(Step::Sleep(Duration::from_secs(5)))
        .then(Step::File(made, "binary".into()))
        .then(Step::Echo)
        .then(Step::Write(OutputStream::Stderr, "aborted\n".into()));
    backend.install("cargo", program);
    let (_handle, session) = session(&backend).await;
    let input = sandbox_core::Stdin::Bytes("typed\n".into());
    let output = session
        .run_with(
            Command::builder("cargo").arg("build").build().unwrap(),
            SpawnOptions::default().stdin(input),
        )
        .await
        .unwrap();
    assert_eq!(output.finished.exit, Exit::Signalled(6));
    assert_eq!(output.finished.wall, Duration::from_secs(5));
    assert_eq!(output.captured.stdout, "compiling\ntyped\n");
    assert_eq!(output.captured.stderr, "aborted\n");
    assert_eq!(session.read_text("target/made").await.unwrap(), "binary");

    backend.install("cargo", Program::new(Exit::Exited(0)).then(Step::Hang));
    let process = session
        .spawn(
            Command::builder("cargo").build().unwrap(),
            SpawnOptions::default(),
        )
        .await
        .unwrap();
    process.stop().await.unwrap();
    assert_eq!(process.wait().await.unwrap().exit, Exit::Signalled(9));
}

// A script that nobody knows is refused, not guessed at.
#[tokio::test]
async fn an_unknown_script_is_refused() {
    let backend = FakeBackend::new();
    let (_handle, session) = session(&backend).await;
    let error = run(&session, "rm -rf /", &[]).await.unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid);
    assert!(error.to_string().contains("rm -rf /"), "{error}");
}

// CON-4: a fake isolates nothing, unless a test says what it measures.
#[tokio::test]
async fn con_4_a_fake_isolates_nothing() {
    use sandbox_core::{Finding, Posture, Restriction, Standing};
    let backend = FakeBackend::new();
    assert_eq!(backend.posture().await.unwrap().grade(), Grade::None);
    let holds = |restriction| Finding {
        restriction,
        standing: Standing::Ok,
        evidence: "the test says so".to_owned(),
    };
    backend.measure(Posture::new(Restriction::ALL.map(holds).to_vec()));
    assert_eq!(backend.posture().await.unwrap().grade(), Grade::Full);
    let (_handle, session) = session(&backend).await;
    let (posture, _) = session.posture().await.unwrap();
    assert_eq!(posture.standing(Restriction::NetworkDenied), Standing::Ok);
}
