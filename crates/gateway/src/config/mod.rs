//! Configuration: from what was written to what is meant.
//!
//! ```text
//! files -> syntax, include -> tree -> meaning -> Config      every finding with file, line and key (diag)
//! VICI message ------------> tree -> meaning -> Connection   the same code
//! Config -> check: what two parts of it mean for each other
//! ```

pub mod check;
pub mod diag;
mod include;
mod load;
mod meaning;
mod proposal;
mod syntax;
pub mod tree;
mod ts;
mod value;

pub use load::{Config, load_dir, load_files};
pub use meaning::{Daemon, LogFormat, connection, needs_dns, vici_uri};

/// For the fuzzer: reads any bytes as `swanctl.conf`, understands them and checks them. Files are not opened and
/// names are not looked up.
#[doc(hidden)]
pub fn fuzz_swanctl_conf(bytes: &[u8]) {
    let file = "fuzz".into();
    let mut diags = diag::Diagnostics::default();
    let mut root = tree::Section::new(tree::Origin::source("fuzz"));
    syntax::parse(&file, bytes, &mut root, 0, &mut syntax::NoIncludes, &mut diags);
    include::resolve(&mut root, &mut diags);
    let dns = root.section("connections").is_some_and(|c| c.sections().any(|(_, s)| needs_dns(s)));
    if dns {
        return;
    }
    let config = load::understand(&root, &Default::default(), &mut diags);
    check::check(&config, &mut diags);
    let _ = meaning::daemon(&root, &mut diags);
    for d in diags.iter() {
        assert!(!d.to_string().contains('\0'));
    }
}
