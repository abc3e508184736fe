//! Host bindings of the WIT world, generated from `wit/`.

wasmtime::component::bindgen!({
    path: "../wit",
    world: "plugin",
    imports: { default: trappable },
    wasmtime_crate: crate::world::linker::interposed,
    additional_derives: [ks_host_macros::Recorded, ks_host_macros::Wire],
    with: {
        "kernelscript:host/bpf.program": super::bpf::ProgramHandle,
        "kernelscript:host/bpf.link": super::bpf::LinkHandle,
        "kernelscript:host/bpf.test-input": super::bpf::TestInputHandle,
        "kernelscript:host/perf.event": super::perf::EventHandle,
        "kernelscript:host/perf.options": super::perf::OptionsHandle,
        "kernelscript:host/perf.attachment": super::perf::AttachmentHandle,
        "kernelscript:host/console.histograms": super::console::HistogramsHandle,
        "kernelscript:host/console.table": super::console::TableHandle,
        "kernelscript:host/maps.bpf-map": super::maps::MapHandle,
        "kernelscript:host/maps.cursor": super::maps::CursorHandle,
        "kernelscript:host/ring": super::ring::linker,
        "kernelscript:host/globals.variable": super::globals::VariableHandle,
    },
    trappable_error_type: {
        "kernelscript:host/types.error" => super::error::HostError,
    },
});
