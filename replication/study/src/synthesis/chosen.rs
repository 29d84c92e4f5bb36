//! Which campaigns of the page stand in another one's report, in lighter marks.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;

use super::{Depth, TABLE};
use crate::files;
use crate::judge::verdict::Evidence;
use crate::others::{Cost, Other, Others};

/// So many fit into the first picture: the largest models.
const MOST: usize = 2;

/// What is needed of a row of index.csv.
#[derive(Deserialize)]
struct Row {
    paper: String,
    arm: String,
    source: String,
    profile: String,
    parameters: Option<u64>,
    depth: String,
    evidence: String,
    unit: String,
    number: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    n: Option<u64>,
}

impl Others {
    /// From the text of index.csv: campaigns that got as deep as the paper, of each size the one with the most runs, unless that is one of `except`.
    /// One seed alone says nothing of how sure it is, and does not take the place of several. What cannot be read is left out.
    pub fn from_index(index: &str, except: &[&str]) -> Self {
        // Each with its runs.
        let mut campaigns: BTreeMap<(String, String), (Other, u64)> = BTreeMap::new();
        let measured = [Evidence::Native, Evidence::Emulated].map(Evidence::word);
        let wanted = |row: &Row| row.depth == Depth::Matched.word() && measured.contains(&row.evidence.as_str()) && row.unit == "share";
        for row in csv::Reader::from_reader(index.as_bytes()).deserialize::<Row>().filter_map(Result::ok).filter(wanted) {
            let (Some(number), Some(parameters)) = (row.number, row.parameters) else { continue };
            let Row { paper, arm, source, profile, low, high, n, .. } = row;
            if arm.is_empty() {
                continue;
            }
            let new = || (Other { paper: paper.clone(), directory: source.clone(), profile, parameters, costs: BTreeMap::new() }, 0);
            let (other, runs) = campaigns.entry((paper.clone(), source.clone())).or_insert_with(new);
            if other.costs.insert(arm, Cost { number, interval: low.zip(high).map(|(low, high)| [low, high]) }).is_none() {
                *runs += n.unwrap_or_default();
            }
        }
        let mut campaigns: Vec<(Other, u64)> = campaigns.into_values().collect();
        campaigns.retain(|(other, _)| other.costs.values().any(|cost| cost.interval.is_some()));
        let order =
            |(other, runs): &(Other, u64)| (other.paper.clone(), Reverse(other.parameters), Reverse(*runs), other.directory.clone());
        campaigns.sort_by_key(order);
        let mut campaigns: Vec<Other> = campaigns.into_iter().map(|(other, _)| other).collect();
        campaigns.dedup_by_key(|other| (other.paper.clone(), other.parameters));
        campaigns.retain(|other| !except.contains(&other.directory.as_str()));
        let mut kept: BTreeMap<String, usize> = BTreeMap::new();
        campaigns.retain(|other| {
            let count = kept.entry(other.paper.clone()).or_default();
            *count += 1;
            *count <= MOST
        });
        Self { campaigns }
    }

    /// Of the repository at `root`; none without its page of all evidence, as in a packed folder.
    pub fn of_repository(root: &Path, except: &[&str]) -> Option<Self> {
        let text = files::read_text(&root.join("results").join(TABLE)).ok()?;
        Some(Self::from_index(&text, except)).filter(|others| !others.campaigns.is_empty())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    const INDEX: &str = "paper,claim,arm,source,profile,parameters,depth,evidence,unit,number,low,high,n\n\
        p,A,a,small,s,1000,matched depth,emulated,share,0.3,0.2,0.4,2\n\
        p,A,a,large,l,3000,matched depth,emulated,share,0.1,0.05,0.15,3\n\
        p,B,b,large,l,3000,matched depth,native,share,0.2,,,1\n\
        p,A,a,again,m,2000,matched depth,emulated,share,0.35,,,1\n\
        p,A,a,middle,m,2000,matched depth,emulated,share,0.25,0.2,0.3,2\n\
        p,A,a,large,l,3000,last quarter,emulated,share,0.9,0.8,1.0,3\n\
        p,A,a,single,l,5000,matched depth,emulated,share,0.15,,,1\n\
        p,A,a,line,,8000,matched depth,modelled,share,-0.3,-0.5,0.1,2\n\
        p,C,c,logs,,9000,matched depth,public-log,share,0.05,0.0,0.1,2\n\
        p,D,d,large,l,3000,matched depth,emulated,nat,0.05,0.0,0.1,2\n\
        p,E,,large,l,3000,matched depth,emulated,share,-0.05,-0.08,-0.01,3\n\
        broken\n";

    /// The two largest models that were trained, without the directory itself; nothing modelled, no other depth, no gap in nats. Of two
    /// campaigns of one size the one with fewer seeds stays out, and so does a larger one with a single seed.
    #[test]
    fn the_largest_campaigns_at_the_papers_depth_are_taken() {
        let names = |others: &Others| others.campaigns.iter().map(|other| other.directory.clone()).collect::<Vec<_>>();
        let others = Others::from_index(INDEX, &["somewhere"]);
        assert_eq!(names(&others), ["large", "middle"]);
        let expected = [("a", Cost { number: 0.1, interval: Some([0.05, 0.15]) }), ("b", Cost { number: 0.2, interval: None })];
        assert_eq!(others.campaigns[0].costs, expected.map(|(arm, cost)| (arm.to_owned(), cost)).into());
        assert_eq!(names(&Others::from_index(INDEX, &["large"])), ["middle", "small"]);
        assert_eq!(names(&Others::from_index(INDEX, &["middle", "large"])), ["small"]);
        assert!(Others::from_index("", &[]).campaigns.is_empty() && Others::from_index("a,b\n1,2\n", &[]).campaigns.is_empty());
    }
}
