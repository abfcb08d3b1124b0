//! The programs of the contenders: how they are called, and what they say.

use std::collections::BTreeMap;
use std::path::Path;

use etherslot_lab::HOST_IP;

use super::{BOX_IP, Case, Operation, Way, What};
use crate::machine::package_version;

/// What they come in.
pub(super) const PACKAGES: &[(&str, &str)] = &[
    ("fi_pingpong", "libfabric-bin"),
    ("ib_write_bw", "perftest"),
    ("taskset", "util-linux"),
    ("ucx_perftest", "ucx-utils"),
];

/// Where they listen.
const PERFTEST_PORT: u16 = 18_515;
const UCX_PORT: u16 = 13_337;
const FABRIC_PORT: u16 = 47_592;
const RAW_PORT: u16 = 4711;
/// How many operations a second are reckoned with: a turn takes about its time where it goes like this.
const LATENCY_RATE: u64 = 50_000;
const BYTE_RATE: u64 = 1_500_000_000;
/// 4 KiB at a time is slower, everywhere.
const MOST_RATE: u64 = 150_000;

/// How a case is measured.
pub(super) struct Programs {
    pub(super) server: Vec<String>,
    pub(super) client: Vec<String>,
    /// Where the server listens; without it, it says that it is ready.
    pub(super) port: Option<u16>,
    /// The figure, out of what the client says: microseconds, or 10^9 bytes a second.
    pub(super) parse: fn(&str) -> Option<f64>,
}

/// The versions of the packages.
pub(super) fn versions() -> BTreeMap<String, String> {
    let packages = ["libfabric-bin", "perftest", "ucx-utils"];
    packages.into_iter().filter_map(|name| Some((name.to_owned(), package_version(name)?))).collect()
}

fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// Of a case that moves data; `folder` has our programs.
pub(super) fn of(case: Case, seconds: u64, folder: &Path) -> Programs {
    let (operation, bytes, is_latency) = match case.what {
        What::Latency(operation) => (operation, 8, true),
        What::Rate(operation, bytes) => (operation, bytes, false),
        What::Registration(_) => unreachable!("it moves no data"),
    };
    let rate = if is_latency { LATENCY_RATE } else { (BYTE_RATE / u64::from(bytes)).min(MOST_RATE) };
    let count = (rate * seconds).max(100);
    let folder = folder.display();
    match case.way {
        Way::Verbs => {
            let operation = match operation {
                Operation::Write => "write",
                Operation::Read => "read",
                Operation::Send => "send",
            };
            // Without -N perftest looks at the clock for every message.
            let (kind, more) = if is_latency { ("lat", "") } else { ("bw", "-N --report_gbits") };
            let line = format!(
                "{folder}/etherslot verbs run -- ib_{operation}_{kind} -s {bytes} -n {count} {more} -p {PERFTEST_PORT}"
            );
            let parse = if is_latency { perftest_latency } else { perftest_rate };
            Programs {
                client: words(&format!("{line} {BOX_IP}")),
                server: words(&line),
                port: Some(PERFTEST_PORT),
                parse,
            }
        }
        Way::UcxVerbs | Way::UcxTcp => {
            let (wrapper, variables) = if case.way == Way::UcxVerbs {
                // Datagrams are for the connections of UCX alone. No other device may serve in their place.
                (
                    format!("{folder}/etherslot verbs run --"),
                    "UCX_TLS=rc_verbs,ud_verbs UCX_NET_DEVICES=etherslot0:1",
                )
            } else {
                (String::new(), "UCX_TLS=tcp UCX_NET_DEVICES=eth0")
            };
            let test = match (operation, is_latency) {
                (Operation::Write, true) => "ucp_put_lat",
                (Operation::Write, false) => "ucp_put_bw",
                (Operation::Read, _) => "ucp_get",
                (Operation::Send, true) => "tag_lat",
                (Operation::Send, false) => "tag_bw",
            };
            let server = format!("{wrapper} env {variables} ucx_perftest -p {UCX_PORT}");
            let warm = count / 20;
            let client = format!("{server} {BOX_IP} -t {test} -s {bytes} -n {count} -w {warm} -f -v");
            let parse = if is_latency { ucx_latency } else { ucx_rate };
            Programs { server: words(&server), client: words(&client), port: Some(UCX_PORT), parse }
        }
        Way::FabricTcp => {
            let line = format!("fi_pingpong -p tcp -e rdm -m tagged -I {count} -S {bytes}");
            let parse = if is_latency { fabric_latency } else { fabric_rate };
            Programs {
                client: words(&format!("{line} {BOX_IP}")),
                server: words(&line),
                port: Some(FABRIC_PORT),
                parse,
            }
        }
        Way::Raw => {
            let (what, rest, parse): (_, _, fn(&str) -> Option<f64>) = if is_latency {
                ("trip", String::new(), raw)
            } else {
                ("move", bytes.to_string(), |text| Some(raw(text)? / 1e9))
            };
            let client =
                format!("{folder}/examples/raw {what} {HOST_IP}:0 {BOX_IP}:{RAW_PORT} {seconds} {rest}");
            Programs {
                server: words(&format!("{folder}/examples/raw serve {BOX_IP}:{RAW_PORT}")),
                client: words(&client),
                port: None,
                parse,
            }
        }
        Way::Region | Way::PageList | Way::Lock => unreachable!("they move no data"),
    }
}

/// The numbers of the last line that begins with as many as `least`.
fn last_numbers(text: &str, separator: fn(char) -> bool, least: usize) -> Option<Vec<f64>> {
    let numbers = |line: &str| {
        let words = line.split(separator).filter(|word| !word.is_empty());
        words.map_while(|word| word.parse().ok()).collect::<Vec<f64>>()
    };
    text.lines().rev().map(numbers).find(|numbers| numbers.len() >= least)
}

/// `bytes iterations least most typical average …`.
fn perftest_latency(text: &str) -> Option<f64> {
    last_numbers(text, char::is_whitespace, 6)?.get(4).copied()
}

/// `bytes iterations peak average rate`, Gbit/s.
fn perftest_rate(text: &str) -> Option<f64> {
    Some(last_numbers(text, char::is_whitespace, 5)?.get(3)? / 8.0)
}

/// `iterations, median, average, average of all, 10^6 bytes a second twice, messages a second twice`.
fn ucx_latency(text: &str) -> Option<f64> {
    last_numbers(text, |one| one == ',', 8)?.get(1).copied()
}

fn ucx_rate(text: &str) -> Option<f64> {
    // Of 2^20 bytes.
    Some(last_numbers(text, |one| one == ',', 8)?.get(5)? * f64::from(1 << 20) / 1e9)
}

/// The last line of `fi_pingpong`: `bytes sent =acknowledged total seconds rate us …`.
fn fabric(text: &str, column: usize) -> Option<f64> {
    let line = text.lines().rev().find(|line| line.contains(" ="))?;
    line.split_whitespace().nth(column)?.parse().ok()
}

fn fabric_latency(text: &str) -> Option<f64> {
    fabric(text, 6)
}

fn fabric_rate(text: &str) -> Option<f64> {
    Some(fabric(text, 5)? / 1e3)
}

fn raw(text: &str) -> Option<f64> {
    text.lines().last()?.trim().parse().ok()
}

/// What `registration` says of a region: by `ibv_reg_mr`, with a page list, mlock, microseconds.
pub(super) fn registration(text: &str, bytes: u32) -> Option<[f64; 3]> {
    let line = text.lines().find(|line| line.split_whitespace().next() == Some(&bytes.to_string()))?;
    let mut numbers = line.split_whitespace().skip(1).map(|word| word.parse().unwrap_or(f64::NAN));
    Some([numbers.next()?, numbers.next()?, numbers.next()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_programs_say_is_understood() {
        let near = |value: Option<f64>, expected: f64| {
            assert!((value.unwrap() - expected).abs() < 1e-6 * expected, "{value:?}, not {expected}");
        };
        let rule = "-----------------------------------\n";
        near(
            perftest_latency(&format!(
                " #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec]    t_stdev[usec]\n \
                 8       20000          5.89           4294.30      40.14    \t       104.73      \t321.96 \t\t1946.01\n{rule}"
            )),
            40.14,
        );
        near(
            perftest_rate(&format!(
                " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n \
                 65536      20000            0.00               16.00  \t\t   0.026949\n{rule}"
            )),
            2.0,
        );
        let ucx = "20000,3.700,3.800,3.900,2.00,4.00,16871,16871\n";
        near(ucx_latency(ucx), 3.7);
        near(ucx_rate(ucx), 4.0 * 1_048_576.0 / 1e9);
        let fabric = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec\n\
                      8       10k     =10k     156k        0.17s      930.00      8.63       0.12\n";
        near(fabric_latency(fabric), 8.63);
        near(fabric_rate(fabric), 0.93);
        near(raw("2.5\n"), 2.5);
        let table = "       bytes  ibv_reg_mr us   page list us       mlock us\n        4096           0.10           0.20              -\n";
        let [region, list, lock] = registration(table, 4096).unwrap();
        assert!((region, list) == (0.1, 0.2) && lock.is_nan());
        for parse in
            [perftest_latency, perftest_rate, ucx_latency, ucx_rate, fabric_latency, fabric_rate, raw]
        {
            assert_eq!(parse("error: no such device\n"), None);
        }
    }
}
