//! Empties the registers in which libraries and compilers leave what they worked with: a function
//! that is called later may save one that it has not asked what is in it.

/// Overwrites the registers that a call may change. Elsewhere than on x86-64 it does nothing.
#[inline]
pub(crate) fn clear() {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::asm;

        // SAFETY: registers that every call may change are changed, of which the compiler is told;
        // neither memory nor stack.
        unsafe {
            asm!(
                "xor eax, eax",
                "xor ecx, ecx",
                "xor edx, edx",
                "xor esi, esi",
                "xor edi, edi",
                "xor r8d, r8d",
                "xor r9d, r9d",
                "xor r10d, r10d",
                "xor r11d, r11d",
                "pxor xmm0, xmm0",
                "pxor xmm1, xmm1",
                "pxor xmm2, xmm2",
                "pxor xmm3, xmm3",
                "pxor xmm4, xmm4",
                "pxor xmm5, xmm5",
                "pxor xmm6, xmm6",
                "pxor xmm7, xmm7",
                "pxor xmm8, xmm8",
                "pxor xmm9, xmm9",
                "pxor xmm10, xmm10",
                "pxor xmm11, xmm11",
                "pxor xmm12, xmm12",
                "pxor xmm13, xmm13",
                "pxor xmm14, xmm14",
                "pxor xmm15, xmm15",
                clobber_abi("C"),
                options(nomem, nostack)
            );
        }
        if std::arch::is_x86_feature_detected!("avx") {
            // SAFETY: the same registers in their full width; the processor has AVX.
            unsafe { asm!("vzeroall", clobber_abi("C"), options(nomem, nostack, preserves_flags)) };
        }
        if std::arch::is_x86_feature_detected!("avx512f") {
            // SAFETY: the registers that only AVX-512 has, which the processor has; every call may
            // change them.
            unsafe {
                asm!(
                    "vpxorq zmm16, zmm16, zmm16",
                    "vpxorq zmm17, zmm17, zmm17",
                    "vpxorq zmm18, zmm18, zmm18",
                    "vpxorq zmm19, zmm19, zmm19",
                    "vpxorq zmm20, zmm20, zmm20",
                    "vpxorq zmm21, zmm21, zmm21",
                    "vpxorq zmm22, zmm22, zmm22",
                    "vpxorq zmm23, zmm23, zmm23",
                    "vpxorq zmm24, zmm24, zmm24",
                    "vpxorq zmm25, zmm25, zmm25",
                    "vpxorq zmm26, zmm26, zmm26",
                    "vpxorq zmm27, zmm27, zmm27",
                    "vpxorq zmm28, zmm28, zmm28",
                    "vpxorq zmm29, zmm29, zmm29",
                    "vpxorq zmm30, zmm30, zmm30",
                    "vpxorq zmm31, zmm31, zmm31",
                    clobber_abi("C"),
                    options(nomem, nostack, preserves_flags)
                );
            }
        }
    }
}
