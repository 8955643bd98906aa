//! `FORMAT`: what a store is, written last when it is made.

use std::os::fd::AsFd;

use serde::{Deserialize, Serialize};

use crate::error::{Cause, Context as _, Result};
use crate::layout;
use crate::{json, sys};

/// The format that this version writes.
pub(crate) const FORMAT_NUMBER: u32 = 1;

/// The record in `FORMAT`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Format {
    pub(crate) format: u32,
    pub(crate) hash: String,
    pub(crate) features: Features,
    pub(crate) store_id: String,
}

/// What a version must know to read, to write, or for nothing.
#[derive(Clone, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Features {
    /// May be ignored.
    pub(crate) compat: Vec<String>,
    /// Must be known to write.
    pub(crate) ro_compat: Vec<String>,
    /// Must be known to read.
    pub(crate) incompat: Vec<String>,
}

impl Format {
    /// A new store's.
    pub(crate) fn new() -> Result<Self> {
        let id = sys::random::<16>().store(|| "making a store id".to_owned())?;
        Ok(Self {
            format: FORMAT_NUMBER,
            hash: "sha256".to_owned(),
            features: Features::default(),
            store_id: id.iter().map(|byte| format!("{byte:02x}")).collect(),
        })
    }

    /// Reads and judges the record. None where there is none.
    pub(crate) fn read(root: impl AsFd, path: &str) -> Result<Option<Self>> {
        let label = format!("{path}/FORMAT");
        // A later format may add keys and change the meaning of others: the number first.
        #[derive(Deserialize)]
        struct Number {
            format: u32,
        }
        let Some(bytes) =
            json::read_bounded(root, layout::FORMAT, &label, layout::MAX_RECORD_BYTES)?
        else {
            return Ok(None);
        };
        let refuse = |why: String| {
            Err(Cause::Refused {
                path: path.to_owned(),
                why,
                fix: "use the version of the program that made it, or another state directory"
                    .to_owned(),
            })
        };
        let Number { format } = json::parse(&bytes, &label)?;
        if format != FORMAT_NUMBER {
            return refuse(format!(
                "its FORMAT is {format}, this version reads {FORMAT_NUMBER}"
            ));
        }
        let record: Self = json::parse(&bytes, &label)?;
        if record.hash != "sha256" {
            return refuse(format!(
                "its FORMAT names the hash {}, this version reads sha256",
                sandbox_core::shown(&record.hash)
            ));
        }
        // No feature exists yet, so every named one is unknown; this version always writes.
        let unknown = record
            .features
            .incompat
            .iter()
            .chain(&record.features.ro_compat);
        if let Some(feature) = unknown.into_iter().next() {
            return refuse(format!(
                "its FORMAT asks for the feature {}, which this version does not know",
                sandbox_core::shown(feature)
            ));
        }
        Ok(Some(record))
    }

    /// Writes the record; the last step of making a store.
    pub(crate) fn write(&self, root: impl AsFd) -> Result<()> {
        let bytes = json::to_bytes(self, layout::FORMAT)?;
        json::replace(root, layout::FORMAT, layout::FORMAT_NEW, &bytes, true)
    }
}
