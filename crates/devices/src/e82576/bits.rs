//! Offsets and bits of the registers (Intel 82576EB datasheet, chapter 8).

/// Offsets in BAR 0.
pub(crate) mod register {
    pub(crate) const CTRL: u32 = 0x0000;
    /// CTRL is at 0x0004 as well (8.2.1).
    pub(crate) const CTRL_ALIAS: u32 = 0x0004;
    pub(crate) const STATUS: u32 = 0x0008;
    pub(crate) const EECD: u32 = 0x0010;
    pub(crate) const EERD: u32 = 0x0014;
    pub(crate) const CTRL_EXT: u32 = 0x0018;
    pub(crate) const MDIC: u32 = 0x0020;
    pub(crate) const FCAL: u32 = 0x0028;
    pub(crate) const FCAH: u32 = 0x002c;
    pub(crate) const FCT: u32 = 0x0030;
    pub(crate) const CONNSW: u32 = 0x0034;
    pub(crate) const VET: u32 = 0x0038;
    pub(crate) const RCTL: u32 = 0x0100;
    pub(crate) const FCTTV: u32 = 0x0170;
    pub(crate) const TCTL: u32 = 0x0400;
    pub(crate) const TCTL_EXT: u32 = 0x0404;
    pub(crate) const TIPG: u32 = 0x0410;
    pub(crate) const LEDCTL: u32 = 0x0e00;
    pub(crate) const EEMNGCTL: u32 = 0x1010;
    pub(crate) const FRTIMER: u32 = 0x1048;
    pub(crate) const FCRTL: u32 = 0x2160;
    pub(crate) const FCRTH: u32 = 0x2168;
    pub(crate) const RXPBS: u32 = 0x2404;
    pub(crate) const FCRTV: u32 = 0x2460;
    pub(crate) const SWPBS: u32 = 0x3004;
    pub(crate) const TXPBS: u32 = 0x3404;
    pub(crate) const DTXCTL: u32 = 0x3590;
    pub(crate) const DTXTCPFLGL: u32 = 0x359c;
    pub(crate) const DTXTCPFLGH: u32 = 0x35a0;
    pub(crate) const RXCSUM: u32 = 0x5000;
    pub(crate) const RLPML: u32 = 0x5004;
    pub(crate) const RFCTL: u32 = 0x5008;
    pub(crate) const MTA: u32 = 0x5200;
    pub(crate) const RAL: u32 = 0x5400;
    pub(crate) const PSRTYPE: u32 = 0x5480;
    pub(crate) const RAL2: u32 = 0x54e0;
    pub(crate) const VFTA: u32 = 0x5600;
    pub(crate) const WUC: u32 = 0x5800;
    pub(crate) const WUFC: u32 = 0x5808;
    pub(crate) const MRQC: u32 = 0x5818;
    pub(crate) const VT_CTL: u32 = 0x581c;
    pub(crate) const MANC: u32 = 0x5820;
    pub(crate) const VMOLR: u32 = 0x5ad0;
    pub(crate) const RPLOLR: u32 = 0x5af0;
    pub(crate) const GCR: u32 = 0x5b00;
    pub(crate) const FACTPS: u32 = 0x5b30;
    pub(crate) const SWSM: u32 = 0x5b50;
    pub(crate) const FWSM: u32 = 0x5b54;
    pub(crate) const SW_FW_SYNC: u32 = 0x5b5c;
    pub(crate) const RETA: u32 = 0x5c00;
    pub(crate) const RSSRK: u32 = 0x5c80;
    pub(crate) const ETQF: u32 = 0x5cb0;
    pub(crate) const VLVF: u32 = 0x5d00;
    pub(crate) const UTA: u32 = 0xa000;
    pub(crate) const SYSTIML: u32 = 0xb600;
    pub(crate) const SYSTIMH: u32 = 0xb604;
    pub(crate) const TIMINCA: u32 = 0xb608;
    pub(crate) const TSYNCTXCTL: u32 = 0xb614;
    pub(crate) const TSYNCRXCTL: u32 = 0xb620;
    pub(crate) const TSAUXC: u32 = 0xb640;

    pub(crate) const GPIE: u32 = 0x1514;
    pub(crate) const EICS: u32 = 0x1520;
    pub(crate) const EIMS: u32 = 0x1524;
    pub(crate) const EIMC: u32 = 0x1528;
    pub(crate) const EIAC: u32 = 0x152c;
    pub(crate) const EIAM: u32 = 0x1530;
    pub(crate) const EICR: u32 = 0x1580;
    pub(crate) const EITR: u32 = 0x1680;
    pub(crate) const IVAR: u32 = 0x1700;
    pub(crate) const IVAR_MISC: u32 = 0x1740;
    pub(crate) const ICR: u32 = 0x1500;
    pub(crate) const ICS: u32 = 0x1504;
    pub(crate) const IMS: u32 = 0x1508;
    pub(crate) const IMC: u32 = 0x150c;
    pub(crate) const IAM: u32 = 0x1510;
}

/// CTRL (8.2.1).
pub(crate) mod ctrl {
    pub(crate) const FD: u32 = 1 << 0;
    pub(crate) const GIO_MASTER_DISABLE: u32 = 1 << 2;
    pub(crate) const SLU: u32 = 1 << 6;
    pub(crate) const SPEED_1000: u32 = 1 << 9;
    pub(crate) const ADVD3WUC: u32 = 1 << 20;
    pub(crate) const RST: u32 = 1 << 26;
    pub(crate) const TFCE: u32 = 1 << 28;
    pub(crate) const VME: u32 = 1 << 30;
    pub(crate) const PHY_RST: u32 = 1 << 31;
}

/// STATUS (8.2.2).
pub(crate) mod status {
    pub(crate) const FD: u32 = 1 << 0;
    pub(crate) const LU: u32 = 1 << 1;
    pub(crate) const SPEED_1000: u32 = 2 << 6;
    pub(crate) const ASDV_1000: u32 = 2 << 8;
    pub(crate) const GIO_MASTER_ENABLE: u32 = 1 << 19;
}

/// RCTL (8.10.1).
pub(crate) mod rctl {
    pub(crate) const RXEN: u32 = 1 << 1;
    pub(crate) const UPE: u32 = 1 << 3;
    pub(crate) const MPE: u32 = 1 << 4;
    pub(crate) const LPE: u32 = 1 << 5;
    pub(crate) const LBM: u32 = 3 << 6;
    pub(crate) const MO_SHIFT: u32 = 12;
    pub(crate) const BAM: u32 = 1 << 15;
    pub(crate) const BSIZE_SHIFT: u32 = 16;
    pub(crate) const VFE: u32 = 1 << 18;
    pub(crate) const CFIEN: u32 = 1 << 19;
    pub(crate) const CFI: u32 = 1 << 20;
    pub(crate) const SECRC: u32 = 1 << 26;
}

/// TCTL (8.12.1).
pub(crate) mod tctl {
    pub(crate) const EN: u32 = 1 << 1;
    pub(crate) const PSP: u32 = 1 << 3;
}

/// RXCSUM (8.10.20).
pub(crate) mod rxcsum {
    pub(crate) const PCSS: u32 = 0xff;
    pub(crate) const IPOFLD: u32 = 1 << 8;
    pub(crate) const TUOFLD: u32 = 1 << 9;
    pub(crate) const CRCOFL: u32 = 1 << 11;
    pub(crate) const PCSD: u32 = 1 << 13;
}

/// MRQC (8.10.21): which queue a frame goes to, and what is hashed.
pub(crate) mod mrqc {
    pub(crate) const MODE: u32 = 7;
    pub(crate) const RSS: u32 = 2;
    pub(crate) const DEFAULT_QUEUE_SHIFT: u32 = 3;
    pub(crate) const TCP_IPV4: u32 = 1 << 16;
    pub(crate) const IPV4: u32 = 1 << 17;
    pub(crate) const IPV6: u32 = 1 << 20;
    pub(crate) const TCP_IPV6: u32 = 1 << 21;
    pub(crate) const UDP_IPV4: u32 = 1 << 22;
    pub(crate) const UDP_IPV6: u32 = 1 << 23;
}

/// SRRCTL (8.10.2).
pub(crate) mod srrctl {
    pub(crate) const BSIZEPACKET: u32 = 0x7f;
    pub(crate) const DESCTYPE_SHIFT: u32 = 25;
    pub(crate) const DROP_EN: u32 = 1 << 31;
}

/// RXDCTL and TXDCTL (8.10.8, 8.12.15).
pub(crate) mod xdctl {
    pub(crate) const ENABLE: u32 = 1 << 25;
    pub(crate) const SWFLUSH: u32 = 1 << 26;
}

/// Causes in ICR (8.8.9).
pub(crate) mod cause {
    pub(crate) const TXDW: u32 = 1 << 0;
    pub(crate) const LSC: u32 = 1 << 2;
    pub(crate) const RX_MISS: u32 = 1 << 6;
    pub(crate) const RXDW: u32 = 1 << 7;
    pub(crate) const FER: u32 = 1 << 22;
    /// An interrupt was asserted.
    pub(crate) const INTA: u32 = 1 << 31;
}

/// GPIE (8.8.13).
pub(crate) mod gpie {
    pub(crate) const NSICR: u32 = 1 << 0;
    pub(crate) const MULTIPLE_MSIX: u32 = 1 << 4;
    pub(crate) const EIAME: u32 = 1 << 30;
}

/// Bytes of a descriptor.
pub(crate) const DESCRIPTOR_BYTES: usize = 16;
