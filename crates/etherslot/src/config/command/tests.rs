use super::*;
use crate::config::Overrides;
use crate::security::SecurityFlags;

const BOX: &str = r#"[node]
name = "box"
[link]
kind = "udp"
listen = "127.0.0.1:4700"
[fabric]
group = 7
[metrics]
listen = "127.0.0.1:9464"
[security]
plaintext = true
[[device]]
kind = "nvme"
name = "disk0"
serial = "ES0001"
[[device.namespace]]
path = "/disk.img"
[[device.namespace]]
memory = "1 MiB"
block_bytes = 4096
"#;

const HOST: &str = r#"[node]
name = "host"
[[link]]
kind = "packet"
interface = "eth0"
[[link]]
kind = "dpdk"
device = "net_memif0"
mac = "02:00:00:00:00:01"
eal = ["--no-huge"]
[fabric]
[security]
key = "/k/fabric.key"
[[slot]]
device = "box/disk0"
socket = "/run/disk0.sock"
interrupts = "msi"
[[slot]]
device = "disk1"
box = ["02:00:00:00:00:02", "02:00:00:00:01:02"]
socket = "/run/disk1.sock"
"#;

fn plain() -> Overrides {
    Overrides { security: SecurityFlags::PLAINTEXT, ..Overrides::default() }
}

/// What a check tells of a file, a line each.
fn told(text: &str, overrides: &Overrides) -> Vec<String> {
    let checked = check(text, None, overrides);
    listed(Path::new("f"), text, &checked).lines().map(str::to_owned).collect()
}

fn errors(text: &str) -> Vec<String> {
    told(text, &plain()).into_iter().filter(|line| line.contains(" error: ")).collect()
}

#[test]
fn all_mistakes_in_keys_and_values_are_told_at_once_each_with_its_place() {
    let bad = BOX
        .replace("name = \"box\"", "nmae = \"box\"\nbusy_poll = \"50\"")
        .replace("kind = \"udp\"", "kind = \"upd\"")
        .replace("group = 7", "group = 4001")
        .replace("listen = \"127.0.0.1:9464\"", "listen = \"here\"")
        .replace("serial = \"ES0001\"", "serial = 5\nqueue_pairs = 99")
        .replace("block_bytes = 4096", "block_bytes = 520");
    let told = errors(&bad);
    for (place, words) in [
        ("f:1:1:", "missing field `name`"),
        ("f:2:1:", "unknown field `nmae`"),
        ("f:3:13:", "unit"),
        ("f:5:8:", "`udp`"),
        ("f:8:9:", "1 to 4000"),
        ("f:10:10:", "127.0.0.1:9464"),
        ("f:16:10:", "string"),
        ("f:17:15:", "1 to 64"),
        ("f:22:15:", "512 or 4096"),
    ] {
        let is_there = told.iter().any(|line| line.starts_with(place) && line.contains(words));
        assert!(is_there, "no {place} {words} in {told:#?}");
    }
    assert_eq!(told.len(), 9, "and nothing else: {told:#?}");
}

#[test]
fn all_that_does_not_go_together_is_told_at_once_when_keys_and_values_are_right() {
    let twice = &BOX[BOX.find("[[device]]").unwrap()..];
    let bad = format!("{BOX}{twice}")
        .replace("[fabric]", "[session]\nmax_payload = 256\n[fabric]\ninterval = \"1ms\"")
        .replacen("memory = \"1 MiB\"", "memory = \"1 MiB\"\npath = \"/x\"", 1);
    let told = errors(&bad);
    for (place, words) in [("f:6:", "for hosts"), ("f:8:", "10ms to 60s"), ("f:15:", "not both")] {
        let is_there = told.iter().any(|line| line.starts_with(place) && line.contains(words));
        assert!(is_there, "no {place} {words} in {told:#?}");
    }
    assert_eq!(told.len(), 3, "{told:#?}");
}

#[test]
fn a_file_that_is_no_toml_or_nobody_s_is_told_so() {
    assert!(errors("[node\nname = \n")[0].starts_with("f:1:"), "{:?}", errors("[node\nname = \n"));
    assert!(errors("[node]\nname = \"a\"\n")[0].contains("[[device]]"));
    let missing = errors("[[device]]\n");
    assert!(missing.iter().any(|line| line.contains("`node`")), "{missing:?}");
    assert!(missing.iter().any(|line| line.contains("`serial`")), "{missing:?}");
    let both = format!("{BOX}[[slot]]\n");
    assert!(errors(&both)[0].contains("a file of its own"));
}

#[test]
fn no_file_whatever_ends_the_check_otherwise() {
    for text in [BOX, HOST] {
        for at in (0..text.len()).step_by(3) {
            let _ = told(&text[..at], &plain());
            let changed = format!("{}={}", &text[..at], &text[at..]);
            let _ = told(&changed, &plain());
            let _ = told(&text.replacen(&text[at..=at], "[", 1), &plain());
        }
    }
}

#[test]
fn what_is_odd_is_told_with_its_line_and_is_no_error() {
    let odd = BOX
        .replace("name = \"box\"", "name = \"box\"\nbusy_poll = \"1s\"")
        .replace("127.0.0.1:9464", "0.0.0.0:9464")
        .replace("group = 7\n", "")
        .replace("path = \"/disk.img\"", "path = \"disk.img\"\n[[device.namespace]]\npath = \"disk.img\"")
        .replace(
            "listen = \"127.0.0.1:4700\"",
            "listen = \"127.0.0.1:4700\"\nimpair = \"loss=1%\"\ncapture = \"/c\"",
        );
    let told = told(&odd, &Overrides::default());
    for (place, words) in [
        ("f:3:1:", "core"),
        ("f:7:1:", "on purpose"),
        ("f:8:1:", "every frame"),
        ("f:11:1:", "every network"),
        ("f:13:1:", "everything"),
        ("f:16:1:", "no group"),
        ("f:18:", "two writers"),
        ("f:18:", "folder"),
    ] {
        let is_there = |line: &String| line.starts_with(place) && line.contains(words);
        assert!(told.iter().any(is_there), "no {place} {words} in {told:#?}");
    }
    assert!(told.iter().all(|line| line.contains(" warning: ")), "{told:#?}");
    let quiet = BOX.replace("plaintext = true", "key = \"/k/fabric.key\"");
    assert_eq!(self::told(&quiet, &Overrides::default()), Vec::<String>::new());
}

#[test]
fn what_is_shown_means_the_same_and_has_every_key() {
    for text in [BOX, HOST] {
        let checked = check(text, None, &Overrides::default());
        assert!(checked.errors.is_empty(), "{:?}", checked.errors);
        let first = show::file(&checked.options.unwrap());
        let again = check(&first, None, &Overrides::default());
        assert!(again.errors.is_empty(), "{:?} in\n{first}", again.errors);
        assert_eq!(show::file(&again.options.unwrap()), first);
    }
    let flags = Overrides { metrics: Some("127.0.0.1:1".parse().unwrap()), ..plain() };
    let shown = show::file(&check(BOX, None, &flags).options.unwrap());
    for line in [
        "listen = \"127.0.0.1:1\"",
        "plaintext = true",
        "dead_after = \"1s\"",
        "heartbeat = \"100ms\"",
        "window_frames = 256",
        "queue_pairs = 64",
        "memory = \"1048576 B\"",
        "model = \"Etherslot NVMe\"",
        "# busy_poll: as long as it pays",
    ] {
        assert!(shown.lines().any(|shown| shown == line), "no {line} in\n{shown}");
    }
}
