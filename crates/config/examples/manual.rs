//! Writes the tables of keys in `docs/manual/configuration.md` from the table in
//! `src/meaning/keys/`.

fn main() -> std::io::Result<()> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/configuration.md");
    let page = std::fs::read_to_string(&path)?;
    let page = ironswan_config::manual(&page).map_err(std::io::Error::other)?;
    std::fs::write(&path, page)
}
