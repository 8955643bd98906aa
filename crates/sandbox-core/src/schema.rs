//! The published JSON Schemas (draft 2020-12) of the wire forms.

use schemars::{JsonSchema, Schema, SchemaGenerator};

use crate::command::Command;
use crate::policy::PolicyDocument;
use crate::posture::Posture;
use crate::refusal::Refusal;
use crate::state::SavedState;
use crate::template::Prewarmed;

/// Every wire form with the name of its file, as the project publishes them under `schemas/`.
#[must_use]
pub fn published() -> Vec<(&'static str, Schema)> {
    vec![
        ("command", of::<Command>()),
        ("policy", of::<PolicyDocument>()),
        ("posture", of::<Posture>()),
        ("prewarmed", of::<Prewarmed>()),
        ("refusal", of::<Refusal>()),
        ("saved-state", of::<SavedState>()),
    ]
}

fn of<T: JsonSchema>() -> Schema {
    SchemaGenerator::default().into_root_schema_for::<T>()
}
