//! Writes `docs/manual/diagnoses.md` and `docs/manual/symptoms.md` from the list of diagnoses.

use ironswan_keying::diagnosis::{diagnoses_page, symptoms_page};

fn main() -> std::io::Result<()> {
    let manual = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual");
    std::fs::write(manual.join("diagnoses.md"), diagnoses_page())?;
    std::fs::write(manual.join("symptoms.md"), symptoms_page())
}
