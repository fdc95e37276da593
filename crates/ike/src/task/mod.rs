//! What an IKE_SA does, one operation a file. Each has `build` (our request), `process` (the response to it) and
//! `answer` (the peer's request), as far as it applies.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `answer_child` | the same as responder |
//! | `answer_init` | IKE_SA_INIT as responder |
//! | `auth` | IKE_AUTH |
//! | `create_child` | CREATE_CHILD_SA for children, as initiator |
//! | `delete` | DELETE, and other INFORMATIONAL requests |
//! | `liveness` | an empty INFORMATIONAL to a silent peer |
//! | `rekey_child` | rekeying a CHILD_SA |
//! | `rekey_ike` | rekeying the IKE_SA |
//! | `restart` | answers to IKE_SA_INIT that may be forged |
//! | `sa_init` | IKE_SA_INIT as initiator |

pub(crate) mod answer_child;
pub(crate) mod answer_init;
pub(crate) mod auth;
pub(crate) mod create_child;
pub(crate) mod delete;
pub(crate) mod liveness;
pub(crate) mod rekey_child;
pub(crate) mod rekey_ike;
pub(crate) mod restart;
pub(crate) mod sa_init;

use answer_child::Offered;
use create_child::{Answered, NewChild};
use delete::{DeleteChild, DeleteIke};
use rekey_ike::{OfferedIke, RekeyIke};

/// An operation that we start. It waits in its IKE_SA's queue, then is the one request in flight.
pub(crate) enum Task {
    /// IKE_SA_INIT.
    Init,
    /// IKE_AUTH, with the first child.
    Auth(Option<Box<NewChild>>),
    /// CREATE_CHILD_SA: a new child, or the successor of one.
    Child(Box<NewChild>),
    /// CREATE_CHILD_SA: the successor of the IKE_SA.
    RekeyIke(Box<RekeyIke>),
    /// INFORMATIONAL with DELETE for children.
    DeleteChild(DeleteChild),
    /// INFORMATIONAL with DELETE for the IKE_SA.
    DeleteIke(DeleteIke),
    /// An empty INFORMATIONAL.
    Liveness,
}

impl Task {
    /// Its name in VICI's `tasks-*` lists, which is charon's.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Init => "IKE_INIT",
            Self::Auth(_) => "IKE_AUTH",
            Self::Child(n) if n.rekey.is_some() => "CHILD_REKEY",
            Self::Child(_) => "CHILD_CREATE",
            Self::RekeyIke(_) => "IKE_REKEY",
            Self::DeleteChild(_) => "CHILD_DELETE",
            Self::DeleteIke(_) => "IKE_DELETE",
            Self::Liveness => "IKE_DPD",
        }
    }

    /// Concerns children: goes with them to the successor of the IKE_SA.
    pub(crate) fn follows_children(&self) -> bool {
        matches!(self, Self::Child(_) | Self::DeleteChild(_))
    }
}

/// Where to go on when an answer from outside has come.
pub(crate) enum Kont {
    /// These DNS names, the last one first, are looked up: then the peer's address is known.
    Resolve(Vec<String>),
    /// Our own address is known: IKE_SA_INIT can begin.
    Route,
    /// Initiator of IKE_SA_INIT: the key pair.
    InitKey,
    /// Initiator of IKE_SA_INIT: the shared secret.
    InitShared,
    /// Responder of IKE_SA_INIT: the key pair.
    AnswerInitKey,
    /// Responder of IKE_SA_INIT: the shared secret, asked for when the first IKE_AUTH arrives.
    AnswerInitShared,
    /// Initiator of CREATE_CHILD_SA for a child: the key pair.
    ChildKey(Box<NewChild>),
    /// The same: the shared secret.
    ChildShared(Box<NewChild>, Box<Answered>),
    /// Responder of CREATE_CHILD_SA for a child: the key pair.
    AnswerChildKey(Box<Offered>),
    /// The same: the shared secret.
    AnswerChildShared(Box<Offered>),
    /// Initiator of an IKE_SA's rekeying: the key pair.
    RekeyKey(Box<RekeyIke>),
    /// The same: the shared secret.
    RekeyShared(Box<RekeyIke>, Box<rekey_ike::Answered>),
    /// Responder of an IKE_SA's rekeying: the key pair.
    AnswerRekeyKey(Box<OfferedIke>),
    /// The same: the shared secret.
    AnswerRekeyShared(Box<OfferedIke>),
}

impl Kont {
    /// A key exchange that an established peer has asked for.
    pub(crate) fn is_of_peer(&self) -> bool {
        match self {
            Self::AnswerChildKey(_)
            | Self::AnswerChildShared(_)
            | Self::AnswerRekeyKey(_)
            | Self::AnswerRekeyShared(_) => true,
            Self::Resolve(_)
            | Self::Route
            | Self::InitKey
            | Self::InitShared
            | Self::AnswerInitKey
            | Self::AnswerInitShared
            | Self::ChildKey(_)
            | Self::ChildShared(..)
            | Self::RekeyKey(_)
            | Self::RekeyShared(..) => false,
        }
    }
}
