//! Keys: the `[security]` table, the flags that say the same, and `etherslot keygen`.

use std::io::{IsTerminal as _, stderr};
use std::path::PathBuf;

use anyhow::{Result, bail, ensure};
use clap::Args;
use etherslot_runtime::keys::{self, KeyFiles, NODE_FILE};
use etherslot_runtime::options::{LinkKind, LinkOptions, Peers, PublicKey, SecurityOptions};
use serde::Deserialize;
use serde_json::json;

use crate::stat::Output;
use crate::value;

/// Bold and red, and back.
pub(crate) const RED: [&str; 2] = ["\x1b[1;31m", "\x1b[0m"];

/// Where keys are, or that there are none.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct SecurityFlags {
    /// The file of the fabric's key; the node's own is beside it unless --node-key says otherwise. By default, both are where
    /// `etherslot keygen` makes them.
    #[arg(long, env = "ETHERSLOT_KEY", value_name = "FILE")]
    key: Option<PathBuf>,
    /// The file of the node's own key.
    #[arg(long, env = "ETHERSLOT_NODE_KEY", value_name = "FILE")]
    node_key: Option<PathBuf>,
    /// Do without keys: whoever reaches the link can read, change and use everything.
    #[arg(long)]
    pub(crate) plaintext: bool,
}

#[cfg(test)]
impl SecurityFlags {
    pub(crate) const PLAINTEXT: Self = Self { key: None, node_key: None, plaintext: true };
}

/// `[security]`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Security {
    /// The file of the fabric's key.
    key: Option<PathBuf>,
    /// The file of the node's own key.
    node_key: Option<PathBuf>,
    /// The nodes of the fabric that this one speaks with, if not all.
    #[serde(deserialize_with = "value::public_keys")]
    peers: Option<Vec<PublicKey>>,
    /// Do without keys.
    plaintext: bool,
}

/// What flags and file mean together for a node with these links.
pub(crate) fn resolve(
    table: &Security,
    flags: &SecurityFlags,
    links: &[LinkOptions],
) -> Result<SecurityOptions> {
    if flags.plaintext {
        return Ok(SecurityOptions::Plaintext);
    }
    let peers = table.peers.clone().map_or(Peers::Fabric, Peers::Listed);
    let key = flags.key.as_ref().or(table.key.as_ref());
    let node_key = flags.node_key.as_ref().or(table.node_key.as_ref());
    if table.plaintext {
        ensure!(
            key.is_none() && node_key.is_none() && peers == Peers::Fabric,
            "[security] has plaintext = true and keys or peers: remove one of them"
        );
        return Ok(SecurityOptions::Plaintext);
    }
    let usual = KeyFiles::usual();
    let files = match (key, node_key) {
        (Some(fabric), node) => {
            let node = node.cloned().unwrap_or_else(|| fabric.with_file_name(NODE_FILE));
            Some(KeyFiles { fabric: fabric.clone(), node })
        }
        (None, Some(node)) => usual.map(|usual| KeyFiles { node: node.clone(), ..usual }),
        (None, None) => usual.filter(|usual| usual.fabric.exists()),
    };
    if let Some(files) = files {
        return Ok(SecurityOptions::Keys { files, peers });
    }
    ensure!(peers == Peers::Fabric, "[security] peers needs keys: {HOW}");
    if links.iter().all(|link| matches!(link.kind, LinkKind::Ring { .. })) {
        return Ok(SecurityOptions::Memory);
    }
    bail!("there is no key, and without one everybody on the network could use the devices: {HOW}");
}

const HOW: &str = "`etherslot keygen` makes keys (take the file of the fabric's key to the other nodes); \
                   [security] plaintext = true, or --plaintext, does without";

/// Says it where it can't be missed.
pub(crate) fn warn(security: &SecurityOptions) {
    if *security == SecurityOptions::Plaintext {
        let [red, back] = if stderr().is_terminal() { RED } else { [""; 2] };
        eprintln!(
            "etherslot: {red}PLAINTEXT{back}: whoever reaches the link can read, change and use everything"
        );
    }
}

/// `etherslot keygen`.
#[derive(Args)]
pub(crate) struct Keygen {
    /// Where the files are to be, or are: fabric.key and node.key. The default is /etc/etherslot, for users other than root
    /// etherslot in their configuration folder.
    #[arg(long, value_name = "FOLDER")]
    folder: Option<PathBuf>,
    /// How to print.
    #[arg(long, value_enum, default_value_t, value_name = "FORM")]
    output: Output,
}

impl Keygen {
    pub(crate) fn run(self) -> Result<()> {
        let Some(folder) = self.folder.or_else(keys::folder) else {
            bail!("HOME is not set: say where the keys are to be by --folder");
        };
        let files = KeyFiles::within(&folder);
        let made = keys::make(&files)?;
        let (fabric, node) = (files.fabric.display(), files.node.display());
        if self.output == Output::Json {
            let told = json!({
                "fabric_key": {
                    "path": fabric.to_string(), "made": made.fabric, "fingerprint": made.fingerprint,
                },
                "node_key": { "path": node.to_string(), "made": made.node },
                "public_key": made.public.to_string(),
            });
            println!("{told}");
            return Ok(());
        }
        let [fabric_is, node_is] =
            [made.fabric, made.node].map(|made| if made { "made" } else { "was there" });
        println!(
            "fabric key  {fabric}  {fabric_is}: all nodes of the fabric need it, nobody else may have it"
        );
        println!("            fingerprint {}: the same on all nodes", made.fingerprint);
        println!("node key    {node}  {node_is}: this node alone may have it");
        println!("public key  {}  for peers, owners and box_key of others", made.public);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn links(kind: LinkKind) -> Vec<LinkOptions> {
        vec![LinkOptions { kind, capture: None, impair: None }]
    }

    fn udp() -> Vec<LinkOptions> {
        links(LinkKind::Udp { listen: "0.0.0.0:0".parse().unwrap(), mtu: None })
    }

    #[test]
    fn a_node_has_keys_or_says_that_it_has_none() {
        let table = |text: &str| toml::from_str::<Security>(text).unwrap();
        let flags = SecurityFlags::default();
        let keyed = resolve(&table("key = \"/k/fabric.key\""), &flags, &udp()).unwrap();
        let files = KeyFiles { fabric: "/k/fabric.key".into(), node: "/k/node.key".into() };
        assert_eq!(keyed, SecurityOptions::Keys { files, peers: Peers::Fabric });
        let plain = resolve(&table("plaintext = true"), &flags, &udp()).unwrap();
        assert_eq!(plain, SecurityOptions::Plaintext);
        let both = resolve(&table("plaintext = true\nkey = \"/k\""), &flags, &udp()).unwrap_err();
        assert!(both.to_string().contains("remove one"), "{both}");
        let flags = SecurityFlags::PLAINTEXT;
        assert_eq!(resolve(&table("key = \"/k\""), &flags, &udp()).unwrap(), SecurityOptions::Plaintext);
        for bad in ["peers = [\"12\"]", "peers = \"all\"", "kye = \"/k\""] {
            assert!(toml::from_str::<Security>(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn without_keys_only_memory_is_let_pass() {
        if KeyFiles::usual().is_some_and(|files| files.fabric.exists()) {
            // A machine with keys of its own.
            return;
        }
        let (table, flags) = (Security::default(), SecurityFlags::default());
        let error = resolve(&table, &flags, &udp()).unwrap_err().to_string();
        assert!(error.contains("etherslot keygen") && error.contains("plaintext = true"), "{error}");
        let ring = links(LinkKind::Ring { hub: "/run/hub".into(), port: 1 });
        assert_eq!(resolve(&table, &flags, &ring).unwrap(), SecurityOptions::Memory);
    }
}
