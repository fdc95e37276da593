#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ironswan_fuzz::targets::helper::run(data);
});
