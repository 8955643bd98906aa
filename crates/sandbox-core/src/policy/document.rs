//! A policy as it is written.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::ser::{Error as _, SerializeMap};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{ErrorCode, Result, SandboxError};
use crate::policy::header::{HeaderName, check_value};
use crate::policy::origin::Origin;
use crate::policy::tree::Tree;
use crate::policy::{Policy, Rule, check_gateway_hosts};
use crate::secret::{Secret, SecretSource};
use crate::text::shown;

/// The largest document that is read, in bytes.
const MAX_DOCUMENT_BYTES: usize = 1024 * 1024;

/// A network policy as written: `"allow-all"`, `"deny-all"`, or
/// `{"allow": [{"origin": …, "headers": {…}}]}`.
///
/// Unknown keys are refused at every level; an empty allow list denies everything. TOML,
/// whose documents are tables, writes the two words as `policy = "deny-all"`.
///
/// ```
/// use sandbox_core::PolicyDocument;
///
/// let json = br#"{"allow": [{"origin": "https://a.example", "headers": {"x-key": {"env": "KEY"}}}]}"#;
/// let toml = br#"
///     [[allow]]
///     origin = "https://a.example"
///     headers = { x-key = { env = "KEY" } }
/// "#;
/// assert_eq!(PolicyDocument::from_json(json)?, PolicyDocument::from_toml(toml)?);
/// # Ok::<(), sandbox_core::SandboxError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum PolicyDocument {
    /// Every public destination, through the broker.
    AllowAll,
    /// Nothing at all.
    #[default]
    DenyAll,
    /// What these rules name; no two share a gateway host.
    Allow(Vec<RuleDocument>),
}

/// One rule as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleDocument {
    /// The origin that may be reached.
    pub origin: Origin,
    /// The headers that the broker sets, each with where its value comes from.
    pub headers: BTreeMap<HeaderName, HeaderSource>,
}

/// Where the value of a header comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeaderSource {
    /// The value itself: accepted from a caller, never written (SPEC POL-5).
    Literal(Secret),
    /// `{"env": "NAME"}`: a variable of the host's environment.
    Env(String),
    /// `{"file": "path"}`: a file of the host.
    File(String),
}

impl PolicyDocument {
    /// Makes an allow list.
    ///
    /// # Errors
    /// `SANDBOX_INVALID` where two rules share a gateway host (SPEC POL-3), or a literal
    /// value can't stand in a header.
    pub fn allow(rules: Vec<RuleDocument>) -> Result<Self> {
        check_gateway_hosts(rules.iter().map(|rule| &rule.origin))?;
        for rule in &rules {
            for (name, source) in &rule.headers {
                source.check(name)?;
            }
        }
        Ok(Self::Allow(rules))
    }

    /// Reads a JSON document (RFC 8259).
    ///
    /// # Errors
    /// `SANDBOX_INVALID` for every byte string that is not a policy; never a panic.
    pub fn from_json(bytes: &[u8]) -> Result<Self> {
        check_size(bytes)?;
        let tree = serde_json::from_slice(bytes).map_err(|error| {
            invalid(format!(
                "the policy is not JSON at line {}, column {}",
                error.line(),
                error.column()
            ))
        })?;
        Self::from_tree(tree)
    }

    /// Reads a TOML document.
    ///
    /// # Errors
    /// As [`Self::from_json`].
    pub fn from_toml(bytes: &[u8]) -> Result<Self> {
        check_size(bytes)?;
        let text = std::str::from_utf8(bytes).map_err(|error| {
            invalid(format!(
                "the policy is not UTF-8 at byte {}",
                error.valid_up_to()
            ))
        })?;
        let tree = toml::from_str(text).map_err(|error| {
            let line = error.span().map_or(1, |span| {
                text[..span.start.min(text.len())].matches('\n').count() + 1
            });
            invalid(format!("the policy is not TOML at line {line}"))
        })?;
        match tree {
            // A TOML document is a table: the two words need a key to stand at.
            Tree::Map(mut entries) if entries.len() == 1 && entries[0].0 == "policy" => {
                Self::from_tree(entries.remove(0).1)
            }
            tree => Self::from_tree(tree),
        }
    }

    /// Writes the document as JSON.
    ///
    /// # Errors
    /// `SANDBOX_INVALID`, naming the header, where a value is literal.
    pub fn to_json(&self) -> Result<String> {
        self.check_writable()?;
        serde_json::to_string(self)
            .map_err(|error| invalid("the policy can't be written".to_owned()).with_source(error))
    }

    /// Looks the references up and gives what is enforced.
    ///
    /// # Errors
    /// `SANDBOX_INVALID`, naming variable or file, where one is missing, empty or can't
    /// stand in a header: never an empty header (SPEC POL-5).
    pub fn resolve(&self, secrets: &dyn SecretSource) -> Result<Policy> {
        Ok(match self {
            Self::AllowAll => Policy::AllowAll,
            Self::DenyAll => Policy::DenyAll,
            Self::Allow(rules) => {
                check_gateway_hosts(rules.iter().map(|rule| &rule.origin))?;
                Policy::Allow(
                    rules
                        .iter()
                        .map(|rule| rule.resolve(secrets))
                        .collect::<Result<_>>()?,
                )
            }
        })
    }

    fn from_tree(tree: Tree) -> Result<Self> {
        match tree {
            Tree::Text(word) if word == "allow-all" => Ok(Self::AllowAll),
            Tree::Text(word) if word == "deny-all" => Ok(Self::DenyAll),
            Tree::Text(_) => Err(invalid(
                "the policy is an unknown word: \"allow-all\", \"deny-all\" or a table with `allow` is accepted".to_owned(),
            )),
            Tree::Map(entries) => {
                let mut allow = None;
                for (key, value) in entries {
                    once(&mut allow, &key, "allow", "the policy", value)?;
                }
                let rules = list(allow, "`allow`")?;
                let rules = rules.into_iter().enumerate().map(|(index, rule)| RuleDocument::from_tree(rule, index));
                Self::allow(rules.collect::<Result<_>>()?)
            }
            other => Err(invalid(format!(
                "the policy is {}: \"allow-all\", \"deny-all\" or a table with `allow` is accepted",
                other.kind()
            ))),
        }
    }

    fn check_writable(&self) -> Result<()> {
        let Self::Allow(rules) = self else {
            return Ok(());
        };
        for rule in rules {
            for (name, source) in &rule.headers {
                if matches!(source, HeaderSource::Literal(_)) {
                    return Err(invalid(format!(
                        "the header {name} of {} has a literal value, which is never written: \
                         {{\"env\": \"NAME\"}} or {{\"file\": \"path\"}} is accepted",
                        rule.origin
                    )));
                }
            }
        }
        Ok(())
    }
}

impl RuleDocument {
    fn resolve(&self, secrets: &dyn SecretSource) -> Result<Rule> {
        let headers = self.headers.iter().map(|(name, source)| {
            let value = source.resolve(name, secrets)?;
            Ok((name.clone(), value))
        });
        Ok(Rule {
            origin: self.origin.clone(),
            headers: headers.collect::<Result<_>>()?,
        })
    }

    fn from_tree(tree: Tree, index: usize) -> Result<Self> {
        let place = format!("allow[{index}]");
        let entries = map(tree, &place)?;
        let (mut origin, mut headers) = (None, None);
        for (key, value) in entries {
            match key.as_str() {
                "headers" => once(&mut headers, &key, "headers", &place, value)?,
                _ => once(&mut origin, &key, "origin", &place, value)?,
            }
        }
        let Some(Tree::Text(origin)) = origin else {
            return Err(invalid(format!("{place} has no `origin` that is a string")));
        };
        let origin = Origin::parse(&origin)?;
        let mut named = BTreeMap::new();
        for (name, value) in headers.map_or_else(
            || Ok(Vec::new()),
            |tree| map(tree, &format!("{place}.headers")),
        )? {
            let name = HeaderName::new(&name)?;
            let source = HeaderSource::from_tree(value, &name)?;
            if named.insert(name.clone(), source).is_some() {
                return Err(invalid(format!(
                    "{place} names the header {name} twice: case does not count"
                )));
            }
        }
        Ok(Self {
            origin,
            headers: named,
        })
    }
}

impl HeaderSource {
    fn resolve(&self, name: &HeaderName, secrets: &dyn SecretSource) -> Result<Secret> {
        let missing = |what: String| {
            invalid(format!(
                "the header {name} needs {what}, which is not there"
            ))
        };
        let value = match self {
            Self::Literal(value) => value.clone(),
            Self::Env(variable) => secrets
                .env(variable)?
                .ok_or_else(|| missing(format!("the variable {}", shown(variable))))?,
            Self::File(path) => secrets
                .file(path)?
                .ok_or_else(|| missing(format!("the file {}", shown(path))))?,
        };
        check_value(name, &value)?;
        Ok(value)
    }

    fn check(&self, name: &HeaderName) -> Result<()> {
        match self {
            Self::Literal(value) => check_value(name, value),
            Self::Env(variable) if variable.is_empty() || variable.contains(['=', '\0']) => {
                Err(invalid(format!(
                    "the header {name} names a variable that can't exist: a name without `=` and NUL is accepted"
                )))
            }
            Self::File(path) if path.is_empty() || path.contains('\0') => Err(invalid(format!(
                "the header {name} names a file that can't exist: a path without NUL is accepted"
            ))),
            Self::Env(_) | Self::File(_) => Ok(()),
        }
    }

    fn from_tree(tree: Tree, name: &HeaderName) -> Result<Self> {
        let accepted = "a string, {\"env\": \"NAME\"} or {\"file\": \"path\"} is accepted";
        let source = match tree {
            Tree::Text(value) => Self::Literal(Secret::new(value)),
            Tree::Map(mut entries) if entries.len() == 1 => match entries.remove(0) {
                (key, Tree::Text(variable)) if key == "env" => Self::Env(variable),
                (key, Tree::Text(path)) if key == "file" => Self::File(path),
                (key, _) => {
                    return Err(invalid(format!(
                        "the header {name} has the key {}: {accepted}",
                        shown(&key)
                    )));
                }
            },
            other => {
                return Err(invalid(format!(
                    "the header {name} is {}: {accepted}",
                    other.kind()
                )));
            }
        };
        source.check(name)?;
        Ok(source)
    }
}

fn invalid(message: String) -> SandboxError {
    SandboxError::new(ErrorCode::Invalid, message)
}

fn check_size(bytes: &[u8]) -> Result<()> {
    if bytes.len() > MAX_DOCUMENT_BYTES {
        return Err(invalid(format!(
            "the policy has {} bytes: up to {MAX_DOCUMENT_BYTES} are accepted",
            bytes.len()
        )));
    }
    Ok(())
}

/// Takes the value of a key that may be there once.
fn once(
    slot: &mut Option<Tree>,
    key: &str,
    expected: &str,
    place: &str,
    value: Tree,
) -> Result<()> {
    if key != expected {
        return Err(invalid(format!(
            "{place} has the unknown key {}",
            shown(key)
        )));
    }
    if slot.replace(value).is_some() {
        return Err(invalid(format!("{place} has the key `{key}` twice")));
    }
    Ok(())
}

fn list(tree: Option<Tree>, place: &str) -> Result<Vec<Tree>> {
    match tree {
        Some(Tree::List(items)) => Ok(items),
        Some(other) => Err(invalid(format!(
            "{place} is {}: a list is accepted",
            other.kind()
        ))),
        None => Err(invalid(format!(
            "{place} is missing: a list of rules is accepted"
        ))),
    }
}

fn map(tree: Tree, place: &str) -> Result<Vec<(String, Tree)>> {
    match tree {
        Tree::Map(entries) => Ok(entries),
        other => Err(invalid(format!(
            "{place} is {}: a table is accepted",
            other.kind()
        ))),
    }
}

impl<'de> Deserialize<'de> for PolicyDocument {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        Self::from_tree(Tree::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Serialize for PolicyDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        self.check_writable().map_err(S::Error::custom)?;
        match self {
            Self::AllowAll => serializer.serialize_str("allow-all"),
            Self::DenyAll => serializer.serialize_str("deny-all"),
            Self::Allow(rules) => {
                let mut map = serializer.serialize_map(Some(1))?;
                map.serialize_entry("allow", rules)?;
                map.end()
            }
        }
    }
}

impl Serialize for RuleDocument {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("origin", &self.origin)?;
        if !self.headers.is_empty() {
            let headers: BTreeMap<&str, &HeaderSource> = self
                .headers
                .iter()
                .map(|(name, source)| (name.as_str(), source))
                .collect();
            map.serialize_entry("headers", &headers)?;
        }
        map.end()
    }
}

impl Serialize for HeaderSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (key, value) = match self {
            Self::Literal(_) => {
                return Err(S::Error::custom("a literal header value is never written"));
            }
            Self::Env(variable) => ("env", variable),
            Self::File(path) => ("file", path),
        };
        let mut map = serializer.serialize_map(Some(1))?;
        map.serialize_entry(key, value)?;
        map.end()
    }
}

impl schemars::JsonSchema for PolicyDocument {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "PolicyDocument".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "What a session may reach. An empty allow list denies everything.",
            "oneOf": [
                { "const": "allow-all" },
                { "const": "deny-all" },
                {
                    "type": "object",
                    "required": ["allow"],
                    "additionalProperties": false,
                    "properties": {
                        "allow": {
                            "type": "array",
                            "items": {
                                "type": "object",
                                "required": ["origin"],
                                "additionalProperties": false,
                                "properties": {
                                    "origin": {
                                        "type": "string",
                                        "pattern": "^[hH][tT][tT][pP][sS]?://[^/?#@\\\\\\s]+/?$"
                                    },
                                    "headers": {
                                        "type": "object",
                                        "additionalProperties": {
                                            "oneOf": [
                                                { "type": "string", "minLength": 1 },
                                                {
                                                    "type": "object",
                                                    "required": ["env"],
                                                    "additionalProperties": false,
                                                    "properties": { "env": { "type": "string", "minLength": 1 } }
                                                },
                                                {
                                                    "type": "object",
                                                    "required": ["file"],
                                                    "additionalProperties": false,
                                                    "properties": { "file": { "type": "string", "minLength": 1 } }
                                                }
                                            ]
                                        }
                                    }
                                }
                            }
                        }
                    }
                }
            ]
        })
    }
}

#[cfg(test)]
mod tests;
