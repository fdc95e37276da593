//! Real programs that carry a file from a server to a client, with throw-away keys and
//! configurations in a folder of the laboratory. Nothing else is written: what a server insists on
//! having elsewhere (/run/sshd) is mounted for it alone.

use std::fs;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path as File, PathBuf};
use std::time::Duration;

use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::measure::counters;
use crate::process::{self, Journal, Process};
use crate::topology::{Host, Path};

/// A way to carry a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum App {
    /// FTP: curl from pyftpdlib.
    Ftp,
    /// HTTP: curl from nginx.
    Http,
    /// HTTPS with TLS 1.3: curl from nginx.
    Https,
    /// OpenSSH's scp.
    Scp,
    /// OpenSSH's sftp.
    Sftp,
}

/// The cipher of TLS and SSH: the same as aes128gcm16 of the IPsec systems.
pub const CIPHER: &str = "AES-128-GCM";
/// Time limit of a short helper command.
const COMMAND: Duration = Duration::from_secs(10);
/// How long we wait for the end of a process whose sockets are closed.
const ENDING: Duration = Duration::from_millis(500);
/// The interpreter of the distribution, whose packages it sees.
const PYTHON: &str = "/usr/bin/python3";

impl App {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Ftp, Self::Http, Self::Https, Self::Scp, Self::Sftp];

    /// Name in tables and records, such as `ftp`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ftp => "ftp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Scp => "scp",
            Self::Sftp => "sftp",
        }
    }

    /// The program encrypts by itself.
    pub const fn encrypts(self) -> bool {
        matches!(self, Self::Https | Self::Scp | Self::Sftp)
    }

    /// Programs and kernel features that this machine lacks, each with its remedy.
    pub fn lacks(self) -> Vec<Remedy> {
        let needed: &[(&str, &str)] = match self {
            Self::Ftp => &[("curl", "curl")],
            Self::Http => &[("curl", "curl"), ("nginx", "nginx-light")],
            Self::Https => &[("curl", "curl"), ("nginx", "nginx-light"), ("openssl", "openssl")],
            Self::Scp => &[("scp", "openssh-client"), ("sshd", "openssh-server")],
            Self::Sftp => &[("sftp", "openssh-client"), ("sshd", "openssh-server")],
        };
        let lack = |what: String, package: &str| Remedy::new(what, format!("apt-get install {package}"));
        let missing = needed.iter().filter(|(program, _)| process::find(program).is_none());
        let mut lacks: Vec<Remedy> = missing
            .map(|(program, package)| lack(format!("`{program}` is not installed"), package))
            .collect();
        let python = self == Self::Ftp
            && !process::run_regardless(&[PYTHON, "-c", "import pyftpdlib"], COMMAND)
                .is_ok_and(|done| done.status.success());
        if python {
            lacks.push(lack("`pyftpdlib` is not installed".into(), "python3-pyftpdlib"));
        }
        lacks
    }

    /// The ports of its server.
    const fn port(self) -> u16 {
        match self {
            Self::Ftp => 2121,
            Self::Http => 8080,
            Self::Https => 8443,
            Self::Scp | Self::Sftp => 2222,
        }
    }
}

/// The processes below `ancestor`; `parents` has every process's id with that of its parent.
fn descendants(ancestor: u32, parents: &[(u32, u32)]) -> Vec<u32> {
    let (mut all, mut next) = (vec![ancestor], 0);
    while let Some(parent) = all.get(next).copied() {
        let own = parents
            .iter()
            .filter(|(child, of)| *of == parent && !all.contains(child))
            .map(|(child, _)| *child);
        let own: Vec<u32> = own.collect();
        all.extend(own);
        next += 1;
    }
    all.remove(0);
    all
}

/// Servers of one kind of application at work; dropping it ends them.
#[derive(Debug)]
pub struct Server {
    app: App,
    process: Process,
    dir: PathBuf,
}

impl Server {
    /// Serves the files in `files` on `host`. `dir`, new and private, is for keys, configurations
    /// and logs.
    pub fn start(
        app: App,
        host: Host<'_>,
        files: &File,
        dir: &File,
        journal: &Journal,
    ) -> Result<Self, LabError> {
        fs::create_dir(dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
        let (address, port) = (host.address, app.port());
        let argv = match app {
            App::Ftp => [
                PYTHON,
                "-m",
                "pyftpdlib",
                "-i",
                &address.to_string(),
                "-p",
                &port.to_string(),
                "-d",
                &shown(files),
            ]
            .map(String::from)
            .to_vec(),
            App::Http | App::Https => nginx(app, host, files, dir, journal)?,
            App::Scp | App::Sftp => sshd(host, dir, journal)?,
        };
        let process = Process::start(journal, app.name(), &host.netns.exec(&argv), &dir.join("server.log"))?;
        let mut server = Self { app, process, dir: dir.to_path_buf() };
        let listens =
            || host.netns.read("/proc/thread-self/net/tcp").is_ok_and(|t| counters::listens(&t, port));
        let up = interrupt::wait_until(Duration::from_secs(10), || {
            Ok(server.process.ended().is_some() || listens())
        })?;
        if !up || server.process.ended().is_some() {
            let tail = server.process.tail(3).lines.join(" ");
            return Err(LabError::Measurement(format!("the {} server did not start: {tail}", app.name())));
        }
        Ok(server)
    }

    /// An error once the server has ended.
    pub fn alive(&mut self) -> Result<(), LabError> {
        match self.process.ended() {
            Some(status) => Err(self.stopped(&format!("server ended ({status})"), None)),
            None => Ok(()),
        }
    }

    /// Finds the cause when the client has ended as it should not; `how` says how, such as "ended
    /// (exit status: 56)". If the server has ended or `alive` returns an error, that is the cause;
    /// else the last lines of both are the error.
    pub fn failed(
        &mut self,
        client: &Process,
        how: &str,
        mut alive: impl FnMut() -> Result<(), LabError>,
    ) -> LabError {
        let found = interrupt::wait_until(ENDING, || {
            alive()?;
            self.alive().map(|()| false)
        });
        match found {
            Err(why) => why,
            Ok(_) => self.stopped(&format!("client {how}"), Some(client)),
        }
    }

    /// With the last lines of a client and of the server.
    fn stopped(&self, what: &str, client: Option<&Process>) -> LabError {
        let mut why = format!("the load stopped: the {} {what}", self.app.name());
        for (end, process) in client.map(|c| ("client", c)).into_iter().chain([("server", &self.process)]) {
            let lines: String = process.tail(3).lines.iter().map(|line| format!("\n    {line}")).collect();
            if !lines.is_empty() {
                why.push_str(&format!("\n  last lines of the {end}:{lines}"));
            }
        }
        LabError::Measurement(why)
    }

    /// Ids of the processes that descend from it, those included that have ended and are not yet
    /// waited for.
    pub fn children(&self) -> Vec<u32> {
        descendants(self.process.id(), &counters::parents())
    }

    /// Waits, half a second at most, until it has no more children than those of `before`: what a
    /// session used is its account's when it has ended and been waited for.
    pub fn settle(&self, before: &[u32]) -> Result<(), LabError> {
        let settled = || Ok(self.children().iter().all(|child| before.contains(child)));
        interrupt::wait_until(Duration::from_millis(500), settled).map(drop)
    }

    /// The command by which the client of `path` fetches `file` (of those served, by its path on
    /// the server) to `to`, at most at `rate` bits per second.
    pub fn fetch(&self, path: &Path<'_>, file: &File, to: &File, rate: Option<u64>) -> Vec<String> {
        let (from, server, port) = (path.from.address.to_string(), path.to.address, self.app.port());
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        let dir = shown(&self.dir);
        let argv: Vec<String> = match self.app {
            App::Ftp | App::Http | App::Https => {
                let url = format!("{}://{server}:{port}/{name}", self.app.name());
                let mut argv = ["curl", "-q", "-sS", "--fail", "--interface", &from, "-o", &shown(to)]
                    .map(String::from)
                    .to_vec();
                if self.app == App::Https {
                    let tls =
                        ["--cacert", &format!("{dir}/cert.pem"), "--tls13-ciphers", "TLS_AES_128_GCM_SHA256"];
                    argv.extend(tls.map(String::from));
                }
                if let Some(rate) = rate {
                    argv.extend(["--limit-rate".into(), (rate / 8).to_string()]);
                }
                argv.push(url);
                argv
            }
            App::Scp | App::Sftp => {
                let mut argv = [
                    "env",
                    &format!("HOME={dir}"),
                    self.app.name(),
                    "-q",
                    "-F",
                    "none",
                    "-P",
                    &port.to_string(),
                ]
                .map(String::from)
                .to_vec();
                for option in [
                    format!("IdentityFile={dir}/client"),
                    format!("UserKnownHostsFile={dir}/known_hosts"),
                    format!("BindAddress={from}"),
                    "Ciphers=aes128-gcm@openssh.com".into(),
                    "StrictHostKeyChecking=yes".into(),
                    "BatchMode=yes".into(),
                    "IdentitiesOnly=yes".into(),
                    "Compression=no".into(),
                ] {
                    argv.extend(["-o".into(), option]);
                }
                if let Some(rate) = rate {
                    // In kbit/s.
                    argv.extend(["-l".into(), (rate / 1000).max(1).to_string()]);
                }
                argv.extend([format!("root@{server}:{}", shown(file)), shown(to)]);
                argv
            }
        };
        path.from.netns.exec(&argv)
    }
}

fn shown(path: &File) -> String {
    path.to_string_lossy().into_owned()
}

fn write(path: PathBuf, text: &str) -> Result<String, LabError> {
    use std::io::Write;
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&path)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .map_err(LabError::io(format!("writing {}", path.display())))?;
    Ok(shown(&path))
}

fn nginx(
    app: App,
    host: Host<'_>,
    files: &File,
    dir: &File,
    journal: &Journal,
) -> Result<Vec<String>, LabError> {
    let (d, address, port) = (shown(dir), host.address, app.port());
    let mut tls = String::new();
    let mut listen = format!("{address}:{port}");
    if app == App::Https {
        let (subject, name) = (format!("/CN={address}"), format!("subjectAltName=IP:{address}"));
        let (key, cert) = (format!("{d}/key.pem"), format!("{d}/cert.pem"));
        let argv = [
            "openssl",
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "2",
            "-subj",
            &subject,
            "-addext",
            &name,
            "-keyout",
            &key,
            "-out",
            &cert,
        ];
        process::run(journal, &argv, COMMAND)?;
        listen.push_str(" ssl");
        tls = format!(
            "ssl_certificate {cert}; ssl_certificate_key {key}; ssl_protocols TLSv1.3;\n\
             ssl_conf_command Ciphersuites TLS_AES_128_GCM_SHA256;"
        );
    }
    let temp: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .iter()
        .map(|n| format!("{n}_temp_path {d}/{n};\n"))
        .collect();
    let conf = format!(
        "daemon off; user root; worker_processes 1; pid {d}/pid; error_log stderr;\n\
         events {{ worker_connections 64; }}\n\
         http {{\n{temp}access_log off; sendfile on; tcp_nopush on;\n\
         server {{ listen {listen}; root {};\n{tls} }} }}\n",
        shown(files)
    );
    let conf = write(dir.join("nginx.conf"), &conf)?;
    Ok(["nginx", "-e", "stderr", "-p", &d, "-c", &conf].map(String::from).to_vec())
}

fn sshd(host: Host<'_>, dir: &File, journal: &Journal) -> Result<Vec<String>, LabError> {
    let d = shown(dir);
    for key in ["host", "client"] {
        let path = format!("{d}/{key}");
        process::run(
            journal,
            &["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", &path],
            COMMAND,
        )?;
    }
    let public = |key: &str| {
        let path = dir.join(format!("{key}.pub"));
        fs::read_to_string(&path).map_err(LabError::io(format!("reading {}", path.display())))
    };
    write(dir.join("authorized_keys"), &public("client")?)?;
    let port = App::Scp.port();
    write(dir.join("known_hosts"), &format!("[{}]:{port} {}", host.address, public("host")?))?;
    let conf = format!(
        "ListenAddress {}:{port}\nHostKey {d}/host\nAuthorizedKeysFile {d}/authorized_keys\nPidFile none\nUsePAM no\n\
         StrictModes no\nPermitRootLogin prohibit-password\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n\
         Ciphers aes128-gcm@openssh.com\nSubsystem sftp internal-sftp\nPrintLastLog no\nUseDNS no\nMaxStartups 100\n",
        host.address
    );
    let conf = write(dir.join("sshd_config"), &conf)?;
    let sshd = process::find("sshd").unwrap_or_else(|| "sshd".into());
    // `ip netns exec` has a mount namespace of its own: nobody else sees this /run.
    let script = format!(
        "mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/sshd && exec {} -D -e -f {}",
        process::quoted(&[shown(&sshd)]),
        process::quoted(&[conf])
    );
    Ok(["sh", "-c", &script].map(String::from).to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_below_the_listener_however_deep() {
        // 2 listens, 7 and 8 are a session's; 3 is another program, 9 its child.
        let parents = [(1, 0), (2, 1), (3, 1), (8, 7), (7, 2), (9, 3)];
        assert_eq!(descendants(2, &parents), [7, 8]);
        assert_eq!(descendants(8, &parents), [0; 0]);
        // A table that changed while it was read may have a circle.
        assert_eq!(descendants(5, &[(5, 6), (6, 5)]), [6]);
    }
}
