#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    ironswan_fuzz::targets::pkcs12::run(data);
});
