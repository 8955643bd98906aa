//! Identifiers: 32 bytes in, 64 lower-case hex digits out.

/// Makes a type of 32 bytes with its one text form.
///
/// Shared by every identifier of the workspace, so that parsing, display and serde
/// can't differ between them.
#[macro_export]
macro_rules! id_type {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident, $what:literal) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        $visibility struct $name([u8; 32]);

        impl $name {
            /// Takes the 32 bytes.
            #[must_use]
            $visibility const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// The 32 bytes.
            #[must_use]
            $visibility const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                for byte in self.0 {
                    ::std::write!(f, "{byte:02x}")?;
                }
                Ok(())
            }
        }

        impl ::std::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::write!(f, ::std::concat!(::std::stringify!($name), "({})"), self)
            }
        }

        impl ::std::str::FromStr for $name {
            type Err = $crate::SandboxError;

            fn from_str(written: &str) -> $crate::Result<Self> {
                $crate::id::parse_hex(written).map(Self).ok_or_else(|| {
                    $crate::SandboxError::new(
                        $crate::ErrorCode::Invalid,
                        ::std::format!(
                            "the {} {} is refused: 64 lower-case hex digits are accepted",
                            $what,
                            $crate::shown(written)
                        ),
                    )
                })
            }
        }

        impl ::serde::Serialize for $name {
            fn serialize<S: ::serde::Serializer>(
                &self,
                serializer: S,
            ) -> ::std::result::Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $name {
            fn deserialize<D: ::serde::Deserializer<'de>>(
                deserializer: D,
            ) -> ::std::result::Result<Self, D::Error> {
                let written = <::std::string::String as ::serde::Deserialize>::deserialize(deserializer)?;
                written.parse().map_err(::serde::de::Error::custom)
            }
        }

        impl ::schemars::JsonSchema for $name {
            fn schema_name() -> ::std::borrow::Cow<'static, str> {
                ::std::stringify!($name).into()
            }

            fn json_schema(_: &mut ::schemars::SchemaGenerator) -> ::schemars::Schema {
                ::schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{64}$" })
            }
        }
    };
}

id_type! {
    /// Names a session: 32 random bytes.
    pub struct SessionId, "session id"
}

id_type! {
    /// Names a template by what it holds: a SHA-256 over its canonical encoding (SPEC STO-1).
    pub struct TemplateKey, "template key"
}

/// Reads exactly 64 lower-case hex digits.
#[doc(hidden)]
#[must_use]
pub fn parse_hex(written: &str) -> Option<[u8; 32]> {
    let digits = written.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(bytes)
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // STO-1: one text form, 64 lower-case hex digits.
    #[test]
    fn sto_1_ids_have_one_text_form() {
        let key = TemplateKey::from_bytes([0xab; 32]);
        assert_eq!(key.to_string(), "ab".repeat(32));
        assert_eq!(key.to_string().parse::<TemplateKey>().unwrap(), key);
        let json = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<TemplateKey>(&json).unwrap(), key);
        for refused in [
            "",
            "ab",
            &"AB".repeat(32),
            &"g".repeat(64),
            &"a".repeat(65),
            &"é".repeat(32),
        ] {
            assert!(refused.parse::<TemplateKey>().is_err(), "{refused}");
        }
    }
}
