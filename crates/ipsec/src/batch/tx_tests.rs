use super::*;

#[test]
fn packets_that_were_not_sealed_are_taken_out_of_their_sends_wherever_they_are() {
    const LEN: u32 = 100;
    let end: SocketAddr = "192.0.2.1:4500".parse().unwrap();
    // Of five packets, the last one shorter, each may fail or not.
    for failing in 0..32u32 {
        let mut tx = TxBatch::new(TxConfig { capacity: 1_000, ..TxConfig::default() });
        tx.buf.fill(7);
        let first = Send {
            offset: 0,
            len: 4 * LEN + 60,
            segment_size: LEN as u16,
            segments: 5,
            local: end,
            remote: end,
            carrier: Carrier::Udp,
            tos: 0,
            fragmentable: 0,
        };
        let other = Send { offset: 460, len: LEN, segments: 1, ..first };
        tx.sends = vec![first, other];
        tx.jobs = (0..6)
            .map(|i| {
                let (start, len) = if i < 5 { (i * LEN, LEN - i / 4 * 40) } else { (460, LEN) };
                Job { start, len, seq: u64::from(i), key: 0, ok: failing >> i & 1 == 0 }
            })
            .collect();
        let jobs = tx.jobs.clone();
        tx.remove_unsealed();
        assert_eq!(tx.take_unsealed(), u64::from(failing.count_ones()));
        assert_eq!(tx.take_unsealed(), 0);
        let mut left = Vec::new();
        for send in &tx.sends {
            let before = left.len();
            for at in (send.offset..send.offset + send.len).step_by(send.segment_size.into()) {
                left.push(at);
            }
            assert_eq!(left.len() - before, usize::from(send.segments));
            assert!(send.segment_size == LEN as u16 || send.len == u32::from(send.segment_size));
        }
        let good: Vec<u32> = jobs.iter().filter(|job| job.ok).map(|job| job.start).collect();
        assert_eq!(left, good, "{failing:05b}");
        for job in jobs {
            let bytes = &tx.buf[job.start as usize..(job.start + job.len) as usize];
            assert!(bytes.iter().all(|b| *b == if job.ok { 7 } else { 0xff }));
        }
    }
}
