//! JSON lines of measurements: our own kernels taking turns, training steps, and the peer script's; each a name and its seconds.
//!
//! Lines of our own must follow their schema. A peer's line that does not becomes a row that says so: a broken peer may not cost
//! the measurements that stand beside it.

use serde_json::Value;
use study::kernels::{Missing, Peer, Samples};

/// Schema of the lines that the `ratios` benchmark prints.
pub(super) const SAMPLES_SCHEMA: &str = "mxfp4-kernels-samples/1";
/// Schema of the lines that `cpu_peers.py` prints.
pub(super) const PEER_SCHEMA: &str = "mxfp4-peer/1";

/// What the peer script said.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Peers {
    pub timings: Vec<Peer>,
    /// What could not be measured.
    pub missing: Vec<Missing>,
    /// Its environment line, as it is.
    pub environment: Option<Value>,
}

/// What is wrong with numbers that should be seconds; none when nothing is.
pub(super) fn wrong(operations: u64, samples: &[f64]) -> Option<String> {
    if samples.is_empty() {
        return Some("it has no samples".to_owned());
    }
    if operations == 0 {
        return Some("it counts no operations".to_owned());
    }
    let bad = samples.iter().find(|seconds| !(seconds.is_finite() && **seconds > 0.0))?;
    Some(format!("{bad} is not a time in seconds"))
}

/// The group of which the `ratios` benchmark has just ended a round, and waits.
pub(super) fn turn(line: &str) -> Option<String> {
    let value: Value = serde_json::from_str(line).ok()?;
    (value.get("kind")?.as_str()? == "turn").then(|| value.get("group")?.as_str().map(str::to_owned)).flatten()
}

/// The lines of the `ratios` benchmark, and the instruction set that its first line names.
///
/// # Errors
/// The number of the first line that does not follow the schema, and what is wrong with it.
pub(super) fn parse(text: &str) -> Result<(Vec<Samples>, Option<String>), String> {
    let (mut all, mut set) = (Vec::new(), None);
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty()) {
        let refuse = |what: String| format!("line {number}: {what}");
        let mut value: Value = serde_json::from_str(line).map_err(|error| refuse(format!("is not JSON ({error})")))?;
        let field = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let (schema, kind) = (field(&value, "schema"), field(&value, "kind"));
        if schema != SAMPLES_SCHEMA {
            return Err(refuse(format!("schema `{schema}` is not `{SAMPLES_SCHEMA}`")));
        }
        match kind.as_str() {
            "turn" => {}
            "machine" => set = Some(field(&value, "instruction_set")),
            "samples" => {
                for key in ["schema", "kind", "bytes"] {
                    value.as_object_mut().map(|object| object.remove(key));
                }
                let mut samples: Samples = serde_json::from_value(value).map_err(|error| refuse(error.to_string()))?;
                if let Some(what) = wrong(samples.operations, &samples.samples) {
                    return Err(refuse(what));
                }
                // One thread and two are measured one after the other, not in turns.
                samples.group = format!("{} {}t", samples.group, samples.threads);
                all.push(samples);
            }
            other => return Err(refuse(format!("kind `{other}` is not one of machine, samples, turn"))),
        }
    }
    Ok((all, set))
}

/// The lines of the peer script. What cannot be read is a row of [`Peers::missing`].
pub fn parse_peers(text: &str) -> Peers {
    let mut peers = Peers::default();
    for (number, line) in text.lines().enumerate().map(|(index, line)| (index + 1, line)).filter(|(_, line)| !line.trim().is_empty()) {
        if let Err(reason) = peer_line(line, &mut peers) {
            peers.missing.push(Missing {
                peer: "peer script".to_owned(),
                name: format!("line {number} of its output"),
                reason,
                install: "run the script alone and look at that line: python3 kernels/peers/cpu_peers.py".to_owned(),
            });
        }
    }
    peers
}

fn peer_line(line: &str, peers: &mut Peers) -> Result<(), String> {
    let mut value: Value = serde_json::from_str(line).map_err(|error| format!("is not JSON: {error}"))?;
    let take = |value: &mut Value, key: &str| value.as_object_mut().and_then(|object| object.remove(key));
    let word = |value: Option<Value>| value.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let (schema, kind) = (word(take(&mut value, "schema")), word(take(&mut value, "kind")));
    if schema != PEER_SCHEMA {
        return Err(format!("schema `{schema}` is not `{PEER_SCHEMA}`"));
    }
    match kind.as_str() {
        "environment" => peers.environment = Some(value),
        "timing" => {
            let peer: Peer = serde_json::from_value(value).map_err(|error| error.to_string())?;
            if let Some(what) = wrong(peer.operations, &peer.samples) {
                return Err(format!("{}: {what}", peer.name));
            }
            peers.timings.push(peer);
        }
        "missing" => peers.missing.push(serde_json::from_value(value).map_err(|error| error.to_string())?),
        other => return Err(format!("kind `{other}` is not one of environment, timing, missing")),
    }
    Ok(())
}
