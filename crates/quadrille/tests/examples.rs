//! The examples of the library: each runs here, and holds itself against what it claims.

use std::path::Path;

macro_rules! examples {
    ($($name:ident: $path:literal),*) => {
        $(
            #[path = $path]
            mod $name;

            #[test]
            fn $name() {
                if let Err(error) = $name::main() {
                    panic!("{error}");
                }
            }
        )*

        const EXAMPLES: &[&str] = &[$($path),*];
    };
}

examples! {
    callback: "../examples/callback.rs",
    custom_cluster: "../examples/custom_cluster.rs",
    custom_schedule: "../examples/custom_schedule.rs",
    plan_1024: "../examples/plan_1024.rs",
    read_checkpoint: "../examples/read_checkpoint.rs",
    sharded_product: "../examples/sharded_product.rs",
    sharded_step: "../examples/sharded_step.rs",
    timeline: "../examples/timeline.rs",
    verify_layout: "../examples/verify_layout.rs"
}

#[test]
fn no_example_is_left_out() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    let mut found: Vec<String> = folder
        .read_dir()
        .unwrap()
        .map(|entry| format!("../examples/{}", entry.unwrap().file_name().to_str().unwrap()))
        .collect();
    found.sort();
    assert_eq!(found, EXAMPLES);
}
