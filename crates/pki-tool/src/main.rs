//! The program `ironswan-pki`, which `ironswan pki` starts: keys, certificates, requests and
//! revocation lists for people, with the names and options of strongSwan's `pki`.
//!
//! ```text
//! make:  gen ─▶ self ─▶ issue ◀─ req        look at:  print, keyid, pub
//!                └────▶ signcrl, pkcs12     judge:    verify
//! ```
//! Encodings are those of the library `x509-cert`; signatures and keys those of `ironswan_crypto`.
//! Whether a certificate is accepted is decided by `ironswan_pki` alone, as in the gateway. Exit
//! status: 0 success, 1 the answer is no, 2 a usage error or a file that cannot be read or written.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `args` | the command line |
//! | `failure` | why a command did not do what it was asked |
//! | `files` | reads files, and writes new ones with their mode |
//! | `passphrase` | passphrases, from a file or the terminal |
//! | `kind` | what a file holds, found by its bytes |
//! | `wanted` | files that have to be of one kind |
//! | `keys` | `psk`, `gen`, `pub`, `keyid`, and public keys in files |
//! | `names` | distinguished names, names of certificates, constraints |
//! | `dates` | times on the command line and in certificates |
//! | `signed` | bodies with their signature |
//! | `extensions` | extensions of certificates and requests |
//! | `authority` | the CA that signs |
//! | `certificate` | `self` and `issue` |
//! | `request` | `req`, and requests that are read |
//! | `list` | `signcrl` |
//! | `container` | `pkcs12` |
//! | `show` | `print` |
//! | `shown` | certificates, requests, lists and keys as rows of words |
//! | `words` | extensions and algorithms in words |
//! | `verify` | `verify` |
//! | `remedy` | advice for each reason that refuses a chain |
#![forbid(unsafe_code)]

mod args;
mod authority;
mod certificate;
mod container;
mod dates;
mod extensions;
mod failure;
mod files;
mod keys;
mod kind;
mod list;
mod names;
mod passphrase;
mod remedy;
mod request;
mod show;
mod shown;
mod signed;
mod verify;
mod wanted;
mod words;

use std::process::ExitCode;

use clap::Parser;

use args::{Args, Command};
use failure::Failure;

fn main() -> ExitCode {
    let args = Args::parse_from(args::as_subcommand(std::env::args_os()));
    let (name, result) = match args.command {
        Command::Psk(a) => ("psk", keys::psk(&a)),
        Command::Gen(a) => ("gen", keys::generate(&a)),
        Command::Pub(a) => ("pub", keys::public(&a)),
        Command::Keyid(a) => ("keyid", keys::keyid(&a)),
        Command::SelfSigned(a) => ("self", certificate::self_signed(&a)),
        Command::Req(a) => ("req", request::request(&a)),
        Command::Issue(a) => ("issue", certificate::issue(&a)),
        Command::Signcrl(a) => ("signcrl", list::sign(&a)),
        Command::Pkcs12(a) => ("pkcs12", container::pkcs12(&a)),
        Command::Print(a) => ("print", show::print(&a)),
        Command::Verify(a) => ("verify", verify::verify(&a)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure { status, lines }) => {
            for line in lines {
                files::complain(&format!("ironswan pki {name}: error: {line}"));
            }
            ExitCode::from(status)
        }
    }
}
