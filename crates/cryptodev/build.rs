//! With the feature `dpdk`: compiles the shim in `src/dpdk` against DPDK's headers and links its
//! archives. Without it, or for another processor, there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(dpdk)");
    #[cfg(feature = "dpdk")]
    if std::env::var("CARGO_CFG_TARGET_ARCH").as_deref() == Ok("x86_64") {
        println!("cargo::rustc-cfg=dpdk");
        dpdk::link();
    }
}

#[cfg(feature = "dpdk")]
mod dpdk {
    use std::process::Command;

    /// Archives of which all is linked: their constructors make them known to DPDK.
    const WHOLE: [&str; 3] = ["rte_bus_vdev", "rte_crypto_ipsec_mb", "rte_mempool_ring"];
    /// Archives that these and the shim call, each before those that it calls itself.
    const CALLED: [&str; 9] = [
        "rte_cryptodev",
        "rte_mbuf",
        "rte_mempool",
        "rte_rcu",
        "rte_ring",
        "rte_eal",
        "rte_telemetry",
        "rte_kvargs",
        "IPSec_MB",
    ];
    const REMEDY: &str = "the feature needs DPDK 22.11 or later: as root run `scripts/setup dpdk`, or `apt-get install \
                          libdpdk-dev`";

    /// Static archives: with shared libraries DPDK loads each of its hundred drivers.
    pub(super) fn link() {
        let shim = "src/dpdk/shim.c";
        println!("cargo::rerun-if-changed={shim}");
        let mut build = cc::Build::new();
        for flag in pkg_config("--cflags") {
            build.flag(flag);
        }
        build.file(shim).opt_level(2).warnings(true).compile("ironswan_cryptodev");
        let folder = pkg_config("--variable=libdir").into_iter().next().unwrap_or_default();
        println!("cargo::rustc-link-search=native={folder}");
        for archive in WHOLE {
            println!("cargo::rustc-link-lib=static:+whole-archive,-bundle={archive}");
        }
        for archive in CALLED {
            println!("cargo::rustc-link-lib=static:-bundle={archive}");
        }
        for library in ["numa", "bsd"] {
            println!("cargo::rustc-link-lib={library}");
        }
    }

    /// The words of an answer of pkg-config about DPDK.
    fn pkg_config(question: &str) -> Vec<String> {
        let output = Command::new("pkg-config").args([question, "libdpdk >= 22.11"]).output();
        match output {
            Ok(output) if output.status.success() => {
                String::from_utf8_lossy(&output.stdout).split_whitespace().map(ToString::to_string).collect()
            }
            Ok(output) => {
                panic!("{REMEDY} (pkg-config: {})", String::from_utf8_lossy(&output.stderr).trim())
            }
            Err(why) => panic!("{REMEDY} (pkg-config: {why})"),
        }
    }
}
