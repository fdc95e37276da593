//! Names of the schemas of what the planner writes. Pure.

/// The name and number of the schema of a model.
pub const MODEL_SCHEMA: &str = "ironswan.plan-model/4";

/// The name and number of the schema of an answer.
pub const ANSWER_SCHEMA: &str = "ironswan.plan/5";

/// The name and number of the schema of a verification.
pub const VERIFY_SCHEMA: &str = "ironswan.plan-verify/5";
