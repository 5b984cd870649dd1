//! Graphs by stream capture: the calls that put commands into a stream make the nodes, so that they are the same commands.
//!
//! A capture is of its thread alone (`CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`): other ranks' threads may allocate and wait meanwhile.

use std::ffi::c_void;
use std::ptr::{null, null_mut};

use cudarc::driver::result::{graph, stream};
use cudarc::driver::sys;

use super::libraries::DRIVER;
use super::packed::Packed;
use super::{Asked, Gpu, handle};
use crate::driver::{Fault, Launch, Stream, THREADS};
use crate::graph::{Graph, Graphs, Node};
use crate::sources::entry_point;

/// The first driver that tells of a capture with the data of its edges: 1000 times CUDA's version, and 10 times what follows.
const OLDEST: i32 = 12_030;

fn definition(of: Graph) -> sys::CUgraph {
    of.0[0] as sys::CUgraph
}

fn executable(of: Graph) -> sys::CUgraphExec {
    of.0[1] as sys::CUgraphExec
}

impl Graphs for Gpu {
    fn check_graphs(&self) -> Result<(), Fault> {
        let mut version = 0;
        // SAFETY: the number is written.
        unsafe { sys::cuDriverGetVersion(&mut version) }.result().asked("asking for its version")?;
        if version < OLDEST {
            let text = format!(
                "graphs need a driver of CUDA 12.3 or newer, this one is of {}.{}: give graphs=off",
                version / 1000,
                version % 1000 / 10
            );
            return Err(Fault { library: DRIVER.name, code: -1, text });
        }
        Ok(())
    }

    fn begin_graph(&self, on: Stream) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: the stream is the driver's, and lives until the end.
        let begun =
            unsafe { stream::begin_capture(handle(on), sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL) };
        begun.asked("beginning a graph")
    }

    fn last_node(&self, on: Stream) -> Result<Node, Fault> {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let mut last = null::<sys::CUgraphNode>();
        let mut count = 0;
        // Without a place for the edges' data the call refuses edges that have some, as products may.
        let mut edges = null::<sys::CUgraphEdgeData>();
        // SAFETY: what is asked for is written; the rest is not asked for.
        let asked = unsafe {
            sys::cuStreamGetCaptureInfo_v3(
                handle(on),
                &mut status,
                null_mut(),
                null_mut(),
                &mut last,
                &mut edges,
                &mut count,
            )
        };
        asked.result().asked("asking for the last launch of a graph")?;
        if status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_ACTIVE || count != 1 || last.is_null() {
            let text = format!("{status:?} with {count} last nodes, asking for the last launch of a graph");
            return Err(Fault { library: DRIVER.name, code: -1, text });
        }
        // SAFETY: there is one, until the stream gets another command.
        Ok(Node(unsafe { *last } as u64))
    }

    fn end_graph(&self, on: Stream) -> Result<Graph, Fault> {
        let entered = self.enter();
        // SAFETY: the stream is the driver's. Its commands are to be done again, whatever else goes wrong.
        let made = unsafe { stream::end_capture(handle(on)) }.asked("ending a graph")?;
        // SAFETY: the graph was just made; no flags.
        let instantiated = || unsafe { graph::instantiate(made, sys::CUgraphInstantiate_flags(0)) };
        match entered.and_then(|()| instantiated().asked("making a graph ready")) {
            Ok(executable) => Ok(Graph([made as u64, executable as u64])),
            Err(fault) => {
                // SAFETY: nobody has it. That it cannot be destroyed helps nobody.
                let _ = unsafe { graph::destroy(made) };
                Err(fault)
            }
        }
    }

    fn update_node(&self, graph: Graph, node: Node, launch: &Launch<'_>) -> Result<(), Fault> {
        self.enter()?;
        let func = self.function(launch.kernel, launch.format)?;
        let mut packed = Packed::new(launch.words);
        let parameters = sys::CUDA_KERNEL_NODE_PARAMS {
            func,
            gridDimX: launch.blocks.max(1),
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: THREADS,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: launch.shared,
            kernelParams: null_mut(),
            extra: packed.list().as_mut_ptr(),
            kern: null_mut(),
            ctx: null_mut::<c_void>().cast(),
        };
        // SAFETY: the node is of the graph, which is kept; the call copies the words.
        let updated = unsafe {
            sys::cuGraphExecKernelNodeSetParams_v2(executable(graph), node.0 as sys::CUgraphNode, &parameters)
        };
        updated.result().asked(&format!("giving {} of a graph other words", entry_point(launch.kernel, launch.format)))
    }

    unsafe fn run_graph(&self, graph: Graph, on: Stream) -> Result<(), Fault> {
        self.enter()?;
        // SAFETY: the caller's promise; the graph is ready.
        unsafe { graph::launch(executable(graph), handle(on)) }.asked("launching a graph")
    }

    fn forget_graph(&self, graph: Graph) {
        if self.enter().is_ok() {
            // SAFETY: it is used no more; the driver keeps what runs. That it cannot be destroyed helps nobody.
            unsafe {
                let _ = graph::exec_destroy(executable(graph));
                let _ = graph::destroy(definition(graph));
            }
        }
    }
}
