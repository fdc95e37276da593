//! Clear packets that pass although a policy covers them: DHCP's answers, neighbours, ESP, AH and
//! IKE for this machine, and errors about its own packets.

use super::*;

impl Assembler {
    /// DHCP's answers to a client, which takes them before the kernel's own stack, for an address
    /// that it does not have yet: the table, which sees only what the stack delivers, has them
    /// alone.
    pub(super) fn dhcp(&mut self, pass: &mut Label) {
        let mut no = Label::default();
        for (at, value) in [(UPPER, 17), (VIEW, VIEW_PORTS), (PORT_A, 67)] {
            self.load(Word, R1, R10, at);
            self.jump(JNE_K, R1, value, &mut no);
        }
        self.load(Word, R1, R10, PORT_B);
        self.jump(JEQ_K, R1, 68, pass);
        self.bind(no);
    }

    /// Neighbours are found between global addresses, too; what a router has forwarded has a hop
    /// limit of less than 255.
    pub(super) fn neighbour(&mut self, pass: &mut Label) {
        let mut no = Label::default();
        self.load(Word, R1, R10, UPPER);
        self.jump(JNE_K, R1, 58, &mut no);
        self.load(Word, R1, R10, VIEW);
        self.jump(JNE_K, R1, VIEW_PORTS, &mut no);
        self.load(Byte, R1, R10, HEADER + 7);
        self.jump(JNE_K, R1, 255, &mut no);
        self.load(Byte, R1, R10, SCRATCH);
        self.jump(JLT_K, R1, 133, &mut no);
        self.jump(JGT_K, R1, 137, &mut no);
        self.jump(JA, R0, 0, pass);
        self.bind(no);
    }

    /// Lets clear packets pass that this machine may get: ESP and AH, which the engine opens; IKE;
    /// ICMP errors about our own outer packets. Such errors carry path MTUs; they come from any
    /// router, and quote ESP, AH, or UDP from our ports.
    pub(super) fn outer(&mut self, ipv6: bool, ports: &[u16; 2], pass: &mut Label, drop: &mut Label) {
        let (mut udp, mut errors) = (Label::default(), Label::default());
        self.load(Word, R1, R10, UPPER);
        self.jump(JEQ_K, R1, 50, pass);
        self.jump(JEQ_K, R1, 51, pass);
        self.jump(JEQ_K, R1, 17, &mut udp);
        self.jump(JEQ_K, R1, if ipv6 { 58 } else { 1 }, &mut errors);
        self.jump(JA, R0, 0, drop);

        self.bind(udp);
        // A later fragment says nothing without the first, which is asked for its port. Large IKE
        // messages come so.
        self.load(Word, R1, R10, LATER);
        self.jump(JNE_K, R1, 0, pass);
        self.load(Word, R1, R10, VIEW);
        self.jump(JNE_K, R1, VIEW_PORTS, drop);
        self.load(Word, R1, R10, PORT_B);
        for port in ports {
            self.jump(JEQ_K, R1, (*port).into(), pass);
        }
        self.jump(JA, R0, 0, drop);

        self.bind(errors);
        self.load(Word, R1, R10, VIEW);
        self.jump(JNE_K, R1, VIEW_PORTS, drop);
        self.load(Byte, R1, R10, SCRATCH);
        let mut error = Label::default();
        let (types, protocol, port): (&[i32], i32, i32) =
            if ipv6 { (&[1, 2, 3, 4], 14, 48) } else { (&[3, 11, 12], 17, 28) };
        for kind in types {
            self.jump(JEQ_K, R1, *kind, &mut error);
        }
        self.jump(JA, R0, 0, drop);
        self.bind(error);
        self.load(Word, R8, R10, UPPER_AT);
        self.add(R8, protocol);
        self.fetch(1, drop);
        self.load(Byte, R1, R10, SCRATCH);
        self.jump(JEQ_K, R1, 50, pass);
        self.jump(JEQ_K, R1, 51, pass);
        self.jump(JNE_K, R1, 17, drop);
        self.load(Word, R8, R10, UPPER_AT);
        self.add(R8, port);
        self.fetch(2, drop);
        self.load_be(Half, R1, R10, SCRATCH);
        for port in ports {
            self.jump(JEQ_K, R1, (*port).into(), pass);
        }
        self.jump(JA, R0, 0, drop);
    }
}
