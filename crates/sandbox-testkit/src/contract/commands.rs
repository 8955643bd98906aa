//! Commands: how they end, what they read and write, and who ends them.

use sandbox_core::{Backend, Exit};

use super::place::Place;
use super::script;

/// CMD-4: an exit code is told as it is.
pub async fn cmd_4_an_exit_code_is_told(backend: &dyn Backend) {
    let place = Place::new(backend).await;
    for code in [0, 1, 126, 127, 255] {
        let output = place
            .run(script::EXIT, &[&code.to_string()])
            .await
            .unwrap();
        assert_eq!(output.finished.exit, Exit::Exited(code));
    }
    place.delete().await;
}
