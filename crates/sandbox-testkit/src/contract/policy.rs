//! Network policies: when they may change, and what a change does.

use sandbox_core::{
    Backend, CreateRequest, ErrorCode, Policy, Restriction, Revision, Session, SpawnOptions,
    Standing, When,
};

use super::place::{Place, code, small_tree, template, within};
use super::script;

async fn revision(session: &dyn Session) -> Revision {
    within("a probe", session.posture()).await.unwrap().1
}

async fn network_denied(session: &dyn Session) -> Standing {
    let (posture, _) = within("a probe", session.posture()).await.unwrap();
    posture.standing(Restriction::NetworkDenied)
}

/// BAK-6: an idle session takes a policy, under a revision of its own.
pub async fn bak_6_a_change_raises_the_revision(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let mut last = revision(&*place.session).await;
    for policy in [Policy::DenyAll, Policy::Allow(Vec::new()), Policy::DenyAll] {
        place
            .session
            .set_network_policy(policy, When::Idle)
            .await
            .unwrap();
        let next = revision(&*place.session).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
    place.text(script::TRUE, &[]).await;
    place.delete().await;
}

/// BAK-6: while a command runs, only a change that asks for now is made.
pub async fn bak_6_a_change_waits_for_commands(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let before = revision(&*place.session).await;
    let process = place.begun(script::SLEEP).await;
    let refused = place
        .session
        .set_network_policy(Policy::DenyAll, When::Idle)
        .await;
    assert_eq!(code(refused), ErrorCode::Busy);
    assert_eq!(revision(&*place.session).await, before);
    place
        .session
        .set_network_policy(Policy::DenyAll, When::Now)
        .await
        .unwrap();
    assert!(revision(&*place.session).await > before);
    within("a stop", process.stop()).await.unwrap();
    place
        .session
        .set_network_policy(Policy::DenyAll, When::Idle)
        .await
        .unwrap();
    place.delete().await;
}

/// BAK-6, COD-3: what was prepared under another revision does not start.
pub async fn bak_6_a_stale_revision_starts_nothing(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let stale = revision(&*place.session).await;
    place
        .session
        .set_network_policy(Policy::DenyAll, When::Idle)
        .await
        .unwrap();
    let current = revision(&*place.session).await;
    for wrong in [stale, current.next()] {
        let spawned = place
            .spawn_with(script::TOUCH, SpawnOptions::default().at(wrong))
            .await;
        let error = spawned.unwrap_err();
        assert_eq!(error.code(), ErrorCode::Busy);
        assert_eq!(error.refusal().revision, Some(current));
    }
    assert!(!place.is_there("started").await);
    let process = place
        .spawn_with(script::TOUCH, SpawnOptions::default().at(current))
        .await
        .unwrap();
    within("the end", process.wait()).await.unwrap();
    assert!(place.is_there("started").await);
    place.delete().await;
}

/// POL-1, BAK-6: `allow-all` is enforced, or refused and the old policy stays.
pub async fn bak_6_what_can_not_be_enforced_changes_nothing(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    let before = network_denied(&*place.session).await;
    let changed = place
        .session
        .set_network_policy(Policy::AllowAll, When::Idle)
        .await;
    match changed {
        Ok(()) => assert_eq!(
            network_denied(&*place.session).await,
            Standing::Missing,
            "a policy that allows denies nothing"
        ),
        Err(error) => {
            assert_eq!(error.code(), ErrorCode::Unavailable);
            assert_eq!(network_denied(&*place.session).await, before);
        }
    }
    place.text(script::TRUE, &[]).await;
    place.delete().await;
}

/// POL-1, STO-6: a session starts under its policy, or not at all.
pub async fn pol_1_a_session_starts_under_its_policy(backend: &dyn Backend) {
    let template = template(backend, small_tree()).await;
    let request = CreateRequest::fresh(template).policy(Policy::AllowAll);
    match backend.create(request).await {
        Ok(handle) => {
            let place = Place::of(handle);
            assert_eq!(network_denied(&*place.session).await, Standing::Missing);
            place.delete().await;
        }
        Err(error) => assert_eq!(error.code(), ErrorCode::Unavailable),
    }
}

/// COD-1, CON-4: a session is measured as its backend is.
pub async fn con_4_the_posture_is_the_same_everywhere(backend: &dyn Backend) {
    let measured = within("a probe", backend.posture()).await.unwrap();
    let place = Place::new(backend).await;
    let (posture, _) = within("a probe", place.session.posture()).await.unwrap();
    let standings = |posture: &sandbox_core::Posture| {
        Restriction::ALL.map(|restriction| posture.standing(restriction))
    };
    assert_eq!(standings(&posture), standings(&measured));
    for finding in posture.findings() {
        assert!(!finding.evidence.is_empty(), "{finding:?}");
    }
    place.delete().await;
}
