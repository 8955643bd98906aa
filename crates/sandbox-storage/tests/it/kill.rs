//! SIGKILL at moments nobody chose.

use std::time::Duration;

use sandbox_core::SavedState;
use sandbox_storage::{Details, GcOptions, SessionOptions};

use crate::child::{Other, Task};
use crate::support::{Fixture, backend, id, open, text_files, tree, workspace};

// STC-45, I4, I9, I10: a process that makes and removes is killed a hundred times; what is
// visible is whole, leases are free, and nothing else remains.
#[test]
fn stc_45_kills_at_random_moments_leave_nothing_half_made() {
    const ROUNDS: u64 = 100;
    let fixture = Fixture::new();
    for round in 0..ROUNDS {
        let mut other = Other::start(&fixture.root(), &Task::Churn { seed: round * 1000 });
        assert_eq!(other.says(), "begins");
        // The moment is chosen by how long a round of the other's takes, about 3 ms.
        std::thread::sleep(Duration::from_micros(round * 137 % 9000));
        other.kill();
        if round % 10 == 9 {
            check(&fixture);
        }
    }
    check(&fixture);
}

fn check(fixture: &Fixture) {
    let store = open(&fixture.root()).unwrap();
    for folder in ["staging", "trash"] {
        assert!(fixture.names(folder).is_empty(), "{folder}");
    }
    let sessions = store.list_sessions().unwrap();
    assert_eq!(
        fixture
            .names("leases")
            .iter()
            .filter(|name| !name.ends_with(".holder"))
            .count(),
        sessions.len()
    );
    for info in sessions {
        let Details::Known {
            backend,
            template_key,
            ..
        } = info.details
        else {
            panic!("{info:?}")
        };
        assert!(!info.held);
        let saved = SavedState {
            backend,
            session_id: info.session_id,
            template_key,
        };
        let session = store.reconnect(&saved.backend, &saved, "check").unwrap();
        assert_eq!(session.changes().unwrap(), []);
        assert_eq!(tree(&workspace(&session)).len(), 6);
        session.delete().unwrap();
    }
    for template in store.list_templates().unwrap() {
        let key = template.template_key;
        store
            .create(&backend(), &key, &SessionOptions::default())
            .unwrap()
            .delete()
            .unwrap();
    }
    let mut options = GcOptions::default();
    options.now += Duration::from_secs(24 * 60 * 60);
    store.gc(&options).unwrap();
    assert!(crate::support::blobs(&fixture.root()).is_empty());
    fixture.assert_no_leftovers();
    let files = text_files(&[("a", "x")]);
    store.prewarm(&backend(), &id("t"), &files).unwrap();
}
