//! Receivers of notifications; none is declared.

use halite_proto::tonic::Status;
use halite_proto::transport::Channel;
use halite_proto::v1;
use halite_proto::v1::operator_client::OperatorClient;

/// Lists or tests them.
pub async fn call(method: &str, channel: Channel) -> Result<(), Status> {
    let mut operator = OperatorClient::new(channel);
    let answer = if method.ends_with("/ListSinks") {
        operator.list_sinks(v1::ListSinksRequest {}).await
    } else {
        let request = v1::TestSinksRequest::default();
        operator.test_sinks(request).await
    };
    answer.map(drop)
}
