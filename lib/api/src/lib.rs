//! The documents and events that the master sends to operators.
//!
//! The master builds these types, `ctl` prints them, and other programs read them as JSON. A
//! document is one JSON object with `apiVersion` and `kind`; a field without a value is left out.
//! Keys are in camelCase. A reader ignores unknown fields and keeps the text of unknown words, so
//! that both sides may have different versions.
//!
//! The head of a backup and the records of a move and of a standby are not documents: `ctl` reads
//! them and does not print them.
//!
//! `docs/reference/output.md` and `docs/reference/events.md` are generated from these types.

mod answer;
mod audit;
mod backup_answers;
mod backup_head;
mod backups;
mod bundle_answers;
mod bundle_files;
mod certificates;
mod client;
mod document;
mod etcd;
mod event;
mod event_data;
mod hand_over;
mod health;
mod job;
mod journal;
mod keys;
mod leaving;
mod local;
mod made;
mod masters;
mod notify;
mod outcome;
#[cfg(test)]
mod reference_tests;
mod registry_answers;
mod render;
mod run;
mod secrets;
mod standby_report;
mod status;
mod time;
mod upgrade;
mod word;

pub use answer::MinionAnswer;
pub use audit::{AuditLine, AuditLog};
pub use backup_answers::{CopiedBackup, MadeBackup, StartedEtcd, VerifiedBackup};
pub use backup_head::{BackupHead, BackupOptions, KeysAtRevision, SavedStandby, SnapshotMember};
pub use backups::{BackupHost, ClusterBackups, RegistryBackups};
pub use bundle_answers::{
    AddedBundle, BundleChange, BundleDiff, CopiedBundle, RefusedBundle, RemovedBundle, UsedBundle,
};
pub use bundle_files::{
    BundleContent, BundleDelta, BundlePackage, BundleProblem, BundleSigner, DeltaSide,
    ExportedDelta, NewSigningKey, PackedBundle, VerifiedBundle,
};
pub use certificates::{
    CaRequest, CertificateAuthority, CertificateList, CertificateRenewal, CertificateRenewals,
    HostCertificate, HostCertificates, IdentityCertificate, PreparedCa, PreparedState, RenewalMode,
    RenewalState, Renewer,
};
pub use client::{ClusterContext, ContextList, Versions};
pub use document::{API_VERSION, Document, ReadError, from_text, to_text, to_value};
pub use etcd::{Alarm, AlarmKind, DefragSchedule, EtcdMember, EtcdMemberRole, EtcdStatus};
pub use event::{Event, EventTag};
pub use event_data::{
    EventData, JobCreated, JobEnded, JournalLines, KeyAction, KeyChanged, MinionUpdate,
    ParallelRepair, PartReturned, PartStarted, RunCancelled, RunCreated, RunEnded, RunJob, RunStep,
    StateProgress, StepWait,
};
pub use hand_over::{HandOver, HandOverPhase, MasterMove};
pub use health::{CheckResult, CheckState, Health, HealthFinding};
pub use job::{Job, JobCancellation, JobList, JobPart, JobStatus, PartState};
pub use journal::HostJournal;
pub use keys::{
    KeyChange, KeyList, KeyState, Kubeconfig, KubeconfigList, MinionKey, OperatorAccount,
    OperatorList, OperatorRevocation, OperatorRole, OperatorState, Token, TokenList,
    TokenRevocation, TokenState,
};
pub use leaving::{DeclaredNode, LeavingHost};
pub use local::{
    BackupList, BackupOnDisk, BundleImage, BundleList, BundleOnSite, ImageList, RegistryBackupList,
    RegistryBackupOnDisk,
};
pub use made::{
    BootstrapPlan, DeclarationCheck, DeclarationProblem, DisplayedDeclaration, KubeconfigFile,
    LocalOutcome, NewNode, NewNodes, NewOperator, NewToken, PlannedStates, PreflightCheck,
    PreflightVerdict, SupportArchive,
};
pub use masters::{FailedHandOver, MasterList, Masters, StandbyHost, StandbyState};
pub use notify::{
    FailedAttempts, FindingNews, Notification, NotificationSink, NotifiedFinding, RefusedFinding,
    SinkList, SinkTest, SinkTests,
};
pub use outcome::{JobOutcome, MinionOutcome, RunOutcome, RunOutcomes};
pub use registry_answers::{MadeRegistryBackup, RestoredRegistry, VerifiedRegistryBackup};
pub use render::{Grains, MinionPillar, RenderedFile, RenderedFiles, RenderedLow, TopStates};
pub use run::{
    JobOrRun, Run, RunCancellation, RunList, RunStatus, RunSummary, Step, StepDetail, StepStatus,
};
pub use secrets::{NamedSecret, RecipientOfSecrets, SecretList, SecretRecipients};
pub use standby_report::{StreamGap, StreamReport};
pub use status::{
    ApiServer, ApiState, BundleInUse, BundleOfSite, ClusterDns, ClusterStatus, HighstateResult,
    KubernetesNode, LastHighstate, NodeList, NodeStatus, RecentRun, VirtualAddress,
};
pub use time::Time;
pub use upgrade::{
    BundleRelease, ConfirmedPlan, UpgradeCheck, UpgradeDrain, UpgradeFinding, UpgradeOptions,
    UpgradePlan, UpgradeSeverity, UpgradeState, UpgradeStatus, UpgradeTurn,
};
