//! The PHY inside (82576 datasheet, 3.5 and 8.22) behind MDIC (8.2.4): 1000BASE-T, whose partner can do all that it can.

/// The only address that answers.
const ADDRESS: u32 = 1;

/// MDIC.
mod mdic {
    pub(super) const WRITE: u32 = 1;
    pub(super) const READ: u32 = 2;
    pub(super) const READY: u32 = 1 << 28;
    pub(super) const INTERRUPT: u32 = 1 << 29;
    pub(super) const ERROR: u32 = 1 << 30;
}

/// Registers (IEEE 802.3, clause 22).
mod register {
    pub(super) const CONTROL: u16 = 0;
    pub(super) const STATUS: u16 = 1;
    pub(super) const ID1: u16 = 2;
    pub(super) const ID2: u16 = 3;
    pub(super) const ADVERTISE: u16 = 4;
    pub(super) const PARTNER: u16 = 5;
    pub(super) const EXPANSION: u16 = 6;
    pub(super) const GIGABIT_CONTROL: u16 = 9;
    pub(super) const GIGABIT_STATUS: u16 = 10;
    pub(super) const EXTENDED_STATUS: u16 = 15;
    /// Port Status: speed 1000, full duplex.
    pub(super) const PORT_STATUS: u16 = 17;
    pub(super) const PAGE: u16 = 31;
}

mod control {
    pub(super) const RESTART: u16 = 1 << 9;
    pub(super) const POWER_DOWN: u16 = 1 << 11;
    pub(super) const LOOPBACK: u16 = 1 << 14;
    pub(super) const RESET: u16 = 1 << 15;
    /// Auto-negotiation, full duplex, 1000 Mbit/s.
    pub(super) const DEFAULT: u16 = 0x1140;
}

/// 10 to 100 Mbit/s in both duplexes, extended status, auto-negotiation.
const STATUS: u16 = 0x7949;
const STATUS_NEGOTIATED: u16 = 1 << 5;
const STATUS_LINK: u16 = 1 << 2;
/// 802.3, 10 to 100 Mbit/s in both duplexes, symmetric pause.
const ADVERTISE: u16 = 0x05e1;
const ACKNOWLEDGED: u16 = 1 << 14;
/// Full-duplex 1000BASE-T.
const GIGABIT: u16 = 0x0200;
/// Both receivers work, the partner can do 1000BASE-T in both duplexes.
const GIGABIT_STATUS: u16 = 0x3c00;
/// What the registers of the analog gain controllers say of a short cable; these are the pages they are on.
const SHORT_CABLE: u16 = 0x0200;
const AGC_PAGES: [u16; 4] = [0x11b1, 0x12b1, 0x14b1, 0x18b1];
const AGC: u16 = 17;

/// The PHY.
#[derive(Debug)]
pub(crate) struct Phy {
    registers: [u16; 32],
    mdic: u32,
    /// The cable has a carrier.
    pub(crate) has_carrier: bool,
}

impl Phy {
    pub(crate) fn new() -> Self {
        let mut phy = Self { registers: [0; 32], mdic: 0, has_carrier: false };
        phy.reset();
        phy
    }

    pub(crate) fn reset(&mut self) {
        self.registers = [0; 32];
        self.mdic = mdic::READY;
        for (register, value) in [
            (register::CONTROL, control::DEFAULT),
            (register::ADVERTISE, ADVERTISE),
            (register::GIGABIT_CONTROL, GIGABIT),
        ] {
            self.registers[usize::from(register)] = value;
        }
    }

    fn control(&self) -> u16 {
        self.registers[usize::from(register::CONTROL)]
    }

    /// Whether it is linked, with its partner or with itself.
    pub(crate) fn has_link(&self) -> bool {
        self.control() & control::POWER_DOWN == 0 && (self.has_carrier || self.is_looped())
    }

    /// Whether what is sent comes back.
    pub(crate) fn is_looped(&self) -> bool {
        self.control() & control::LOOPBACK != 0
    }

    fn read(&self, register: u16) -> u16 {
        let page = self.registers[usize::from(register::PAGE)];
        let has_link = self.has_link();
        let if_linked = |value: u16| if has_link { value } else { 0 };
        match register {
            AGC if AGC_PAGES.contains(&page) => SHORT_CABLE,
            register::STATUS => STATUS | if_linked(STATUS_LINK | STATUS_NEGOTIATED),
            // The 82576's (8.22.3.3).
            register::ID1 => 0x02a8,
            register::ID2 => 0x0391,
            register::PARTNER => if_linked(ADVERTISE | ACKNOWLEDGED),
            // The partner can negotiate, a page was received.
            register::EXPANSION => if_linked(3),
            register::GIGABIT_STATUS => if_linked(GIGABIT_STATUS),
            register::EXTENDED_STATUS => 0x3000,
            register::PORT_STATUS => if_linked(0xc200),
            _ => self.registers[usize::from(register & 31)],
        }
    }

    fn write(&mut self, register: u16, value: u16) {
        match register {
            register::CONTROL if value & control::RESET != 0 => {
                let mdic = self.mdic;
                self.reset();
                self.mdic = mdic;
            }
            register::CONTROL => self.registers[0] = value & !control::RESTART,
            register::STATUS | register::ID1 | register::ID2 | register::PARTNER => {}
            _ => self.registers[usize::from(register & 31)] = value,
        }
    }

    pub(crate) fn mdic(&self) -> u32 {
        self.mdic
    }

    /// Carries an access out.
    pub(crate) fn set_mdic(&mut self, value: u32) {
        let register = (value >> 16 & 31) as u16;
        self.mdic = value & !mdic::ERROR | mdic::READY;
        self.mdic &= !mdic::INTERRUPT;
        match (value >> 21 & 31, value >> 26 & 3) {
            (ADDRESS, mdic::READ) => {
                self.mdic = self.mdic & !0xffff | u32::from(self.read(register));
            }
            (ADDRESS, mdic::WRITE) => self.write(register, value as u16),
            _ => self.mdic |= mdic::ERROR,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(phy: &mut Phy, register: u32) -> u16 {
        phy.set_mdic(2 << 26 | 1 << 21 | register << 16);
        assert_eq!(phy.mdic() >> 28 & 5, 1, "ready, no error");
        phy.mdic() as u16
    }

    fn write(phy: &mut Phy, register: u32, value: u16) {
        phy.set_mdic(1 << 26 | 1 << 21 | register << 16 | u32::from(value));
    }

    #[test]
    fn it_is_known_by_its_id_and_answers_at_address_1_only() {
        let mut phy = Phy::new();
        assert_eq!([2, 3].map(|at| read(&mut phy, at)), [0x02a8, 0x0391]);
        for address in [0, 2, 31] {
            phy.set_mdic(2 << 26 | address << 21 | 2 << 16);
            assert_eq!(phy.mdic() >> 30 & 1, 1, "error at address {address}");
        }
    }

    #[test]
    fn link_follows_the_carrier_power_and_loopback() {
        let mut phy = Phy::new();
        assert_eq!(read(&mut phy, 1) & 0x24, 0);
        phy.has_carrier = true;
        assert_eq!(read(&mut phy, 1) & 0x24, 0x24);
        assert_eq!(read(&mut phy, 5), 0x45e1);
        write(&mut phy, 0, 0x1940);
        assert_eq!(read(&mut phy, 1) & 0x24, 0, "powered down");
        phy.has_carrier = false;
        write(&mut phy, 0, 0x4140);
        assert!(phy.has_link() && phy.is_looped());
        write(&mut phy, 0, 0x8000);
        assert_eq!(read(&mut phy, 0), 0x1140, "reset clears itself");
        assert!(!phy.is_looped());
    }

    #[test]
    fn negotiation_restarts_and_is_done() {
        let mut phy = Phy::new();
        write(&mut phy, 0, 0x1340);
        assert_eq!(read(&mut phy, 0), 0x1140);
    }
}
