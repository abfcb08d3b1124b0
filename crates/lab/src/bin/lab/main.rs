//! x
fn main() {
    let c = etherslot_lab::Cache::ensure().unwrap();
    let t = std::time::Instant::now();
    let run = etherslot_lab::Run::new("x").unwrap();
    let f = run.disk_image("d.img", 1 << 30).unwrap();
    let mut g = etherslot_lab::Guest::start(
        &run,
        &c,
        etherslot_lab::GuestOptions {
            cpus: std::env::args().nth(1).map_or(1, |a| a.parse().unwrap()),
            devices: vec![etherslot_lab::GuestDevice::LocalNvme { file: f, serial: "QEMU0001".into() }],
            ..Default::default()
        },
    )
    .unwrap();
    eprintln!("boot {:?}", t.elapsed());
    for cmd in [
        "uptime; free -m",
        "lspci -tv; lspci -nn",
        "nvme list",
        "fio --version",
        "fio --name=x --filename=/dev/nvme0n1 --rw=randread --bs=4k --iodepth=32 --ioengine=io_uring --direct=1 --runtime=3 --time_based",
        
        "dmesg -l warn,err,crit,alert,emerg",
        "mkfs.ext4 -q /dev/nvme0n1 && mount /dev/nvme0n1 /mnt && cp -a /usr/lib /mnt && sync && umount /mnt && fsck.ext4 -fn /dev/nvme0n1",
        "exit 7",
        "cat /usr/bin/stat | head -c 300 | base64",
    ] {
        let t = std::time::Instant::now();
        let o = g.run(cmd, std::time::Duration::from_secs(60)).unwrap();
        eprintln!("$ {cmd}  [{} {:?} {}B]\n{}", o.status, t.elapsed(), o.stdout.len(), o.stdout);
    }
    eprintln!("{:?}", g.power_off(std::time::Duration::from_secs(20)));
}
