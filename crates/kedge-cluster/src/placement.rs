//! Placement of the vBuckets of a new bucket.

use crate::Chain;

/// Returns a chain for each vBucket. Actives and replicas are spread evenly over the nodes of these numbers, up to
/// rounding; the replicas of a node's actives are spread over all others. The same arguments give the same chains.
#[must_use]
pub fn place(numbers: &[u16], replicas: u8, vbuckets: u16) -> Vec<Chain> {
    let nodes = numbers.len();
    let replicas = usize::from(replicas).min(nodes.saturating_sub(1));
    let count = usize::from(vbuckets);
    // The number of times that each node was chosen as a replica of a node's actives, and in total.
    let mut of_active = vec![vec![0_usize; nodes]; nodes];
    let mut total = vec![0_usize; nodes];
    (0..count)
        .map(|vb| {
            let active = vb * nodes / count;
            let mut chain = vec![active];
            for _ in 0..replicas {
                let next = (1..nodes)
                    .map(|step| (active + step) % nodes)
                    .filter(|node| !chain.contains(node))
                    .min_by_key(|&node| (of_active[active][node], total[node]));
                let Some(node) = next else { break };
                of_active[active][node] += 1;
                total[node] += 1;
                chain.push(node);
            }
            let number = |node: usize| numbers.get(node).copied();
            Chain(chain.into_iter().map(number).collect())
        })
        .collect()
}
