use super::*;

#[derive(Debug)]
struct Fixed;

impl SecretSource for Fixed {
    fn env(&self, name: &str) -> Result<Option<Secret>> {
        Ok(match name {
            "KEY" => Some(Secret::new("hunter2")),
            "EMPTY" => Some(Secret::new("")),
            _ => None,
        })
    }

    fn file(&self, path: &str) -> Result<Option<Secret>> {
        Ok((path == "/key").then(|| Secret::new("from file")))
    }
}

fn json(text: &str) -> Result<PolicyDocument> {
    PolicyDocument::from_json(text.as_bytes())
}

fn message(text: &str) -> String {
    let error = json(text).expect_err(text);
    assert_eq!(error.code(), ErrorCode::Invalid, "{text}");
    error.to_string()
}

// POL-1
#[test]
fn pol_1_three_forms_and_nothing_else() {
    assert_eq!(json("\"allow-all\"").unwrap(), PolicyDocument::AllowAll);
    assert_eq!(json("\"deny-all\"").unwrap(), PolicyDocument::DenyAll);
    assert_eq!(
        json("{\"allow\": []}").unwrap(),
        PolicyDocument::Allow(vec![])
    );
    let empty = json("{\"allow\": []}").unwrap().resolve(&Fixed).unwrap();
    assert!(empty.denies_everything());
    for refused in [
        "",
        "null",
        "1",
        "true",
        "[]",
        "{}",
        "\"allow\"",
        "\"DENY-ALL\"",
        "{\"deny\": []}",
        "{\"allow\": {}}",
        "{\"allow\": [], \"x\": 1}",
        "{\"allow\": [], \"allow\": []}",
        "{\"allow\": [{}]}",
        "{\"allow\": [\"a\"]}",
        "{\"allow\": [{\"origin\": 1}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"x\": 1}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"origin\": \"https://b\"}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": []}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": 1}}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": {\"env\": \"A\", \"file\": \"b\"}}}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": {\"cmd\": \"A\"}}}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": {\"env\": \"A=B\"}}}]}",
        "\"deny-all\" x",
    ] {
        message(refused);
    }
}

// POL-1: the two formats give one value.
#[test]
fn pol_1_toml_and_json_give_the_same_value() {
    let toml = |text: &str| PolicyDocument::from_toml(text.as_bytes());
    assert_eq!(
        toml("policy = \"deny-all\"").unwrap(),
        PolicyDocument::DenyAll
    );
    assert_eq!(
        toml("allow = []").unwrap(),
        json("{\"allow\": []}").unwrap()
    );
    let written = "[[allow]]\norigin = \"https://a\"\n[allow.headers]\nX-K = { env = \"KEY\" }\n";
    assert_eq!(
        toml(written).unwrap(),
        json(
            "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x-k\": {\"env\": \"KEY\"}}}]}"
        )
        .unwrap()
    );
    for refused in [
        "",
        "policy = 1",
        "policy = \"x\"",
        "allow = 1",
        "allow = []\npolicy = \"deny-all\"",
        "= x",
        "d = 1979-05-27",
    ] {
        assert_eq!(
            toml(refused).unwrap_err().code(),
            ErrorCode::Invalid,
            "{refused}"
        );
    }
    assert!(PolicyDocument::from_toml(b"\xff").is_err());
}

// POL-3
#[test]
fn pol_3_rules_of_one_gateway_host_are_refused_naming_both() {
    for (one, other) in [
        ("https://a", "http://a"),
        ("https://a", "https://A:443/"),
        ("http://a:81", "https://a:81"),
    ] {
        let text =
            format!("{{\"allow\": [{{\"origin\": \"{one}\"}}, {{\"origin\": \"{other}\"}}]}}");
        let message = message(&text);
        let canonical = Origin::parse(other).unwrap().to_string();
        assert!(
            message.contains(one) && message.contains(&canonical),
            "{message}"
        );
    }
    json("{\"allow\": [{\"origin\": \"https://a\"}, {\"origin\": \"https://a:444\"}]}").unwrap();
}

// POL-4
#[test]
fn pol_4_header_names_that_differ_in_case_are_refused() {
    let text =
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"X-A\": \"1\", \"x-a\": \"2\"}}]}";
    assert!(message(text).contains("x-a"));
}

// POL-5
#[test]
fn pol_5_references_are_resolved_and_literals_are_never_written() {
    let text = "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x-a\": {\"env\": \"KEY\"}, \"x-b\": {\"file\": \"/key\"}}}]}";
    let Policy::Allow(rules) = json(text).unwrap().resolve(&Fixed).unwrap() else {
        panic!("an allow list resolves to one");
    };
    let values: Vec<&[u8]> = rules[0]
        .headers
        .iter()
        .map(|(_, value)| value.expose())
        .collect();
    assert_eq!(values, [&b"hunter2"[..], b"from file"]);
    assert!(!format!("{rules:?}").contains("hunter2"));

    for (source, named) in [
        ("{\"env\": \"NOPE\"}", "NOPE"),
        ("{\"file\": \"/nope\"}", "/nope"),
        ("{\"env\": \"EMPTY\"}", "x-a"),
    ] {
        let text = format!(
            "{{\"allow\": [{{\"origin\": \"https://a\", \"headers\": {{\"x-a\": {source}}}}}]}}"
        );
        let error = json(&text).unwrap().resolve(&Fixed).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Invalid);
        assert!(error.to_string().contains(named), "{error}");
    }

    let literal =
        json("{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x-a\": \"hunter2\"}}]}")
            .unwrap();
    let error = literal.to_json().unwrap_err();
    assert_eq!(error.code(), ErrorCode::Invalid);
    assert!(error.to_string().contains("x-a"));
    assert!(serde_json::to_string(&literal).is_err());
    assert!(!format!("{literal:?}{error:?}").contains("hunter2"));
    literal.resolve(&Fixed).unwrap();
}

// POL-5, ERR-3: a value in the wrong place may be a secret too.
#[test]
fn err_3_no_error_of_a_policy_repeats_a_value() {
    for text in [
        "\"hunter2\"",
        "{\"allow\": \"hunter2\"}",
        "{\"allow\": [\"hunter2\"]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": \"hunter2\"}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": \"hunter2\\n\"}}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": [\"hunter2\"]}}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": {\"env\": [\"hunter2\"]}}}]}",
        "{\"allow\": [{\"origin\": \"https://a\", \"headers\": {\"x\": \"hunter2\"",
    ] {
        assert!(!message(text).contains("hunter2"), "{text}");
        let error = serde_json::from_str::<PolicyDocument>(text).unwrap_err();
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }
    let error = PolicyDocument::from_toml(b"allow = [ hunter2 ]").unwrap_err();
    assert!(!format!("{error:?}").contains("hunter2"));
}

// POL-6
#[test]
fn pol_6_documents_print_and_parse_back() {
    for text in [
        "\"allow-all\"",
        "\"deny-all\"",
        "{\"allow\":[]}",
        "{\"allow\":[{\"origin\":\"https://a\",\"headers\":{\"x\":{\"env\":\"A\"}}}]}",
    ] {
        assert_eq!(json(text).unwrap().to_json().unwrap(), text);
    }
    assert!(json(&"[".repeat(100_000)).is_err());
    assert!(json(&" ".repeat(MAX_DOCUMENT_BYTES + 1)).is_err());
}
