//! Names that callers choose: short, printable, never empty.

/// The longest name, in bytes.
pub(crate) const MAX_NAME_BYTES: usize = 200;

/// Makes a type of a name with one door.
macro_rules! name_type {
    ($(#[$meta:meta])* pub struct $name:ident, $what:literal) => {
        $(#[$meta])*
        ///
        /// 1 to 200 bytes of UTF-8 without control characters.
        #[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
        #[serde(transparent)]
        pub struct $name(String);

        impl $name {
            /// Checks the name.
            ///
            /// # Errors
            /// `SANDBOX_INVALID` where it is empty, too long, or holds a control character.
            pub fn new(name: impl Into<String>) -> $crate::error::Result<Self> {
                let name = name.into();
                if $crate::name::is_name(&name) {
                    Ok(Self(name))
                } else {
                    Err($crate::error::SandboxError::invalid(
                        concat!("the ", $what),
                        &name,
                        "1 to 200 bytes without control characters are accepted",
                    ))
                }
            }

            /// The name as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::error::SandboxError;

            fn from_str(name: &str) -> $crate::error::Result<Self> {
                Self::new(name)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(
                deserializer: D,
            ) -> Result<Self, D::Error> {
                let name = <String as serde::Deserialize>::deserialize(deserializer)?;
                Self::new(name).map_err(serde::de::Error::custom)
            }
        }

        impl schemars::JsonSchema for $name {
            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "minLength": 1, "maxLength": 200 })
            }
        }
    };
}

pub(crate) use name_type;

/// Whether this may be a name.
pub(crate) fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() <= MAX_NAME_BYTES && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use crate::{BackendName, ErrorCode, TemplateId};

    // BAK-2: a backend's name is not empty.
    #[test]
    fn bak_2_names_are_short_and_printable() {
        for refused in ["", "a\nb", "\0", &"a".repeat(201)] {
            assert_eq!(
                BackendName::new(refused).unwrap_err().code(),
                ErrorCode::Invalid
            );
        }
        assert_eq!(TemplateId::new("rust 1.95").unwrap().as_str(), "rust 1.95");
        assert!(serde_json::from_str::<TemplateId>("\"\"").is_err());
    }
}
