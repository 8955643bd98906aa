//! Templates, sessions and their owners.

use std::sync::Arc;

use sandbox_core::{
    Backend, BackendName, CreateRequest, ErrorCode, Handle, Policy, SavedState, SessionId,
    SessionLimits, SpawnOptions, TemplateFile, TemplateFiles, TemplateId, TemplateKey,
    TemplateSource, When, WriteOptions,
};

use super::place::{Place, code, once_free, path, small_tree, stream_of, template, within};
use super::script;

async fn prewarm(
    backend: &dyn Backend,
    id: &str,
    files: Vec<TemplateFile>,
) -> sandbox_core::Prewarmed {
    let source = TemplateSource::Files(TemplateFiles::new(files).unwrap());
    backend
        .prewarm(&TemplateId::new(id).unwrap(), source)
        .await
        .unwrap()
}

/// STO-1: the same files have the same key, in whatever order they come.
pub async fn sto_1_the_same_files_have_the_same_key(backend: &dyn Backend) {
    let first = prewarm(backend, "one", small_tree()).await;
    let mut reversed = small_tree();
    reversed.reverse();
    let second = prewarm(backend, "one", reversed).await;
    assert_eq!(second.template_key, first.template_key);
    assert!(second.reused, "it was there already");
    // An empty folder that files imply is no difference; nor is its being named.
    let mut named = small_tree();
    named.push(TemplateFile::directory(path("sub")));
    assert_eq!(
        prewarm(backend, "one", named).await.template_key,
        first.template_key
    );
}

/// STO-1: every difference is another key.
pub async fn sto_1_every_difference_is_another_key(backend: &dyn Backend) {
    let one = |file| vec![file];
    let trees = [
        one(TemplateFile::file(path("a"), "x")),
        one(TemplateFile::file(path("a"), "y")),
        one(TemplateFile::file(path("b"), "x")),
        one(TemplateFile::executable(path("a"), "x")),
        one(TemplateFile::symlink(path("a"), "x")),
        one(TemplateFile::directory(path("a"))),
        Vec::new(),
    ];
    let mut keys = Vec::new();
    for tree in trees {
        keys.push(prewarm(backend, "one", tree).await.template_key);
    }
    let other_id = one(TemplateFile::file(path("a"), "x"));
    keys.push(prewarm(backend, "two", other_id).await.template_key);
    let all = keys.len();
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), all);
}

/// STO-3: two that make the same template at once both succeed.
pub async fn sto_3_two_prewarms_at_once_both_succeed(backend: &dyn Backend) {
    let (one, other) = tokio::join!(
        prewarm(backend, "race", small_tree()),
        prewarm(backend, "race", small_tree())
    );
    assert_eq!(one.template_key, other.template_key);
    let place = Place::of(
        backend
            .create(CreateRequest::fresh(one.template_key))
            .await
            .unwrap(),
    );
    assert_eq!(place.session.read_text("greeting").await.unwrap(), "hello");
    place.delete().await;
}

/// STO-4, STO-9: each session has a copy of its own.
pub async fn sto_4_fresh_sessions_are_private_copies(backend: &dyn Backend) {
    let (one, other) = (Place::new(backend).await, Place::new(backend).await);
    assert_ne!(one.session.id(), other.session.id());
    one.session.write_text("greeting", "mine").await.unwrap();
    one.session.remove("sub").await.unwrap();
    one.text(script::CHMOD, &["600", "greeting"]).await;
    let third = Place::new(backend).await;
    for untouched in [&other, &third] {
        let session = &untouched.session;
        assert_eq!(session.read_text("greeting").await.unwrap(), "hello");
        assert_eq!(session.stat("greeting").await.unwrap().mode, 0o644);
        assert_eq!(session.read_text("sub/here").await.unwrap(), "there");
    }
    for place in [one, other, third] {
        place.delete().await;
    }
}

/// STO-4: who comes back finds what was there.
pub async fn sto_4_a_reconnect_sees_the_files(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    place.session.write_text("kept", "mine").await.unwrap();
    place.text(script::TOUCH, &[]).await;
    let saved = place.handle.capture_state().await.unwrap();
    assert_eq!(saved.session_id, place.session.id());
    assert_eq!(&saved.backend, backend.name());
    within("a stop", place.handle.stop()).await.unwrap();

    let again = backend
        .create(CreateRequest::resume(saved.clone()))
        .await
        .unwrap();
    let again = Place::of(again);
    assert_eq!(again.session.id(), saved.session_id);
    assert_eq!(again.session.read_text("kept").await.unwrap(), "mine");
    assert_eq!(again.text(script::ECHO, &["on"]).await, "on");
    assert!(again.is_there("started").await);
    assert_eq!(again.handle.capture_state().await.unwrap(), saved);
    again.delete().await;
}

/// STO-4, STO-6: a saved state that does not match changes nothing.
pub async fn sto_4_a_mismatch_changes_nothing(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    place.session.write_text("kept", "mine").await.unwrap();
    let saved = place.handle.capture_state().await.unwrap();
    within("a stop", place.handle.stop()).await.unwrap();
    let other_template = template(backend, Vec::new()).await;

    let other_backend = SavedState {
        backend: BackendName::new("another").unwrap(),
        ..saved.clone()
    };
    let other_key = SavedState {
        template_key: other_template,
        ..saved.clone()
    };
    let mut asked_for_another = CreateRequest::resume(saved.clone());
    asked_for_another.template = other_template;
    for request in [
        CreateRequest::resume(other_backend),
        CreateRequest::resume(other_key),
        asked_for_another,
    ] {
        let refused = backend.create(request).await;
        assert_eq!(code(refused), ErrorCode::StateMismatch);
    }
    let again = backend.create(CreateRequest::resume(saved)).await.unwrap();
    let again = Place::of(again);
    assert_eq!(again.session.read_text("kept").await.unwrap(), "mine");
    again.delete().await;
}

/// STO-4: neither an unknown template nor an unknown session is made up.
pub async fn sto_4_what_is_unknown_is_not_found(backend: &dyn Backend) {
    let unknown = TemplateKey::from_bytes([0x5a; 32]);
    let refused = backend.create(CreateRequest::fresh(unknown)).await;
    assert_eq!(code(refused), ErrorCode::NotFound);
    let saved = SavedState {
        backend: backend.name().clone(),
        session_id: SessionId::from_bytes([0x5a; 32]),
        template_key: template(backend, small_tree()).await,
    };
    let refused = backend.create(CreateRequest::resume(saved)).await;
    assert_eq!(code(refused), ErrorCode::NotFound);
}

/// STO-5: a session has one owner; the next comes when it is given up.
pub async fn sto_5_a_second_owner_is_busy(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    let attempt = || backend.create(CreateRequest::resume(saved.clone()));
    for _ in 0..2 {
        assert_eq!(code(attempt().await), ErrorCode::Busy);
    }
    // The refused owner has disturbed nothing.
    place.text(script::TOUCH, &[]).await;
    within("a stop", place.handle.stop()).await.unwrap();
    let next = Place::of(attempt().await.unwrap());
    assert!(next.is_there("started").await);
    next.delete().await;
}

/// STO-5: of many who come back at once, one gets the session.
pub async fn sto_5_of_many_owners_at_once_one_wins(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    within("a stop", place.handle.stop()).await.unwrap();
    let attempt = || backend.create(CreateRequest::resume(saved.clone()));
    let (a, b, c, d) = tokio::join!(attempt(), attempt(), attempt(), attempt());
    let (won, lost): (Vec<_>, Vec<_>) = [a, b, c, d].into_iter().partition(Result::is_ok);
    assert_eq!(won.len(), 1);
    for refused in lost {
        assert_eq!(code(refused), ErrorCode::Busy);
    }
    for handle in won {
        Place::of(handle.unwrap()).delete().await;
    }
}

/// STO-5: who is dropped gives the session up, with its commands.
pub async fn sto_5_a_dropped_owner_gives_the_session_up(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    let process = place.begun(script::SLEEP).await;
    let Place { handle, session } = place;
    drop((handle, session, process));
    let again = once_free("the lease of a dropped owner", || {
        backend.create(CreateRequest::resume(saved.clone()))
    });
    let again = Place::of(again.await.unwrap());
    again.text(script::TRUE, &[]).await;
    again.delete().await;
}

/// STO-6, OWN-1: a bound that can't be is refused, and the session is as it was.
pub async fn sto_6_a_failed_create_leaves_the_session_as_it_was(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    within("a stop", place.handle.stop()).await.unwrap();
    for max_concurrent_commands in [0, 1025] {
        let limits = SessionLimits {
            max_concurrent_commands,
            ..SessionLimits::default()
        };
        let fresh = CreateRequest::fresh(saved.template_key).limits(limits);
        assert_eq!(code(backend.create(fresh).await), ErrorCode::Invalid);
        let again = CreateRequest::resume(saved.clone()).limits(limits);
        assert_eq!(code(backend.create(again).await), ErrorCode::Invalid);
    }
    let again = once_free("the lease of a failed owner", || {
        backend.create(CreateRequest::resume(saved.clone()))
    });
    let again = Place::of(again.await.unwrap());
    assert_eq!(again.session.read_text("greeting").await.unwrap(), "hello");
    again.delete().await;
}

/// STO-7: a delete is for good, and may be repeated.
pub async fn sto_7_a_delete_is_for_good_and_repeatable(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    let _process = place.begun(script::SLEEP).await;
    for _ in 0..3 {
        within("a delete", place.handle.delete()).await.unwrap();
    }
    within("a stop", place.handle.stop()).await.unwrap();
    let refused = backend.create(CreateRequest::resume(saved)).await;
    assert_eq!(code(refused), ErrorCode::NotFound);
}

/// STO-7: after a stop a delete takes the lease again, and may find it taken.
pub async fn sto_7_a_delete_after_a_stop_asks_for_the_lease(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    within("a stop", place.handle.stop()).await.unwrap();
    let next = Place::of(
        backend
            .create(CreateRequest::resume(saved.clone()))
            .await
            .unwrap(),
    );
    assert_eq!(code(place.handle.delete().await), ErrorCode::Busy);
    next.text(script::TRUE, &[]).await;
    within("a stop", next.handle.stop()).await.unwrap();
    within("a delete", place.handle.delete()).await.unwrap();
    let refused = backend.create(CreateRequest::resume(saved)).await;
    assert_eq!(code(refused), ErrorCode::NotFound);
    next.delete().await;
}

/// BAK-4: stops and deletes at once all end well, and the session is gone.
pub async fn bak_4_stop_and_delete_at_once(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    let _process = place.begun(script::SLEEP).await;
    let tasks: Vec<_> = (0..8)
        .map(|index| {
            let handle = Arc::clone(&place.handle);
            tokio::spawn(async move {
                if index % 2 == 0 {
                    handle.stop().await
                } else {
                    handle.delete().await
                }
            })
        })
        .collect();
    for task in tasks {
        within("a stop or delete", task).await.unwrap().unwrap();
    }
    let refused = backend.create(CreateRequest::resume(saved)).await;
    assert_eq!(code(refused), ErrorCode::NotFound);
}

/// BAK-4: a stop goes on when its future is dropped.
pub async fn bak_4_a_dropped_stop_goes_on(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    let process = place.begun(script::SLEEP).await;
    tokio::select! {
        biased;
        _ = place.handle.stop() => {}
        () = std::future::ready(()) => {}
    }
    let ended = within("the end", process.wait()).await;
    assert_eq!(code(ended), ErrorCode::Stopped);
    let again = once_free("the lease of a stopped session", || {
        backend.create(CreateRequest::resume(saved.clone()))
    });
    Place::of(again.await.unwrap()).delete().await;
}

/// BAK-4: the state is told after a stop, and not after a delete.
pub async fn bak_4_the_state_is_told_until_the_delete(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let saved = place.handle.capture_state().await.unwrap();
    for _ in 0..2 {
        within("a shutdown", place.handle.shutdown()).await.unwrap();
        assert_eq!(place.handle.capture_state().await.unwrap(), saved);
    }
    within("a delete", place.handle.delete()).await.unwrap();
    assert_eq!(code(place.handle.capture_state().await), ErrorCode::Stopped);
}

/// BAK-7: after a stop every operation says so.
pub async fn bak_7_everything_is_refused_after_a_stop(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    within("a stop", place.handle.stop()).await.unwrap();
    let session = &place.session;
    let empty = || stream_of(Vec::new());
    let codes = [
        code(session.posture().await),
        code(session.stat("greeting").await),
        code(session.list(".").await),
        code(session.read_binary("greeting").await),
        code(session.read_text("greeting").await),
        code(session.read_stream("greeting").await.map(drop)),
        code(session.write_text("greeting", "x").await),
        code(
            session
                .write_stream("greeting", empty(), WriteOptions::default())
                .await,
        ),
        code(session.make_dir("new").await),
        code(session.rename("greeting", "new").await),
        code(session.remove("greeting").await),
        code(session.pack(".").await.map(drop)),
        code(session.unpack(".", empty()).await),
        code(place.spawn(script::TRUE).await),
        code(place.run(script::TRUE, &[]).await),
        code(session.set_network_policy(Policy::DenyAll, When::Now).await),
    ];
    assert_eq!(codes, [ErrorCode::Stopped; 16]);
    // Also what was cancelled before.
    let cancelled = sandbox_core::CancelToken::new();
    cancelled.cancel();
    let spawned = place
        .spawn_with(script::TRUE, SpawnOptions::default().cancel(cancelled))
        .await;
    assert_eq!(code(spawned), ErrorCode::Stopped);
    place.delete().await;
}

/// BAK-7: a stream that is read when the session stops ends with that word or its own end.
pub async fn bak_7_a_stream_ends_with_its_session(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let pieces = (0..64).map(|_| Ok(vec![7; 64 * 1024].into())).collect();
    place
        .session
        .write_stream("big", stream_of(pieces), WriteOptions::default())
        .await
        .unwrap();
    let stream = place.session.read_stream("big").await.unwrap();
    within("a stop", place.handle.stop()).await.unwrap();
    assert_eq!(
        code(super::place::drained(stream).await),
        ErrorCode::Stopped
    );
    let saved = place.handle.capture_state().await.unwrap();
    let again: Arc<dyn Handle> = backend.create(CreateRequest::resume(saved)).await.unwrap();
    Place::of(again).delete().await;
}
