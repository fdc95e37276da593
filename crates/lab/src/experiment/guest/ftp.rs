//! A file by FTP inside the guest, in the time of the guest's clock.

use std::fs;
use std::path::Path;
use std::time::Duration;

use super::count::Count;
use crate::error::LabError;
use crate::load::apps::{App, Server};
use crate::load::content::Content;
use crate::process;
use crate::topology::Topology;

const SEED: u64 = 1999;
/// Size of the file whose transfer brings both programs into memory.
const WARM_BYTES: usize = 65_536;
/// For one transfer; several minutes on a slow processor.
const TRANSFER: Duration = Duration::from_secs(60);
/// The client's own account: seconds until the transfer itself began and until its end, bytes.
const ACCOUNT: &str = "%{time_pretransfer} %{time_total} %{size_download}";

/// Fetches a file of so many random bytes along the first path of `topology`. `dir` is private.
pub(super) fn fetch(topology: &dyn Topology, dir: &Path, bytes: u64) -> Result<Count, LabError> {
    let paths = topology.paths();
    let path = paths.first().ok_or_else(|| LabError::Usage("a load needs a path".into()))?;
    let bytes = usize::try_from(bytes).map_err(|e| LabError::Usage(e.to_string()))?;
    let files = dir.join("files");
    fs::create_dir(&files).map_err(LabError::io(format!("creating {}", files.display())))?;
    let data = Content::Random.bytes(bytes, SEED);
    let (warm, file, copy) = (files.join("warm"), files.join("file"), dir.join("copy"));
    for (name, data) in [(&warm, &data[..bytes.min(WARM_BYTES)]), (&file, &data[..])] {
        fs::write(name, data).map_err(LabError::io(format!("writing {}", name.display())))?;
    }
    let journal = topology.journal();
    let mut server = Server::start(App::Ftp, path.to, &files, &dir.join("ftp"), journal)?;
    let mut carried = |file: &Path| {
        let mut argv = server.fetch(path, file, &copy, None);
        argv.extend(["-w", ACCOUNT].map(String::from));
        let said = process::run_with(journal, &argv, "", TRANSFER)?;
        server.alive()?;
        let account = account(&said).ok_or_else(|| {
            LabError::Measurement(format!("the FTP client's account is not as expected: `{}`", said.trim()))
        })?;
        Ok::<_, LabError>(account)
    };
    carried(&warm)?;
    let (took, got) = carried(&file)?;
    let arrived = fs::read(&copy).map_err(LabError::io("reading the copy that arrived"))?;
    if arrived != data || got != bytes as u64 {
        return Err(LabError::Measurement("ftp: the copy is not the file".into()));
    }
    // The kernel counts from the client's start to its end, which are not in its own time.
    Ok(Count { took, idle: Duration::ZERO, units: got, switches: 0 })
}

/// Time of the transfer itself, without the client's start and login, and its bytes.
fn account(said: &str) -> Option<(Duration, u64)> {
    let mut words = said.split_whitespace();
    let mut seconds = || words.next()?.parse::<f64>().ok();
    let (began, ended) = (seconds()?, seconds()?);
    let took = Duration::try_from_secs_f64(ended - began).ok()?;
    Some((took, words.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_is_as_long_as_the_client_says_without_its_login() {
        assert_eq!(account("0.250000 2.750000 1048576\n"), Some((Duration::from_millis(2500), 1_048_576)));
        for bad in ["", "1.0 2.0", "2.0 1.0 5", "x 1.0 5", "0.1 nan 5"] {
            assert_eq!(account(bad), None, "{bad}");
        }
    }
}
