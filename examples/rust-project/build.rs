//! A build script, since real projects have one: it runs in the sandbox too.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!(
        "cargo::rustc-env=BUILT_IN={}",
        std::env::current_dir().expect("a folder").display()
    );
}
