//! Counts the words of standard input.

use std::io::Read;

fn main() -> std::io::Result<()> {
    let mut text = String::new();
    std::io::stdin().read_to_string(&mut text)?;
    for (word, times) in word_count::count(&text) {
        println!("{times:6} {word}");
    }
    Ok(())
}
