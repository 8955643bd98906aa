//! The schemas under `schemas/` are those of the types.

use std::path::Path;

/// With this variable set the files are written instead of compared.
const WRITE: &str = "SANDBOX_WRITE_SCHEMAS";

// CMD-1, POL-1: what is published is what is accepted.
#[test]
fn published_schemas_are_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../schemas");
    for (name, schema) in sandbox_core::schema::published() {
        let file = folder.join(format!("{name}.schema.json"));
        let current = format!("{}\n", serde_json::to_string_pretty(&schema).unwrap());
        if std::env::var_os(WRITE).is_some() {
            std::fs::write(&file, current).unwrap();
        } else {
            let published = std::fs::read_to_string(&file).unwrap();
            assert_eq!(
                published, current,
                "{name}: run the test with {WRITE}=1 to publish it anew"
            );
        }
    }
}
