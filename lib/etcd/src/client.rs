//! The client of a real cluster.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Mutex;
use tonic::{Response, Status as Answered};

use crate::access::{Access, AccessError};
use crate::connection::{AddressPath, Connection};
use crate::error::{EtcdError, NoAnswer, Unanswered};
use crate::member::{
    Alarm, AlarmKind, KEYS, Keys, KeysHash, Member, MemberId, Members, MembersFuture, Status,
};
use crate::refusal::Refusal;
use crate::snapshot::{SNAPSHOT, Snapshot};
use crate::wire::alarm_request::AlarmAction;
use crate::wire::cluster_client::ClusterClient;
use crate::wire::kv_client::KvClient;
use crate::wire::maintenance_client::MaintenanceClient;
use crate::wire::{
    AlarmRequest, AlarmType, CompactionRequest, DefragmentRequest, HashKvRequest, MemberAddRequest,
    MemberListRequest, MemberPromoteRequest, MemberRemoveRequest, MoveLeaderRequest, PutRequest,
    RangeRequest, SnapshotRequest, StatusRequest,
};

/// Timeout of a call. etcd itself cancels one that needs a quorum after about seven seconds.
const CALL: Duration = Duration::from_secs(8);
/// Timeout of a status call: it needs no other member.
const STATUS: Duration = Duration::from_secs(2);
/// Timeout of a count of all keys.
const COUNT: Duration = Duration::from_secs(60);
/// Timeout of a compaction, which the member answers when its database is compacted.
const COMPACT: Duration = Duration::from_secs(120);
/// Timeout of a defragmentation, during which the member answers nothing.
const DEFRAGMENT: Duration = Duration::from_secs(120);

/// A client of one cluster. Calls try the addresses in turn until one answers, starting with the
/// one that answered last.
pub struct Client {
    endpoints: Vec<String>,
    way: AddressPath,
    /// The index of the address that answered last.
    last: AtomicUsize,
    open: Mutex<BTreeMap<String, Connection>>,
}

impl Client {
    /// A client of the members at these addresses (`https://HOST:PORT`). It connects on first use.
    ///
    /// # Errors
    /// Certificates and key cannot be used.
    pub fn new(endpoints: Vec<String>, access: &Access) -> Result<Self, AccessError> {
        Ok(Self::by(endpoints, AddressPath::Tls(access.config()?)))
    }

    /// A client of a member on this host that listens on a socket and trusts every process that can
    /// open it.
    #[must_use]
    pub fn of_socket(path: &Path) -> Self {
        Self::by(vec![path.display().to_string()], AddressPath::Socket)
    }

    fn by(endpoints: Vec<String>, way: AddressPath) -> Self {
        Self {
            endpoints,
            way,
            last: AtomicUsize::new(0),
            open: Mutex::default(),
        }
    }

    /// The member behind the addresses of this client, whatever addresses it reports itself.
    #[must_use]
    pub fn member(&self) -> Member {
        Member {
            id: MemberId(0),
            name: String::new(),
            peer_urls: Vec::new(),
            client_urls: self.endpoints.clone(),
            is_learner: false,
        }
    }

    async fn connection(&self, endpoint: &str) -> Result<Connection, NoAnswer> {
        let known = self.open.lock().await.get(endpoint).cloned();
        if let Some(known) = known.filter(|known| !known.is_closed()) {
            return Ok(known);
        }
        // Not under the lock: a silent address must not delay the others.
        let opened = Connection::open(endpoint, &self.way).await?;
        self.open
            .lock()
            .await
            .insert(endpoint.to_owned(), opened.clone());
        Ok(opened)
    }

    /// One call to one address: the answer, a refusal by the cluster, or the reason for no answer.
    async fn once<T, F, Fut>(
        &self,
        endpoint: &str,
        limit: Duration,
        call: F,
    ) -> Result<Result<T, Refusal>, NoAnswer>
    where
        F: FnOnce(Connection) -> Fut,
        Fut: Future<Output = Result<Response<T>, Answered>>,
    {
        let connection = self.connection(endpoint).await?;
        let answer = tokio::time::timeout(limit, call(connection)).await;
        let failed = match answer {
            Ok(Ok(response)) => return Ok(Ok(response.into_inner())),
            Ok(Err(status)) => {
                let refusal = Refusal::from_status(&status);
                if !refusal.is_of_this_member() {
                    return Ok(Err(refusal));
                }
                NoAnswer::Unavailable(refusal)
            }
            Err(_) => NoAnswer::Timeout(limit.as_secs()),
        };
        // The next call opens a new connection: this one may lead to a process that is gone.
        self.open.lock().await.remove(endpoint);
        Err(failed)
    }

    async fn any<T, F, Fut>(&self, action: &'static str, call: F) -> Result<T, EtcdError>
    where
        F: Fn(Connection) -> Fut,
        Fut: Future<Output = Result<Response<T>, Answered>>,
    {
        self.any_within(CALL, action, call).await
    }

    async fn any_within<T, F, Fut>(
        &self,
        limit: Duration,
        action: &'static str,
        call: F,
    ) -> Result<T, EtcdError>
    where
        F: Fn(Connection) -> Fut,
        Fut: Future<Output = Result<Response<T>, Answered>>,
    {
        let mut source = Unanswered::default();
        let first = self.last.load(Ordering::Relaxed);
        for place in 0..self.endpoints.len() {
            let place = (first + place) % self.endpoints.len();
            let endpoint = &self.endpoints[place];
            match self.once(endpoint, limit, &call).await {
                Ok(answer) => {
                    self.last.store(place, Ordering::Relaxed);
                    return answer.map_err(|source| refused(action, endpoint, source));
                }
                Err(cause) => source.0.push((endpoint.clone(), cause)),
            }
        }
        Err(EtcdError::NoAnswer { action, source })
    }

    async fn at<T, F, Fut>(
        &self,
        member: &Member,
        limit: Duration,
        action: &'static str,
        call: F,
    ) -> Result<T, EtcdError>
    where
        F: Fn(Connection) -> Fut,
        Fut: Future<Output = Result<Response<T>, Answered>>,
    {
        let mut source = Unanswered::default();
        for endpoint in &member.client_urls {
            match self.once(endpoint, limit, &call).await {
                Ok(answer) => return answer.map_err(|source| refused(action, endpoint, source)),
                Err(cause) => source.0.push((endpoint.clone(), cause)),
            }
        }
        Err(EtcdError::NoAnswer { action, source })
    }

    async fn members(&self, linearizable: bool) -> Result<Vec<Member>, EtcdError> {
        let call = |connection| async move {
            let request = MemberListRequest { linearizable };
            ClusterClient::new(connection).member_list(request).await
        };
        let answer = self.any("list the members of etcd", call).await?;
        let member = |member: crate::wire::Member| Member {
            id: MemberId(member.id),
            name: member.name,
            peer_urls: member.peer_ur_ls,
            client_urls: member.client_ur_ls,
            is_learner: member.is_learner,
        };
        Ok(answer.members.into_iter().map(member).collect())
    }

    /// Writes a key.
    ///
    /// # Errors
    /// No quorum has confirmed the write; it may have happened.
    pub async fn put(&self, key: &[u8], value: &[u8]) -> Result<(), EtcdError> {
        let call = |connection| async move {
            let (key, value) = (key.to_vec(), value.to_vec());
            let request = PutRequest { key, value };
            KvClient::new(connection).put(request).await
        };
        self.any("write a key", call).await.map(drop)
    }

    /// The value of a key, as agreed by a quorum; `None` if the key does not exist.
    ///
    /// # Errors
    /// No member answers.
    pub async fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, EtcdError> {
        let call = |connection| async move {
            let request = RangeRequest {
                key: key.to_vec(),
                ..RangeRequest::default()
            };
            KvClient::new(connection).range(request).await
        };
        let answer = self.any("read a key", call).await?;
        Ok(answer.kvs.into_iter().next().map(|pair| pair.value))
    }

    /// The hash of all keys and values of a member at a revision (0: its newest).
    ///
    /// # Errors
    /// The member does not answer, or does not have the revision.
    pub async fn hash_kv(&self, member: &Member, revision: i64) -> Result<KeysHash, EtcdError> {
        let call = |connection| async move {
            let request = HashKvRequest { revision };
            MaintenanceClient::new(connection).hash_kv(request).await
        };
        let answer = self
            .at(member, CALL, "read the hash of a member", call)
            .await?;
        let newest = answer.header.map_or(0, |header| header.revision);
        Ok(KeysHash {
            hash: answer.hash,
            revision: if revision == 0 { newest } else { revision },
            compacted: answer.compact_revision,
        })
    }
}

fn refused(action: &'static str, endpoint: &str, source: Refusal) -> EtcdError {
    EtcdError::Refused {
        action,
        endpoint: endpoint.to_owned(),
        source,
    }
}

/// A size that etcd sends as a signed number.
fn size(bytes: i64) -> u64 {
    u64::try_from(bytes).unwrap_or(0)
}

impl Members for Client {
    fn list(&self) -> MembersFuture<'_, Vec<Member>> {
        Box::pin(self.members(true))
    }

    fn known(&self) -> MembersFuture<'_, Vec<Member>> {
        Box::pin(self.members(false))
    }

    fn status<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Status> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = StatusRequest {};
                MaintenanceClient::new(connection).status(request).await
            };
            let answer = self
                .at(member, STATUS, "read the state of a member", call)
                .await?;
            let header = answer.header.unwrap_or_default();
            Ok(Status {
                member: MemberId(header.member_id),
                cluster: header.cluster_id,
                leader: Some(MemberId(answer.leader)).filter(|id| id.0 != 0),
                raft_index: answer.raft_index,
                applied: answer.raft_applied_index,
                revision: header.revision,
                db_size: size(answer.db_size),
                db_in_use: size(answer.db_size_in_use),
                db_quota: size(answer.db_size_quota),
                is_learner: answer.is_learner,
                version: answer.version,
                errors: answer.errors,
            })
        })
    }

    fn alarms(&self) -> MembersFuture<'_, Vec<Alarm>> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = AlarmRequest {
                    action: AlarmAction::Get.into(),
                    ..AlarmRequest::default()
                };
                MaintenanceClient::new(connection).alarm(request).await
            };
            let answer = self.any("read the alarms", call).await?;
            let alarm = |alarm: crate::wire::AlarmMember| {
                let kind = match alarm.alarm() {
                    AlarmType::None => return None,
                    AlarmType::Nospace => AlarmKind::NoSpace,
                    AlarmType::Corrupt => AlarmKind::Corrupt,
                };
                let member = MemberId(alarm.member_id);
                Some(Alarm { member, kind })
            };
            Ok(answer.alarms.into_iter().filter_map(alarm).collect())
        })
    }

    fn add_learner<'a>(&'a self, peer_url: &'a str) -> MembersFuture<'a, ()> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = MemberAddRequest {
                    peer_ur_ls: vec![peer_url.to_owned()],
                    is_learner: true,
                };
                ClusterClient::new(connection).member_add(request).await
            };
            self.any("add a learner", call).await.map(drop)
        })
    }

    fn promote(&self, id: MemberId) -> MembersFuture<'_, ()> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = MemberPromoteRequest { id: id.0 };
                ClusterClient::new(connection).member_promote(request).await
            };
            self.any("promote a learner", call).await.map(drop)
        })
    }

    fn remove(&self, id: MemberId) -> MembersFuture<'_, ()> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = MemberRemoveRequest { id: id.0 };
                ClusterClient::new(connection).member_remove(request).await
            };
            self.any("remove a member", call).await.map(drop)
        })
    }

    fn move_leader<'a>(&'a self, leader: &'a Member, to: MemberId) -> MembersFuture<'a, ()> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = MoveLeaderRequest { target_id: to.0 };
                MaintenanceClient::new(connection)
                    .move_leader(request)
                    .await
            };
            self.at(leader, CALL, "move the leader", call)
                .await
                .map(drop)
        })
    }

    fn compact(&self, revision: i64) -> MembersFuture<'_, ()> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = CompactionRequest {
                    revision,
                    physical: true,
                };
                KvClient::new(connection).compact(request).await
            };
            let done = self.any_within(COMPACT, "compact etcd", call).await;
            done.map(drop)
        })
    }

    fn defragment<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, ()> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = DefragmentRequest {};
                MaintenanceClient::new(connection).defragment(request).await
            };
            self.at(member, DEFRAGMENT, "defragment a member", call)
                .await
                .map(drop)
        })
    }

    fn disarm(&self, alarm: Alarm) -> MembersFuture<'_, ()> {
        Box::pin(async move {
            let kind = match alarm.kind {
                AlarmKind::NoSpace => AlarmType::Nospace,
                AlarmKind::Corrupt => AlarmType::Corrupt,
            };
            let call = |connection| async move {
                let request = AlarmRequest {
                    action: AlarmAction::Deactivate.into(),
                    member_id: alarm.member.0,
                    alarm: kind.into(),
                };
                MaintenanceClient::new(connection).alarm(request).await
            };
            self.any("disarm an alarm", call).await.map(drop)
        })
    }

    fn keys<'a>(&'a self, member: &'a Member, revision: i64) -> MembersFuture<'a, Keys> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = RangeRequest {
                    // All keys, according to etcd's documentation of `range_end`.
                    key: vec![0],
                    range_end: vec![0],
                    revision,
                    serializable: true,
                    count_only: true,
                    ..RangeRequest::default()
                };
                KvClient::new(connection).range(request).await
            };
            let answer = self.at(member, COUNT, KEYS, call).await?;
            let newest = answer.header.map_or(0, |header| header.revision);
            Ok(Keys {
                revision: if revision == 0 { newest } else { revision },
                count: size(answer.count),
            })
        })
    }

    fn snapshot<'a>(&'a self, member: &'a Member) -> MembersFuture<'a, Snapshot> {
        Box::pin(async move {
            let call = |connection| async move {
                let request = SnapshotRequest {};
                MaintenanceClient::new(connection).snapshot(request).await
            };
            let stream = self.at(member, CALL, SNAPSHOT, call).await?;
            let endpoint = member.client_urls.first().cloned().unwrap_or_default();
            let broken = move |status| refused(SNAPSHOT, &endpoint, Refusal::from_status(&status));
            Snapshot::begin(stream, broken).await
        })
    }
}
