use couchbase::authenticator::PasswordAuthenticator;
use couchbase::cluster::Cluster;
use couchbase::options::cluster_options::ClusterOptions;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options =
        ClusterOptions::new(PasswordAuthenticator::new("Administrator", "password").into());
    let cluster = Cluster::connect("couchbase://127.0.0.1", options).await?;
    let collection = cluster.bucket("default").default_collection();
    collection
        .upsert("hello", serde_json::json!({"from": "Rust"}), None)
        .await?;
    let content: serde_json::Value = collection.get("hello", None).await?.content_as()?;
    println!("{content}");
    Ok(())
}
