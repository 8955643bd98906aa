//! Counts words.

use std::collections::BTreeMap;

/// How often each word of a text stands in it, without regard to case.
///
/// ```
/// assert_eq!(word_count::count("a b A")["a"], 2);
/// ```
pub fn count(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for word in text
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        *counts.entry(word.to_lowercase()).or_default() += 1;
    }
    counts
}

/// Where the build ran.
pub const BUILT_IN: &str = env!("BUILT_IN");
