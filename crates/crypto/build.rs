//! With the feature `ipsec-mb`: compiles the shim beside `src/engine/ipsec_mb` against the
//! library's header and links its archive. Without it, or for another processor, there is nothing
//! to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(ipsec_mb)");
    #[cfg(feature = "ipsec-mb")]
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        let shim = "src/engine/ipsec_mb/shim.c";
        println!("cargo::rerun-if-changed={shim}");
        println!("cargo::rustc-cfg=ipsec_mb");
        // The shim refuses to compile with a header of another major version.
        cc::Build::new().file(shim).opt_level(2).warnings(true).compile("ironswan_ipsec_mb");
        println!("cargo::rustc-link-lib=static=IPSec_MB");
        // Debian's multiarch folder; the linker asked for a static library does not look there by
        // itself.
        println!("cargo::rustc-link-search=native=/usr/lib/x86_64-linux-gnu");
    }
}
