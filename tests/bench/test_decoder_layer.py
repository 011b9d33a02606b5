"""The bench of the decoder layer, as far as a machine without a GPU can run it."""

from bench import decoder_layer


def test_a_dry_run_checks_every_implementation():
    assert decoder_layer.main(["--dry"]) == 0


def test_kernels_are_sorted_by_their_names():
    lanes = {
        "nvjet_tst_64x8_64x16_4x1_v_bz_TNT": "matmul",
        "void cublasLt::splitKreduce_kernel<32, 16>(cublasLt::cublasSplitKParams<float>)": "matmul",
        "triton_red_fused__to_copy_add_mm_mul_3": "matmul",
        "void pytorch_flash::flash_fwd_splitkv_combine_kernel<Flash_fwd_kernel_traits<128>>(Params)": "attention",
        "void at::native::vectorized_elementwise_kernel<4, at::native::silu_kernel>(int)": "elementwise",
        "add_rmsnorm_resident_kernel": "elementwise",
        "triton_poi_fused__scaled_dot_product_cudnn_attention__unsafe": "elementwise",
        "lean_reduction_kernel": "attention",
        "Memset (Device)": "matmul",
        "void at::native::(anonymous namespace)::CatArrayBatchedCopy<int, 3>(int)": "elementwise",
    }
    assert {name: decoder_layer.lane(name) for name in lanes} == lanes
    assert decoder_layer.short(list(lanes)[1]) == "splitKreduce_kernel"
    assert decoder_layer.short(list(lanes)[-1]) == "CatArrayBatchedCopy"
    assert decoder_layer.short(list(lanes)[4]) == "vectorized_elementwise_kernel silu"
